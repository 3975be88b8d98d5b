//! The history in the record of an allocation: refusals, drops and served requests.

use turn_proto::*;

use crate::support::*;

const FORBIDDEN: &str = "127.0.0.1:9";

#[test]
fn a_record_has_refusals_and_drops_by_reason() {
    let mut world = World::new();
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    client.permit(&mut world, &[PEER]).success();
    client.permit(&mut world, &[FORBIDDEN]).refused(403);
    client.permit(&mut world, &[FORBIDDEN]).refused(403);
    client.bind(&mut world, 0x3FFF, PEER).refused(400);
    client.send_channel(&mut world, 0x4000, b"x").dropped();
    client.send(&mut world, "192.0.2.11:7", b"x").dropped();
    world.from_peer(relayed, "192.0.2.11:7", b"x").dropped();

    let record = world.record();
    let refusals = [(Refusal::PeerForbidden, 2), (Refusal::ChannelNumber, 1)];
    assert_eq!(record.history.refusals, refusals);
    let drops = [(DropReason::NoPermission, 2), (DropReason::ChannelNotBound, 1)];
    assert_eq!(record.history.drops, drops);
    assert_eq!(record.traffic.dropped_packets, 3);
}

#[test]
fn a_record_has_the_requests_that_were_served_and_their_latest_time() {
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    assert_eq!(world.record().history, SessionHistory::default());
    client.refresh(&mut world, Some(600)).success();
    world.advance(secs(100));
    client.refresh(&mut world, Some(600)).success();
    let refreshed = world.now.instant;
    world.advance(secs(100));
    client.permit(&mut world, &[PEER]).success();
    client.bind(&mut world, 0x4000, PEER).success();

    let SessionHistory { refreshes, permissions, channels, .. } = world.record().history;
    let whole_second = |served: Option<ServedRequests>| {
        let served = served.unwrap();
        (served.count, (refreshed - served.latest).as_secs())
    };
    assert_eq!(whole_second(refreshes), (2, 0));
    assert!(refreshes.unwrap().latest <= refreshed);
    assert_eq!((permissions.unwrap().count, channels.unwrap().count), (1, 1));
    assert!(permissions.unwrap().latest > refreshed);
}

/// A notice of each Refresh allocates memory, so only drivers that enable the notice get it.
#[test]
fn refreshes_are_told_to_those_who_ask() {
    for asks in [false, true] {
        let mut world = World::with(Policy { tell_refreshes: asks, ..policy() });
        let mut client = Client::new(1000);
        client.allocate(&mut world);
        world.refreshed();
        world.advance(secs(100));
        client.refresh(&mut world, Some(600)).success();
        let told: Vec<_> = world.refreshed();
        assert_eq!(told.len(), usize::from(asks));
        if let [record] = &told[..] {
            assert_eq!(record.expires, world.now.instant + secs(600));
        }
        client.refresh(&mut world, Some(0)).success();
        assert!(world.refreshed().is_empty(), "that is an end");
    }
}
