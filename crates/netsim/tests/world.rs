//! The world is a function of its seed, and its links misbehave as configured.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on fails the test")]

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use netsim::{Body, Chance, Host, LinkConfig, Nat, NatConfig, NodeId, Outbox, Packet, World};
use turn_types::{Instant, Now};

/// Sends `left` numbered datagrams, one per `every`, and keeps received ones; echoes if configured
/// to.
#[derive(Default)]
struct Talker {
    me: Option<SocketAddr>,
    to: Option<SocketAddr>,
    every: Duration,
    left: u32,
    next: Instant,
    echoes: bool,
    dont_fragment: bool,
    size: usize,
    got: Vec<(Instant, Packet)>,
}

impl Host for Talker {
    fn receive(&mut self, now: Now, packet: Packet, out: &mut Outbox) {
        if self.echoes && matches!(packet.body, Body::Udp(_)) {
            out.send(Packet { src: packet.dst, dst: packet.src, ..packet.clone() });
        }
        self.got.push((now.instant, packet));
    }

    fn wake(&mut self, now: Now, out: &mut Outbox) {
        let mut payload = self.left.to_be_bytes().to_vec();
        payload.resize(self.size.max(4), 0);
        self.left -= 1;
        self.next = now.instant + self.every;
        let mut packet = Packet::udp(self.me.unwrap(), self.to.unwrap(), payload);
        packet.dont_fragment = self.dont_fragment;
        out.send(packet);
    }

    fn next_wake(&self) -> Option<Instant> {
        (self.left > 0).then_some(self.next)
    }
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn sender(count: u32) -> Talker {
    Talker {
        me: Some(addr("192.0.2.1:1000")),
        to: Some(addr("192.0.2.2:2000")),
        every: Duration::from_millis(10),
        left: count,
        ..Talker::default()
    }
}

/// A sender and a receiver on one link; returns the arrivals at each after a minute.
fn over(seed: u64, link: LinkConfig, sender: Talker) -> (World<Talker>, NodeId, NodeId) {
    let mut world = World::new(seed);
    let a = world.add_host(sender);
    let b = world.add_host(Talker::default());
    world.connect(a, b, link);
    world.run_for(Duration::from_secs(60));
    (world, a, b)
}

fn numbers(talker: &Talker) -> Vec<u32> {
    let number = |packet: &Packet| match &packet.body {
        Body::Udp(payload) => u32::from_be_bytes(payload[..4].try_into().unwrap()),
        Body::Icmp(_) => panic!("no errors here"),
    };
    talker.got.iter().map(|(_, packet)| number(packet)).collect()
}

#[test]
fn the_same_seed_is_the_same_run() {
    let link = LinkConfig::default()
        .jitter(Duration::from_millis(30))
        .loss(Chance::percent(10))
        .duplication(Chance::percent(10))
        .reordering(Chance::percent(10))
        .corruption(Chance::percent(10));
    let run = |seed| over(seed, link, sender(200)).0.digest();
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_perfect_link_delivers_in_order_and_on_time() {
    let (world, _, b) = over(1, LinkConfig::default().delay(Duration::from_millis(7)), sender(3));
    let at: Vec<_> = world.host(b).got.iter().map(|(at, _)| at.as_nanos() / 1_000_000).collect();
    assert_eq!(at, [7, 17, 27]);
    assert_eq!(numbers(world.host(b)), [3, 2, 1]);
    assert_eq!(world.now().instant, Instant::ZERO + Duration::from_secs(60));
    assert_eq!(world.now().unix.0 - World::<Talker>::new(0).now().unix.0, 60);
}

#[test]
fn links_lose_duplicate_reorder_and_corrupt_as_configured() {
    let count = |link| {
        let (world, _, b) = over(5, link, sender(1000));
        world.host(b).got.len()
    };
    let lost = 1000 - count(LinkConfig::default().loss(Chance::percent(20)));
    assert!((150..250).contains(&lost), "{lost} of 1000 lost at 20 %");
    let more = count(LinkConfig::default().duplication(Chance::percent(20))) - 1000;
    assert!((150..250).contains(&more), "{more} of 1000 doubled at 20 %");

    let (world, _, b) =
        over(5, LinkConfig::default().reordering(Chance::percent(20)), sender(1000));
    let got = numbers(world.host(b));
    assert_eq!(got.len(), 1000);
    assert!(got.windows(2).any(|pair| pair[0] < pair[1]), "something overtook");

    let (world, _, b) = over(5, LinkConfig::default().corruption(Chance::ALWAYS), sender(100));
    let flipped = numbers(world.host(b)).iter().zip((1..=100).rev()).all(|(got, sent)| {
        let difference: u32 = got ^ sent;
        difference.count_ones() == 1
    });
    assert!(flipped, "exactly one bit of each");
}

#[test]
fn a_link_that_is_down_passes_nothing() {
    let link = LinkConfig { up: false, ..LinkConfig::default() };
    let (world, _, b) = over(1, link, sender(10));
    assert!(world.host(b).got.is_empty());
    assert_eq!(world.in_flight(), 0);
}

#[test]
fn long_datagrams_are_fragmented_or_reported() {
    let big = |dont_fragment| Talker { size: 1400, dont_fragment, ..sender(1) };
    let link = LinkConfig::default().mtu(1280);

    let (world, a, b) = over(1, link, big(false));
    assert_eq!((world.host(a).got.len(), world.host(b).got.len()), (0, 1));

    let (world, a, b) = over(1, link, big(true));
    assert!(world.host(b).got.is_empty());
    let Body::Icmp(icmp) = &world.host(a).got[0].1.body else { panic!("an error comes back") };
    assert_eq!((icmp.kind, icmp.code, icmp.data), (3, 4, 1280));
    assert_eq!(icmp.about_dst, addr("192.0.2.2:2000"));
}

#[test]
fn packets_find_their_way_through_a_nat_and_a_router_and_back() {
    let mut world = World::new(3);
    let internet = world.add_router();
    let nat = world.add_nat(Nat::new(NatConfig::symmetric("203.0.113.5".parse().unwrap())));
    let client = world.add_host(Talker {
        me: Some(addr("10.0.0.2:5000")),
        to: Some(addr("198.51.100.7:3478")),
        left: 1,
        ..Talker::default()
    });
    let server = world.add_host(Talker { echoes: true, ..Talker::default() });
    let link = LinkConfig::default();
    world.attach(internet, nat, link, &["203.0.113.0/24".parse().unwrap()]);
    world.attach(internet, server, link, &["198.51.100.7/32".parse().unwrap()]);
    world.connect(nat, client, link);
    world.run_for(Duration::from_secs(1));

    let at_server = &world.host(server).got[0].1;
    assert_eq!(at_server.src.ip(), addr("203.0.113.5:0").ip());
    let at_client = &world.host(client).got[0].1;
    assert_eq!((at_client.src, at_client.dst), (at_server.dst, addr("10.0.0.2:5000")));
}

#[test]
fn a_failed_check_names_the_seed_and_shows_the_last_steps() {
    let failure = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(77);
        let a = world.add_host(sender(3));
        let b = world.add_host(Talker::default());
        world.connect(a, b, LinkConfig::default());
        world.check("at most one packet arrives", move |world| match world.host(b).got.len() {
            0 | 1 => Ok(()),
            more => Err(format!("{more} arrived")),
        });
        world.run_for(Duration::from_secs(1));
    }));
    let message = *failure.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("at most one packet arrives: 2 arrived"), "{message}");
    assert!(message.contains("SEED=77"), "{message}");
    assert!(message.contains("got  192.0.2.1:1000 -> 192.0.2.2:2000 udp 4 bytes"), "{message}");
}

#[test]
fn a_stuck_timer_fails_instead_of_hanging() {
    let stuck = Talker { every: Duration::ZERO, ..sender(u32::MAX) };
    let failure = catch_unwind(AssertUnwindSafe(|| over(1, LinkConfig::default(), stuck)));
    let message = *failure.err().unwrap().downcast::<String>().unwrap();
    assert!(message.contains("due again and again"), "{message}");
}
