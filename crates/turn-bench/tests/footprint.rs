//! Memory of allocations at a real server on the loopback.

use turn_bench::footprint::{FootprintSpec, measure};
use turn_bench::session::SessionOptions;
use turn_bench::traffic::Transport;

use crate::support;
use crate::support::Server;

#[test]
fn each_allocation_costs_a_descriptor_and_some_memory() {
    let server = Server::start("");
    let peer = support::free_address();
    for channels in [false, true] {
        let mut sessions = SessionOptions::new(server.address, Server::login(), peer);
        sessions.sessions = 400;
        let pid = channels.then(|| server.pid());
        let footprint = measure(&FootprintSpec { sessions, pid, channels, kernel: None }).unwrap();
        assert_eq!((footprint.process.as_str(), footprint.allocations), ("turnpike", 400));
        assert_eq!(footprint.after.descriptors - footprint.before.descriptors, 400);
        assert!(footprint.after.anonymous >= footprint.before.anonymous, "{footprint:?}");
    }
}

#[test]
fn over_tls_it_is_a_connection_more() {
    let server = Server::start_secure("");
    let mut sessions =
        SessionOptions::new(server.address, Server::login(), support::free_address());
    (sessions.sessions, sessions.transport) = (50, Transport::Tls);
    let footprint =
        measure(&FootprintSpec { sessions, pid: None, channels: false, kernel: None }).unwrap();
    assert_eq!((footprint.process.as_str(), footprint.transport), ("turnpike", Transport::Tls));
    assert_eq!(footprint.after.descriptors - footprint.before.descriptors, 100);
}

#[test]
fn a_process_that_is_not_there_is_told_before_anything_is_opened() {
    let server = Server::start("");
    let sessions = SessionOptions::new(server.address, Server::login(), server.address);
    // Above every system's largest.
    let spec = FootprintSpec { sessions, pid: Some(u32::MAX), channels: false, kernel: None };
    assert!(measure(&spec).unwrap_err().to_string().contains("no process"));
}
