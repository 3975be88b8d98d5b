//! RFC 8656 §8: Refresh.

use stun_wire::*;
use turn_proto::*;
use turn_types::IpMeta;

use crate::support::*;

#[test]
fn a_family_that_the_allocation_does_not_have_gets_443() {
    // 8656-8.2-01
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    client.refresh_half(&mut world, 2, 600).refused(443);
    client.refresh_half(&mut world, 2, 0).refused(443);
    client.refresh_half(&mut world, 7, 600).refused(443);
    client.refresh_half(&mut world, 1, 600).success();
    let mut client = Client::new(2);
    client.allocate_v6(&mut world);
    client.refresh_half(&mut world, 1, 600).refused(443);
}

#[test]
fn lifetime_zero_deletes_at_once() {
    // 8656-8.2-02
    let mut world = World::new();
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    client.bind(&mut world, 0x4000, PEER).success();
    assert_eq!(client.refresh(&mut world, Some(0)).success().lifetime(), 0);
    assert!(!world.is_open(relayed));
    let fate = client.send_channel(&mut world, 0x4000, b"x");
    assert_eq!(fate.dropped(), DropReason::NoAllocation);
    assert_eq!(world.ends(), [EndReason::Deleted]);
    client.refresh(&mut world, None).refused(437);
    client.allocate(&mut world);
    let fate = client.send_channel(&mut world, 0x4000, b"x");
    assert_eq!(fate.dropped(), DropReason::ChannelNotBound, "the new one begins empty");
}

#[test]
fn the_port_is_taken_until_its_socket_is_to_be_closed() {
    // 8656-6-01: the next owner of the port must be able to bind it
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    let request = client.sealed(&mut world, Method::REFRESH, |builder| {
        builder.lifetime(0);
    });
    let mut reply = [0; REPLY_MAX];
    let now = world.now;
    world.server.handle_client(now, &client.path, IpMeta::DEFAULT, &request, &mut reply);
    assert_eq!(world.server.allocation_count(), 0);
    assert_eq!(world.policy.relay[0].ports.used(), 1);
    assert!(matches!(world.server.poll_command(), Some(Command::CloseRelay { .. })));
    assert_eq!(world.policy.relay[0].ports.used(), 0);
}

#[test]
fn lifetime_is_granted_as_in_allocate() {
    // 8656-8.2-03
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    for (asked, granted) in
        [(Some(1200), 1200), (None, 600), (Some(1), 600), (Some(u32::MAX), 3600)]
    {
        assert_eq!(client.refresh(&mut world, asked).success().lifetime(), granted);
        let record = world.record();
        assert_eq!(record.expires, world.now.instant + secs(granted.into()), "{asked:?}");
    }
}

#[test]
fn a_user_who_is_gone_prolongs_nothing_and_gives_back() {
    let mut world = World::new();
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    world.users.remove("alice");
    client.permit(&mut world, &[PEER]).success();
    assert_eq!(client.refresh(&mut world, None).code(), Some(401));
    assert!(world.is_open(relayed), "what was granted stays");
    assert_eq!(client.refresh(&mut world, Some(0)).success().lifetime(), 0);

    let mut client = Client::new(2);
    world.users.insert("alice", "wonderland");
    client.allocate(&mut world);
    world.users.insert("alice", "another password");
    assert_eq!(client.refresh(&mut world, Some(600)).code(), Some(401));
}

#[test]
fn a_shared_secret_that_is_gone_prolongs_nothing() {
    let secret = |text: &[u8]| SharedSecret {
        name: "web".into(),
        secret: turn_types::Secret::new(text.into()),
    };
    let name = "1900003600:alice";
    let mut policy = policy();
    policy.auth.secrets.push(secret(b"0123456789abcdef"));
    let mut world = World::with(policy.clone());
    let mut client = Client::new(1);
    client.user = name;
    client.password = time_limited_password(b"0123456789abcdef", name).leak();
    client.allocate(&mut world);
    client.refresh(&mut world, None).success();

    policy.auth.secrets = vec![secret(b"fedcba9876543210")];
    world.apply(policy);
    let _earlier = world.refusals();
    assert_eq!(client.refresh(&mut world, None).code(), Some(401));
    assert_eq!(world.refusals(), [Refusal::WrongSecret]);
    client.permit(&mut world, &[PEER]).success();
    let mut newcomer = Client::new(2);
    (newcomer.user, newcomer.password) = (client.user, client.password);
    assert_eq!(newcomer.try_allocate(&mut world, |_| ()).code(), Some(401));
    assert_eq!(world.refusals().pop(), Some(Refusal::WrongSecret), "not: unknown user");
}

#[test]
fn an_outage_of_the_user_database_ends_no_allocation() {
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    world.no_database = true;
    assert_eq!(client.refresh(&mut world, Some(1200)).success().lifetime(), 1200);
}

#[test]
fn a_refresh_may_shorten() {
    let mut world = World::new();
    let mut client = Client::new(1);
    let relayed = client.try_allocate(&mut world, |b| {
        b.lifetime(3600);
    });
    let relayed = relayed.relayed()[0];
    client.refresh(&mut world, Some(600)).success();
    world.advance(secs(601));
    assert!(!world.is_open(relayed));
}

#[test]
fn without_a_family_both_halves_are_meant() {
    // 8656-8.1-01
    let mut world = World::new();
    let mut client = Client::new(1);
    let (v4, v6) = client.allocate_both(&mut world);
    client.refresh(&mut world, Some(1800)).success();
    world.advance(secs(1799));
    assert!(world.is_open(v4) && world.is_open(v6));
    client.refresh(&mut world, Some(0)).success();
    assert!(!world.is_open(v4) && !world.is_open(v6));
}

#[test]
fn with_a_family_only_that_half_is_deleted() {
    // 8656-8.1-02
    let mut world = World::new();
    let mut client = Client::new(1);
    let (v4, v6) = client.allocate_both(&mut world);
    client.bind(&mut world, 0x4000, PEER).success();
    client.bind(&mut world, 0x4001, PEER_V6).success();
    client.refresh_half(&mut world, 2, 0).success();
    assert!(world.is_open(v4) && !world.is_open(v6));
    client.send_channel(&mut world, 0x4000, b"x").to_peer();
    world.from_peer(v4, PEER, b"x").to_client();
    let gone = client.send_channel(&mut world, 0x4001, b"x");
    assert_eq!(gone.dropped(), DropReason::ChannelNotBound);
    assert_eq!(client.send(&mut world, PEER_V6, b"x").dropped(), DropReason::PeerFamily);
    client.permit(&mut world, &[PEER_V6]).refused(443);
    client.refresh_half(&mut world, 2, 600).refused(443);
    client.refresh_half(&mut world, 1, 0).success();
    assert_eq!(world.ends(), [EndReason::Deleted]);
    client.refresh(&mut world, None).refused(437);
}

#[test]
fn with_a_family_only_that_half_is_prolonged() {
    // 8656-8.1-02
    let mut world = World::new();
    let mut client = Client::new(1);
    let (v4, v6) = client.allocate_both(&mut world);
    client.refresh_half(&mut world, 1, 1800).success();
    world.advance(secs(601));
    assert!(world.is_open(v4) && !world.is_open(v6));
}

#[test]
fn a_repeated_deletion_gets_437() {
    // 8656-8.2-04
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    let request = client.sealed(&mut world, Method::REFRESH, |builder| {
        builder.lifetime(0);
    });
    client.exchange(&mut world, &request).success();
    client.exchange(&mut world, &request).refused(437);
}

#[test]
fn malformed_values_get_400_and_change_nothing() {
    // 8656-18.2-01, 8656-18.6-01
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    for (kind, value) in [
        (AttributeType::LIFETIME, &[0, 0][..]),
        (AttributeType::LIFETIME, &[0; 8]),
        (AttributeType::REQUESTED_ADDRESS_FAMILY, &[1]),
    ] {
        let reply = client.ask(&mut world, Method::REFRESH, |builder| {
            builder.attribute(kind, value);
        });
        reply.refused(400);
    }
    client.refresh(&mut world, None).success();
}

#[test]
fn a_new_policy_counts_from_the_next_refresh() {
    let mut world = World::new();
    let mut client = Client::new(1);
    client.allocate(&mut world);
    let mut policy = world.policy.clone();
    policy.lifetimes.allocation_max = secs(1000);
    world.apply(policy);
    assert_eq!(client.refresh(&mut world, Some(3600)).success().lifetime(), 1000);
}
