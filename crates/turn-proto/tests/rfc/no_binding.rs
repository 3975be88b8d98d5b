//! A server of TURN alone: RFC 8656 does not ask for Binding, and the operator may switch it off.

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
