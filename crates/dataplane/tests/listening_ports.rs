//! Ports with a listening socket are never relay ports, on the real kernel.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use linux_net::{TcpListener, TcpOptions, UdpOptions, UdpSocket};
use stun_wire::Method;
use turn_proto::{Policy, PortRange, PortRequirement};

use crate::support::data::{Alice, code_of};
use crate::support::{Start, World, policy};

const ANYWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const UDP: u8 = 17;
const TCP: u8 = 6;
/// Insufficient Capacity (RFC 8656 §14.5).
const NO_PORT: Option<u16> = Some(508);

/// Returns rules that relay from one address and only this port.
fn only_port(port: u16) -> Policy {
    let ports = PortRange::new(port, port).unwrap();
    let relay = policy().relay[..1].to_vec();
    Policy { tcp_relaying: true, relay, ports, ..policy() }
}

/// Requests an allocation, and returns the error code if refused.
fn allocate(alice: &mut Alice, protocol: u8) -> Option<u16> {
    code_of(&alice.ask(Method::ALLOCATE, |builder| {
        builder.requested_transport(protocol);
    }))
}

/// Opens a listener as another program of the same user. The listener shares its port, like servers
/// with several processes.
fn foreign_listener() -> TcpListener {
    let long = Duration::from_secs(60);
    let options = TcpOptions {
        reuse_port: true,
        keepalive: long,
        unacknowledged: long,
        backlog: 8,
        device: None,
        free: false,
    };
    TcpListener::bind((ANYWHERE, 0).into(), &options).unwrap()
}

#[test]
fn a_relay_does_not_take_over_a_port_that_another_program_listens_on() {
    let foreign = foreign_listener();
    let port = foreign.local_addr().port();
    let policy = only_port(port);
    let relay = policy.relay[0].local;
    let world = World::start(Start { policy, ..Start::default() });
    let mut alice = Alice::connect(world.server);
    assert_eq!(allocate(&mut alice, TCP), NO_PORT);
    let victim = TcpStream::connect(SocketAddr::new(relay, port)).unwrap();
    let (_, from) = loop {
        if let Some(accepted) = foreign.accept().unwrap() {
            break accepted;
        }
        std::thread::yield_now();
    };
    assert_eq!(from, victim.local_addr().unwrap());
}

#[test]
fn a_relay_does_not_take_over_a_port_that_another_program_receives_on() {
    let options = UdpOptions { reuse_port: true, ..UdpOptions::default() };
    let (foreign, _) = UdpSocket::bind((ANYWHERE, 0).into(), &options).unwrap();
    let policy = only_port(foreign.local_addr().port());
    let world = World::start(Start { policy, ..Start::default() });
    let mut alice = Alice::connect(world.server);
    assert_eq!(allocate(&mut alice, UDP), NO_PORT);
}

/// No port of a listener is ever drawn, even if the kernel would accept the port. Later rules
/// exclude these ports as well.
#[test]
fn ports_of_the_servers_own_listeners_are_never_drawn() {
    let world = World::start(Start { listen: ANYWHERE, ..Start::default() });
    let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), world.server.port());
    let policy = only_port(at.port());
    world.apply(policy.clone());
    assert!(policy.relay[0].ports.claim(policy.ports, PortRequirement::Any, 0).is_none());
    assert_eq!(policy.relay[0].ports.used(), 0, "it is no relay's");
    for protocol in [UDP, TCP] {
        let mut alice = Alice::connect(at);
        assert_eq!(allocate(&mut alice, protocol), NO_PORT, "protocol {protocol}");
    }
}

/// A listener at another address excludes no port.
#[test]
fn a_port_is_free_where_nothing_listens() {
    let world = World::new();
    world.apply(only_port(world.server.port()));
    let mut alice = Alice::connect(world.server);
    assert_eq!(allocate(&mut alice, TCP), None);
}
