//! RFC 8016: a client with a new 5-tuple keeps its allocation. Here both 5-tuples belong to one
//! worker. `rfc8016_workers.rs` has moves between workers.
#![allow(clippy::wildcard_enum_match_arm, reason = "whatever else there will be is a failure")]

use std::net::SocketAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use stun_wire::{AttributeType, IntegrityKind, Method};
use turn_proto::{DropReason, EndReason, Notice, Policy, Refusal};
use turn_types::{AllocationId, Transport};

use crate::support::forge::Forge;
use crate::support::*;

fn mobile() -> Policy {
    Policy { mobility: true, ..policy() }
}

fn world() -> World {
    World::with(mobile())
}

fn ticket_of(reply: &Reply) -> Vec<u8> {
    reply.first(AttributeType::MOBILITY_TICKET).unwrap().to_vec()
}

/// The relayed address of a mobile allocation, and the ticket.
fn allocate(world: &mut World, client: &mut Client) -> (SocketAddr, Vec<u8>) {
    let reply = client.try_allocate(world, |b| {
        b.mobility_ticket(&[]);
    });
    let reply = reply.success();
    (reply.relayed()[0], ticket_of(&reply))
}

fn refresh_by(world: &mut World, client: &mut Client, ticket: &[u8]) -> Reply {
    client.ask(world, Method::REFRESH, |b| {
        b.mobility_ticket(ticket);
    })
}

/// Client with a channel, and the same client at another port after a Refresh by ticket.
struct Moving {
    world: World,
    old: Client,
    new: Client,
    relayed: SocketAddr,
    ticket: Vec<u8>,
}

impl Moving {
    fn new() -> Self {
        let mut world = world();
        let mut old = Client::new(1000);
        let (relayed, ticket) = allocate(&mut world, &mut old);
        old.use_channel(&mut world, 0x4000, PEER);
        let mut new = Client::new(2000);
        let ticket = ticket_of(&refresh_by(&mut world, &mut new, &ticket).success());
        Self { world, old, new, relayed, ticket }
    }

    /// The destination of a peer's datagram.
    fn heard_at(&mut self) -> u16 {
        match self.world.from_peer(self.relayed, PEER, b"to the client") {
            Fate::ToClient { to, .. } => to.port(),
            other => panic!("{other:?}"),
        }
    }
}

/// A connection on which a client is expected may be evicted, because the old path still serves the
/// client.
#[test]
fn one_path_carries_an_allocation_at_a_time() {
    let mut moving = Moving::new();
    let (old, new) = (moving.old.path.five_tuple, moving.new.path.five_tuple);
    let server = &mut moving.world.server;
    assert!(server.serves(&new));
    assert_eq!([old, new].map(|path| server.carries(&path)), [true, false]);
    moving.new.use_channel(&mut moving.world, 0x4000, PEER);
    let server = &mut moving.world.server;
    assert_eq!([old, new].map(|path| server.carries(&path)), [false, true]);
}

/// 8016-3.1.2-01
#[test]
fn an_empty_ticket_asks_for_one() {
    let mut world = world();
    let mut client = Client::new(1000);
    let (_, ticket) = allocate(&mut world, &mut client);
    assert_eq!(ticket.len(), 32, "coturn's client has room for no more");
    assert!(ticket.is_ascii() && !ticket.contains(&0), "and takes it for a string");
    let mut other = Client::new(1001);
    let reply = other.try_allocate(&mut world, |_| ()).success();
    assert!(!reply.has(AttributeType::MOBILITY_TICKET), "who does not ask is given none");
    assert_eq!(refresh_by(&mut world, &mut Client::new(2000), &[]).refused(400).code(), Some(400));
}

/// 8016-3.1.2-02: 405 in both requests, and nothing is made.
#[test]
fn where_clients_may_not_move_they_are_told_so() {
    let mut world = World::new();
    let mut client = Client::new(1000);
    let reply = client.try_allocate(&mut world, |b| {
        b.mobility_ticket(&[]);
    });
    reply.refused(405);
    assert_eq!(world.server.allocation_count(), 0);
    client.allocate(&mut world);
    refresh_by(&mut world, &mut client, &[7; 32]).refused(405);
    refresh_by(&mut world, &mut Client::new(2000), &[7; 32]).refused(405);
}

/// 8016-3.1.2-03
#[test]
fn an_allocate_with_a_ticket_in_it_is_malformed() {
    let mut world = world();
    let mut client = Client::new(1000);
    let reply = client.try_allocate(&mut world, |b| {
        b.mobility_ticket(&[1; 16]);
    });
    reply.refused(400);
}

/// 8016-6-01: a ticket without authentication gets 401, and an open relay refuses mobility with
/// 405.
#[test]
fn a_ticket_alone_is_no_credential() {
    let mut moving = Moving::new();
    let request = Forge::empty(&mut moving.new, Method::REFRESH)
        .with(AttributeType::MOBILITY_TICKET, moving.ticket.clone())
        .bare();
    let reply = Client::new(3000).exchange(&mut moving.world, &request);
    assert_eq!((reply.code(), reply.sealed), (Some(401), false));

    let mut policy = mobile();
    policy.auth.open = true;
    let mut world = World::with(policy);
    let mut client = Client::new(1000);
    let request = Forge::empty(&mut client, Method::ALLOCATE)
        .with(AttributeType::REQUESTED_TRANSPORT, [17, 0, 0, 0])
        .with(AttributeType::MOBILITY_TICKET, [])
        .bare();
    assert_eq!(client.exchange(&mut world, &request).code(), Some(405));
}

/// 8016-3.2.2-01, 8016-3.2.2-02: the lifetime starts anew, and permissions and channels remain.
#[test]
fn a_client_keeps_its_allocation_at_another_address() {
    let mut world = world();
    let mut old = Client::new(1000);
    let (relayed, ticket) = allocate(&mut world, &mut old);
    old.bind(&mut world, 0x4000, PEER).success();
    world.advance(secs(250));
    let mut new = Client::at("203.0.113.200:7").sealing(Sealing::Sha256);
    let reply = new.ask(&mut world, Method::REFRESH, |b| {
        b.mobility_ticket(&ticket).lifetime(1200);
    });
    let reply = reply.success();
    assert_eq!(reply.lifetime(), 1200);
    assert_ne!(ticket_of(&reply), ticket);
    let id = world.record().id;
    assert_eq!(new.send_channel(&mut world, 0x4000, b"hi").to_peer(), b"hi");
    assert_eq!(new.send(&mut world, PEER, b"ho").to_peer(), b"ho");
    let heard = world.from_peer(relayed, PEER, b"yo");
    assert!(matches!(&heard, Fate::ToClient { to, .. } if to.port() == 7), "{heard:?}");
    let record = world.record();
    assert_eq!((record.id, record.five_tuple), (id, new.path.five_tuple));
    assert_eq!((world.opened, record.channels), (1, 1));
    world.advance(secs(1000));
    assert_eq!(world.server.allocation_count(), 1);
}

/// 8016-3.2.2-05: make before break.
#[test]
fn data_goes_to_the_old_address_until_the_client_sends_from_the_new_one() {
    let mut moving = Moving::new();
    assert_eq!(moving.heard_at(), 1000);
    // The old 5-tuple remains valid in the other direction, too.
    assert_eq!(moving.old.send_channel(&mut moving.world, 0x4000, b"a").to_peer(), b"a");
    moving.old.permit(&mut moving.world, &[PEER]).success();
    assert_eq!(moving.heard_at(), 1000);
    assert_eq!(moving.new.send_channel(&mut moving.world, 0x4000, b"b").to_peer(), b"b");
    assert_eq!(moving.heard_at(), 2000);
    let left = moving.old.send_channel(&mut moving.world, 0x4000, b"c").dropped();
    assert_eq!(left, DropReason::NoAllocation);
    moving.old.refresh(&mut moving.world, None).refused(437);
    let told = moving.world.notices.iter().any(|notice| {
        matches!(notice, Notice::AllocationMoved { from, to, .. }
            if *from == moving.old.path.five_tuple && *to == moving.new.path.five_tuple)
    });
    assert!(told);
}

/// 8016-3.2.2-05: a Send indication and a request are as good as ChannelData.
#[test]
fn whatever_a_client_sends_from_the_new_address_completes_the_move() {
    let mut moving = Moving::new();
    moving.new.send(&mut moving.world, PEER, b"x").to_peer();
    assert_eq!(moving.heard_at(), 2000);
    let mut moving = Moving::new();
    moving.new.permit(&mut moving.world, &[PEER]).success();
    assert_eq!(moving.heard_at(), 2000);
}

/// 8016-3.2.2-07: a retransmission gets the response again, and the ticket in the request is
/// otherwise invalid.
#[test]
fn a_retransmission_is_answered_alike_and_the_old_ticket_is_void() {
    let mut world = world();
    let mut old = Client::new(1000);
    let (relayed, ticket) = allocate(&mut world, &mut old);
    old.permit(&mut world, &[PEER]).success();
    let mut new = Client::new(2000);
    let request = new.sealed(&mut world, Method::REFRESH, |b| {
        b.mobility_ticket(&ticket);
    });
    let first = new.exchange(&mut world, &request).success();
    world.advance(secs(1));
    let again = new.exchange(&mut world, &request).success();
    assert_eq!(first.bytes, again.bytes);
    let heard = world.from_peer(relayed, PEER, b"x");
    assert!(matches!(&heard, Fate::ToClient { to, .. } if to.port() == 1000), "not yet: {heard:?}");

    refresh_by(&mut world, &mut Client::new(3000), &ticket).refused(400);
    // On the 5-tuple of its first use the ticket is valid for another transaction, if the response
    // was lost.
    let anew = refresh_by(&mut world, &mut new, &ticket).success();
    refresh_by(&mut world, &mut Client::new(3000), &ticket_of(&first)).refused(400);
    refresh_by(&mut world, &mut Client::new(3000), &ticket_of(&anew)).success();
}

/// 8016-3.2.2-03, 8016-3.3-01: an invalid ticket has no effect.
#[test]
fn a_bad_ticket_is_refused_and_changes_nothing() {
    let mut world = world();
    let mut old = Client::new(1000);
    let (_, ticket) = allocate(&mut world, &mut old);
    let before = world.record();
    let mut new = Client::new(2000);
    for at in 0..ticket.len() {
        let mut altered = ticket.clone();
        altered[at] ^= 1;
        refresh_by(&mut world, &mut new, &altered).refused(400);
    }
    for other in [vec![0; ticket.len()], vec![7; 5], ticket[1..].to_vec()] {
        refresh_by(&mut world, &mut new, &other).refused(400);
    }
    let shown = world.record();
    assert_eq!((shown.expires, shown.five_tuple), (before.expires, before.five_tuple));
    // A ticket of a server with another key, and a ticket of an ended allocation.
    let mut policy = mobile();
    policy.ticket_key = turn_types::Secret::new([8; 32]);
    let (_, foreign) = allocate(&mut World::with(policy), &mut Client::new(1000));
    refresh_by(&mut world, &mut new, &foreign).refused(400);
    old.refresh(&mut world, Some(0)).success();
    refresh_by(&mut world, &mut new, &ticket).refused(400);
}

/// 8016-3.2.2-04
#[test]
fn the_ticket_of_another_user_is_refused() {
    let mut world = world();
    let mut old = Client::new(1000);
    let (_, ticket) = allocate(&mut world, &mut old);
    let before = world.record();
    refresh_by(&mut world, &mut Client::new(2000).as_bob(), &ticket).refused(441);
    assert_eq!(world.record().expires, before.expires);
    refresh_by(&mut world, &mut Client::new(2001), &ticket).success();
}

/// 8016-3.2.2-06: on the allocation's own 5-tuple, a Refresh by ticket is an ordinary Refresh. On
/// another allocation's 5-tuple it is refused.
#[test]
fn a_five_tuple_belongs_to_one_allocation() {
    let mut world = world();
    let (mut one, mut two) = (Client::new(1000), Client::new(1001));
    let (_, first) = allocate(&mut world, &mut one);
    let (_, second) = allocate(&mut world, &mut two);
    refresh_by(&mut world, &mut two, &first).refused(437);
    let next = ticket_of(&refresh_by(&mut world, &mut one, &first).success());
    assert_ne!(next, first);
    assert_eq!(world.server.allocation_count(), 2);
    // The place where one is expected is taken as well.
    let mut new = Client::new(2000);
    refresh_by(&mut world, &mut new, &next).success();
    refresh_by(&mut world, &mut new, &second).refused(437);
    assert_eq!(new.try_allocate(&mut world, |_| ()).code(), Some(437));
}

#[test]
fn a_client_may_change_its_mind() {
    let mut moving = Moving::new();
    let mut other = Client::new(3000);
    refresh_by(&mut moving.world, &mut other, &moving.ticket).success();
    let gone = moving.new.send_channel(&mut moving.world, 0x4000, b"x").dropped();
    assert_eq!(gone, DropReason::NoAllocation);
    assert_eq!(moving.heard_at(), 1000);
    other.send_channel(&mut moving.world, 0x4000, b"x").to_peer();
    assert_eq!(moving.heard_at(), 3000);
}

/// LIFETIME 0 by ticket deletes an allocation that the client can no longer reach.
#[test]
fn an_allocation_can_be_given_back_from_elsewhere() {
    let mut world = world();
    let (_, ticket) = allocate(&mut world, &mut Client::new(1000));
    let mut new = Client::new(2000);
    let reply = new.ask(&mut world, Method::REFRESH, |b| {
        b.mobility_ticket(&ticket).lifetime(0);
    });
    let reply = reply.success();
    assert_eq!((reply.lifetime(), reply.has(AttributeType::MOBILITY_TICKET)), (0, false));
    assert_eq!(world.ends(), [EndReason::Deleted]);
    assert_eq!(new.try_allocate(&mut world, |_| ()).code(), None, "the 5-tuple is free");
}

/// A mobile allocation survives its connection, with its ports and quota.
#[test]
fn an_allocation_outlives_its_connection() {
    let mut policy = mobile();
    policy.quotas.allocations_per_user = 1;
    let mut world = World::with(policy);
    let mut old = Client::new(1000).over(Transport::Tcp);
    let (relayed, ticket) = allocate(&mut world, &mut old);
    old.bind(&mut world, 0x4000, PEER).success();
    world.server.close(world.now, &old.path.five_tuple);
    world.carry_out();
    world.check();
    assert_eq!(world.from_peer(relayed, PEER, b"x").dropped(), DropReason::StreamClosed);
    let mut other = Client::new(1001);
    other.try_allocate(&mut world, |_| ()).refused(486);

    let mut new = Client::new(2000);
    let next = ticket_of(&refresh_by(&mut world, &mut new, &ticket).success());
    new.send_channel(&mut world, 0x4000, b"x").to_peer();
    assert_eq!(world.from_peer(relayed, PEER, b"x").to_client()[4..], *b"x");
    // A new connection may have the 5-tuple of the old connection, and the two are not confused.
    assert_eq!(old.refresh(&mut world, None).code(), Some(437));
    new.refresh(&mut world, Some(0)).success();
    refresh_by(&mut world, &mut Client::new(3000), &next).refused(400);
    assert_eq!(world.server.allocation_count(), 0);
}

/// The end of the old connection ends the wait (RFC 8016 §3.2.2). The end of the new connection
/// does not affect the old connection.
#[test]
fn the_end_of_either_connection_leaves_the_other() {
    for old_ends in [true, false] {
        let mut world = world();
        let mut old = Client::new(1000).over(Transport::Tcp);
        let (relayed, ticket) = allocate(&mut world, &mut old);
        old.permit(&mut world, &[PEER]).success();
        let mut new = Client::new(2000).over(Transport::Tcp);
        refresh_by(&mut world, &mut new, &ticket).success();
        let (ended, left) = if old_ends { (&old, &new) } else { (&new, &old) };
        world.server.close(world.now, &ended.path.five_tuple);
        world.carry_out();
        let heard = world.from_peer(relayed, PEER, b"x");
        let port = left.path.five_tuple.client.port();
        assert!(matches!(&heard, Fate::ToClient { to, .. } if to.port() == port), "{heard:?}");
    }
}

/// Allocations without a client expire as usual.
#[test]
fn one_that_nobody_comes_back_for_ends_in_time() {
    let mut world = world();
    let mut old = Client::new(1000).over(Transport::Tcp);
    allocate(&mut world, &mut old);
    world.server.close(world.now, &old.path.five_tuple);
    world.carry_out();
    world.advance(secs(602));
    assert_eq!(world.ends(), [EndReason::Expired]);
}

/// A ticket is void after the expiry of the allocation, even before the server reclaims the
/// allocation.
#[test]
fn a_ticket_expires_with_its_allocation() {
    for (age, code) in [(599, None), (600, Some(400))] {
        let mut world = world();
        let (_, ticket) = allocate(&mut world, &mut Client::new(1000));
        world.advance_silently(secs(age));
        let reply = refresh_by(&mut world, &mut Client::new(2000), &ticket);
        assert_eq!(reply.code(), code, "after {age} s");
    }
}

/// A ticket does not renew a relayed address that expires at that moment.
#[test]
fn a_ticket_refreshes_no_expired_half() {
    let mut world = world();
    let mut old = Client::new(1000);
    let reply = old.try_allocate(&mut world, |b| {
        b.mobility_ticket(&[]);
        b.additional_address_family(2);
    });
    let reply = reply.success();
    let (ticket, relayed) = (ticket_of(&reply), reply.relayed());
    old.refresh_half(&mut world, 1, 1200).success();
    world.advance_silently(secs(599));
    old.permit(&mut world, &[PEER, PEER_V6]).success();
    world.advance_silently(secs(1));
    refresh_by(&mut world, &mut Client::new(2000), &ticket).success();
    world.from_peer(relayed[0], PEER, b"x").to_client();
    world.from_peer(relayed[1], PEER_V6, b"x").dropped();
}

/// Routes follow: the old 5-tuple's are withdrawn before the new one's are installed.
#[test]
fn routes_move_with_the_client() {
    let mut moving = Moving::new();
    let of =
        |world: &World| world.routes.values().map(|route| route.five_tuple).collect::<Vec<_>>();
    assert_eq!(of(&moving.world), [moving.old.path.five_tuple]);
    moving.new.send_channel(&mut moving.world, 0x4000, b"x").to_peer();
    assert_eq!(of(&moving.world), [moving.new.path.five_tuple]);
    // A fast path cannot forward to a stream, but can deliver the data to the worker.
    let mut stream = Client::new(3000).over(Transport::Tcp);
    refresh_by(&mut moving.world, &mut stream, &moving.ticket).success();
    stream.permit(&mut moving.world, &[PEER]).success();
    assert_eq!(of(&moving.world), [stream.path.five_tuple]);
}

/// 8016-3.3-01: a ticket shows nothing of its client, and two are never alike.
#[test]
fn tickets_are_opaque() {
    let mut world = world();
    let (_, one) = allocate(&mut world, &mut Client::new(1000));
    let (_, two) = allocate(&mut world, &mut Client::new(1001));
    let ids: Vec<AllocationId> = world.server.allocations().map(|record| record.id).collect();
    for (ticket, other) in [(&one, &two), (&two, &one)] {
        assert!(ticket.windows(8).all(|bytes| !other.windows(8).any(|same| same == bytes)));
        let bytes = BASE64_STANDARD_NO_PAD.decode(ticket).unwrap();
        for id in &ids {
            assert!(!bytes.windows(8).any(|bytes| bytes == id.0.to_be_bytes()));
        }
    }
}

/// A moving client must be authentic. A wrong password is refused before the ticket is verified.
#[test]
fn a_wrong_password_moves_nothing() {
    let mut world = world();
    let (_, ticket) = allocate(&mut world, &mut Client::new(1000));
    let mut thief = Client::new(2000);
    thief.password = "guessed";
    let key = thief.key();
    let request = Forge::new(&mut thief, &mut world, Method::REFRESH)
        .with(AttributeType::MOBILITY_TICKET, ticket)
        .sealed(IntegrityKind::Sha1, &key);
    assert_eq!(thief.exchange(&mut world, &request).code(), Some(401));
}

/// A move by ticket is no way around the limit of connections with an allocation.
#[test]
fn a_client_moves_to_a_connection_where_it_could_allocate_by_it() {
    let mut policy = mobile();
    policy.quotas.stream_allocations = 2;
    let mut world = World::with(policy);
    let client = |port, transport| Client::new(port).over(transport);
    let [(_, first), (_, second), (relayed, third)] =
        [1000, 1001, 1002].map(|port| allocate(&mut world, &mut Client::new(port)));
    let [first, _] = [(2000, first), (2001, second)].map(|(port, ticket)| {
        let mut new = client(port, Transport::Tls);
        let next = ticket_of(&refresh_by(&mut world, &mut new, &ticket).success());
        new.use_channel(&mut world, 0x4000, PEER);
        next
    });
    refresh_by(&mut world, &mut client(2002, Transport::Tcp), &third).refused(508);
    assert_eq!(world.refusals().last(), Some(&Refusal::ConnectionShare));
    assert!(world.is_open(relayed), "it stays where it is");
    // The ticket is still valid over UDP, and can delete the allocation.
    let third = ticket_of(&refresh_by(&mut world, &mut Client::new(3002), &third).success());
    let ends = client(2002, Transport::Tcp).ask(&mut world, Method::REFRESH, |b| {
        b.mobility_ticket(&third).lifetime(0);
    });
    ends.success();
    assert!(!world.is_open(relayed));
    // A client that has left its connection releases the slot for another client.
    let (_, other) = allocate(&mut world, &mut Client::new(1003));
    refresh_by(&mut world, &mut client(2003, Transport::Tcp), &other).refused(508);
    let mut back = Client::new(3000);
    refresh_by(&mut world, &mut back, &first).success();
    refresh_by(&mut world, &mut client(2003, Transport::Tcp), &other).refused(508);
    back.use_channel(&mut world, 0x4000, PEER);
    refresh_by(&mut world, &mut client(2003, Transport::Tcp), &other).success();
}

/// Otherwise an account that passes through a network would use up the allocations of the remaining
/// clients.
#[test]
fn an_allocation_counts_where_its_client_is() {
    let mut policy = mobile();
    policy.quotas.allocations_per_customer = 2;
    let mut world = World::with(policy);
    let client = |last: u8, port: u16| Client::at(&format!("198.51.100.{last}:{port}"));
    let tickets: Vec<_> =
        (0..2).map(|number| allocate(&mut world, &mut client(1, 1000 + number)).1).collect();
    client(1, 1009).try_allocate(&mut world, |_| ()).refused(486);
    let mut there = tickets.iter().zip(2000..).map(|(ticket, port)| {
        let mut there = client(2, port);
        refresh_by(&mut world, &mut there, ticket).success();
        there.use_channel(&mut world, 0x4000, PEER);
        there
    });
    let _there: Vec<_> = there.by_ref().collect();
    let (_, third) = allocate(&mut world, &mut client(1, 1010));
    client(2, 2009).try_allocate(&mut world, |_| ()).refused(486);
    refresh_by(&mut world, &mut client(2, 2010), &third).refused(486);
    assert_eq!(world.refusals().last(), Some(&Refusal::AddressQuota));
    refresh_by(&mut world, &mut client(1, 1011), &third).success();
}
