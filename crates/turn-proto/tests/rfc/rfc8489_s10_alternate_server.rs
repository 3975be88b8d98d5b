//! RFC 8489 §§10, 14.8: redirection of clients.

use std::net::SocketAddr;

use stun_wire::{AttributeType, Method, value};
use turn_proto::{AlternateServers, Refusal};
use turn_types::Transport;

use crate::support::forge::Forge;
use crate::support::*;

const V4: &str = "203.0.113.99:3478";
const V6: &str = "[2001:db8:99::9]:3478";

fn redirecting(v4: Option<&str>, v6: Option<&str>) -> World {
    let mut policy = policy();
    policy.alternates = AlternateServers {
        domain: Some("other.example.org".to_owned()),
        ..AlternateServers::of([v4, v6].into_iter().flatten().map(addr).collect())
    };
    World::with(policy)
}

/// Every ALTERNATE-SERVER in order; not XORed (8489-14.15-01).
fn alternates(reply: &Reply) -> Vec<SocketAddr> {
    let message = reply.message();
    let values = message.attributes().filter(|a| a.kind == AttributeType::ALTERNATE_SERVER);
    values.map(|attribute| value::address(attribute.value).unwrap()).collect()
}

/// 8489-10-01, 8489-10-02, 8489-14.8-02, 8489-14.15-01, 8656-7.2-18: the request's own family
/// first, then the other, under integrity.
#[test]
fn a_client_is_sent_to_a_server_of_its_own_family_first() {
    for sealing in [Sealing::Md5, Sealing::Sha256] {
        let mut world = redirecting(Some(V4), Some(V6));
        let mut client = Client::new(1000).sealing(sealing);
        let reply = client.try_allocate(&mut world, |_| ()).refused(300);
        assert_eq!(alternates(&reply), [addr(V4), addr(V6)]);
        let mut client = Client::v6(1000).sealing(sealing);
        let reply = client.try_allocate(&mut world, |_| ()).refused(300);
        assert_eq!(alternates(&reply), [addr(V6), addr(V4)]);
        assert_eq!(world.refusals().pop(), Some(Refusal::Redirected));
        assert_eq!(world.server.allocation_count(), 0);
    }
}

/// 8489-10-01: without an alternate of the client's family there is nowhere to send it.
#[test]
fn a_client_of_a_family_without_alternate_is_served() {
    let mut world = redirecting(Some(V4), None);
    Client::v6(1000).try_allocate(&mut world, |_| ()).success();
    let reply = Client::new(1000).try_allocate(&mut world, |_| ()).refused(300);
    assert_eq!(alternates(&reply), [addr(V4)]);
}

/// 8489-14.8-01: clients without credentials or with wrong credentials are not redirected.
#[test]
fn only_who_proved_the_password_is_redirected() {
    let mut world = redirecting(Some(V4), Some(V6));
    let mut client = Client::new(1000);
    let bare = Forge::empty(&mut client, Method::ALLOCATE)
        .with(AttributeType::REQUESTED_TRANSPORT, [17, 0, 0, 0])
        .bare();
    assert_eq!(client.exchange(&mut world, &bare).code(), Some(401));
    let half = Forge::new(&mut client, &mut world, Method::ALLOCATE)
        .without(AttributeType::USERNAME)
        .sealed_both(&client.key());
    assert_eq!(client.exchange(&mut world, &half).code(), Some(400));
    let mut wrong = client.clone();
    wrong.password = "wrong";
    assert_eq!(wrong.try_allocate(&mut world, |_| ()).code(), Some(401));
}

/// 8489-12-02: Binding is served at the requested address.
#[test]
fn binding_is_not_redirected() {
    let mut world = redirecting(Some(V4), Some(V6));
    let mut client = Client::new(1000);
    let request = client.bare(Method::BINDING, |_| ());
    assert_eq!(client.exchange(&mut world, &request).code(), None);
}

/// Existing allocations remain at this server.
#[test]
fn live_allocations_are_not_redirected() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    client.allocate(&mut world);
    let alternates = redirecting(Some(V4), Some(V6)).policy.alternates;
    let redirecting = turn_proto::Policy { alternates, ..world.policy.clone() };
    world.apply(redirecting);
    client.refresh(&mut world, None).success();
    client.permit(&mut world, &[PEER]).success();
    client.bind(&mut world, 0x4000, PEER).success();
    Client::new(1001).try_allocate(&mut world, |_| ()).refused(300);
}

/// 8489-10-03, 8489-14.16-01: the name to expect in the other certificate, if the transport has a
/// certificate.
#[test]
fn the_domain_is_told_where_there_is_a_certificate() {
    for (transport, told) in [
        (Transport::Udp, false),
        (Transport::Tcp, false),
        (Transport::Tls, true),
        (Transport::Dtls, true),
    ] {
        let mut world = redirecting(Some(V4), None);
        let mut client = Client::new(1000).over(transport);
        let reply = client.try_allocate(&mut world, |_| ()).refused(300);
        let domain = reply.first(AttributeType::ALTERNATE_DOMAIN);
        assert_eq!(domain, told.then_some(&b"other.example.org"[..]), "{transport:?}");
    }
}

/// Each transport has separate servers. A transport without a server, and a family without a server
/// of the transport, use the common servers.
#[test]
fn clients_go_to_servers_of_their_transport() {
    let (any, udp, tcp, tls) =
        ("203.0.113.1:1", "203.0.113.2:2", "203.0.113.3:3", "[2001:db8:4::4]:4");
    let mut policy = policy();
    policy.alternates = AlternateServers {
        any: vec![addr(any)],
        udp: vec![addr(udp)],
        tcp: vec![addr(tcp)],
        tls: vec![addr(tls)],
        domain: None,
    };
    for (transport, expected) in [
        (Transport::Udp, &[udp][..]),
        (Transport::Tcp, &[tcp]),
        (Transport::Tls, &[any, tls]),
        (Transport::Dtls, &[any, tls]),
    ] {
        let mut world = World::with(policy.clone());
        let mut client = Client::new(1000).over(transport);
        let reply = client.try_allocate(&mut world, |_| ()).refused(300);
        let expected: Vec<SocketAddr> = expected.iter().copied().map(addr).collect();
        assert_eq!(alternates(&reply), expected, "{transport:?}");
    }
    policy.alternates.any.clear();
    policy.alternates.udp.clear();
    let mut world = World::with(policy);
    Client::new(1000).allocate(&mut world);
    Client::new(1001).over(Transport::Tcp).try_allocate(&mut world, |_| ()).refused(300);
}
