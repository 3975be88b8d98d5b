//! Ports that clients have reserved (EVEN-PORT, RFC 8656 §7.2) remain reserved in the successor.

use std::net::SocketAddr;

use state_format::{Reader, Value as _, Writer};
use turn_proto::{Policy, ReservedPort};

use super::takeover::next;
use crate::support::*;

/// The port after an even port remains reserved for its client through a hand-over, and no longer
/// than without a hand-over.
#[test]
fn reserved_ports_go_on() {
    let mut old = World::new();
    let reserve = |world: &mut World, port| {
        let reply = Client::new(port).try_allocate(world, |b| _ = b.even_port(true)).success();
        (reply.relayed()[0], reply.token().unwrap())
    };
    let (first, token) = reserve(&mut old, 1);
    let ports: Vec<ReservedPort> = {
        let mut out = Writer::new();
        old.server.reserved_ports().write(&mut out);
        Reader::new(&out.into_bytes()).last().unwrap()
    };
    assert_eq!(ports.len(), 1);
    assert!(!format!("{ports:?}").contains(&format!("{token:?}")), "it is a secret");
    let next_port = SocketAddr::new(first.ip(), first.port() + 1);
    let redeem = |world: &mut World, port| {
        Client::new(port).try_allocate(world, |b| _ = b.reservation_token(token))
    };

    let mut new = next(&old, policy());
    for _ in 0..2 {
        new.server.reserve_again(new.now, &ports[0]);
    }
    assert_eq!(redeem(&mut new, 2).success().relayed(), [next_port]);
    redeem(&mut new, 3).refused(508);
    new.server.reserve_again(new.now, &ports[0]);
    redeem(&mut new, 3).refused(508);

    let mut late = next(&old, policy());
    late.server.reserve_again(late.now, &ports[0]);
    late.advance(secs(30));
    redeem(&mut late, 2).refused(508);
    late.server.reserve_again(late.now, &ports[0]);
    redeem(&mut late, 2).refused(508);

    let elsewhere = Policy { relay: Vec::new(), ..policy() };
    let mut other = next(&old, elsewhere);
    other.server.reserve_again(other.now, &ports[0]);
    assert_eq!(other.server.reserved_ports().len(), 0);
}
