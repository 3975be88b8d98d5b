//! A server of TURN only: RFC 8656 does not require Binding, and the operator may disable it. A
//! server of Binding only.

use stun_wire::Method;
use turn_proto::{DropReason, Policy};

use crate::support::*;

#[test]
fn binding_is_dropped_and_turn_is_served() {
    let mut world = World::with(Policy { binding: false, ..policy() });
    let mut client = Client::new(1000);
    let drops = |world: &mut World, client: &mut Client| {
        let request = client.bare(Method::BINDING, |_| ());
        let fate = world.from_client(&client.path, &request);
        assert_eq!(fate.dropped(), DropReason::UnexpectedMethod);
    };
    drops(&mut world, &mut client);
    client.allocate(&mut world);
    drops(&mut world, &mut client);
}

#[test]
fn turn_is_dropped_and_binding_is_served() {
    let mut world = World::with(Policy { stun_only: true, tcp_relaying: true, ..policy() });
    let mut client = Client::new(1000);
    for method in [
        Method::ALLOCATE,
        Method::REFRESH,
        Method::CREATE_PERMISSION,
        Method::CHANNEL_BIND,
        Method::CONNECT,
        Method::CONNECTION_BIND,
    ] {
        let request = client.bare(method, |_| ());
        let fate = world.from_client(&client.path, &request);
        assert_eq!(fate.dropped(), DropReason::UnexpectedMethod, "{method:?}");
    }
    let request = client.bare(Method::BINDING, |_| ());
    assert_eq!(client.exchange(&mut world, &request).code(), None);
}
