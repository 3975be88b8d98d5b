//! coturn's peer, which sends back what it receives.

use std::net::IpAddr;

use test_support::eventually;

use crate::{Host, Lab, Running};

/// Port of the peer.
pub const ECHO_PORT: u16 = 3480;

/// Starts a peer at an address of the peers' host, and waits until it receives: not all clients
/// retransmit what is lost before.
///
/// # Panics
/// `turnutils_peer` cannot be started, or does not bind its port.
#[must_use]
pub fn echo_peer(lab: &Lab, ip: IpAddr) -> Running {
    let (port, at) = (ECHO_PORT.to_string(), ip.to_string());
    let mut command = lab.command(Host::Peer, "turnutils_peer");
    let peer = Running::start(command.args(["-p", &port, "-L", &at]));
    let sockets = || lab.run(Host::Peer, "ss", &["-Huln", &format!("sport = :{port}")]);
    eventually("the peer listens", || sockets().contains(&at));
    peer
}
