//! Sessions with a real server on the loopback.

use std::net::UdpSocket;
use std::time::Duration;

use crate::support;

use turn_bench::session::{self, Login, Session, SessionOptions};
use turn_bench::traffic::Transport;

use crate::support::{Server, TRANSPORTS};

fn options(server: &Server, sessions: u32) -> (SessionOptions, UdpSocket) {
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let address = peer.local_addr().unwrap();
    let mut options = SessionOptions::new(server.address, Server::login(), address);
    options.sessions = sessions;
    (options, peer)
}

fn refused(options: &SessionOptions) -> String {
    format!("{:#}", session::open(options).unwrap_err())
}

fn send(session: &Session, payload: &[u8]) {
    let mut datagram = [0; 100];
    let len = session.client.write_channel_data(&mut datagram, session.channel, payload).unwrap();
    assert!(session.wire.send(&datagram[..len]).unwrap());
}

#[test]
fn many_open_at_the_same_time_carry_data_and_are_given_back() {
    // As many as the quota allows, twice: the second time only if the first gave all back.
    // Many handshakes come from one address.
    let server = Server::start_secure(
        "[quotas]\nallocations_per_user = 50\n[dtls]\nsessions_per_address = 0\n\
         [tcp]\nconnections_per_address = 0",
    );
    let (mut options, peer) = options(&server, 50);
    for transport in TRANSPORTS.into_iter().flat_map(|transport| [transport; 2]) {
        options.transport = transport;
        let sessions = session::open(&options)
            .unwrap_or_else(|error| panic!("{transport:?}: {error:#}\n{}", server.status()));
        assert_eq!(sessions.len(), 50);
        for (number, session) in sessions.iter().enumerate() {
            send(session, &[u8::try_from(number).unwrap()]);
            let mut payload = [0; 100];
            let (len, from) = peer.recv_from(&mut payload).unwrap();
            assert_eq!((len, usize::from(payload[0]), from), (1, number, session.relayed));
        }
        assert_eq!(session::close(sessions), 0, "not confirmed");
    }
}

#[test]
fn a_quota_is_told_with_what_to_do_and_leaves_nothing_behind() {
    let server = Server::start("[quotas]\nallocations_per_user = 20");
    let (mut options, _peer) = options(&server, 21);
    let said = refused(&options);
    assert!(said.contains("486") && said.contains("quotas.allocations_per_user"), "{said}");
    assert!(said.contains("of 21 sessions"), "{said}");
    options.sessions = 20;
    assert_eq!(session::close(session::open(&options).unwrap()), 0);
}

#[test]
fn a_wrong_secret_is_told_as_such() {
    let server = Server::start("");
    let (mut options, _peer) = options(&server, 3);
    options.login = Login::shared_secret("bench", "another");
    let said = refused(&options);
    assert!(said.contains("0 of 3") && said.contains("401"), "{said}");
    assert!(said.contains("the secret is not the server's"), "{said}");
}

#[test]
fn a_forbidden_peer_is_told_as_such() {
    let server = Server::start("");
    let (mut options, _peer) = options(&server, 1);
    options.peer = "10.0.0.1:9".parse().unwrap();
    let said = refused(&options);
    assert!(said.contains("403") && said.contains("peers.allow"), "{said}");
}

#[test]
fn a_missing_server_is_reported_at_once() {
    let free = support::free_address();
    let mut options = SessionOptions::new(free, Login::password("alice", "p"), free);
    let said = refused(&options);
    assert!(said.contains("is unreachable") && said.contains("running"), "{said}");
    for transport in [Transport::Tcp, Transport::Tls, Transport::Dtls] {
        options.transport = transport;
        let said = refused(&options);
        assert!(said.contains("refused"), "{said}");
    }
}

#[test]
fn a_server_without_tls_is_told_at_once() {
    let server = Server::start("");
    let (mut options, _peer) = options(&server, 2);
    options.transport = Transport::Tls;
    let said = refused(&options);
    assert!(said.contains("0 of 2") && said.contains("serve this transport"), "{said}");
}

#[test]
fn idle_allocations_have_no_channel_and_are_given_back() {
    let server = Server::start("[quotas]\nallocations_per_user = 5\nchannels = 1");
    let (options, _peer) = options(&server, 5);
    for _ in 0..2 {
        let idle = session::open_idle(&options).unwrap();
        assert_eq!(idle.len(), 5);
        assert_eq!(session::close_idle(idle), 0);
    }
}
