//! Random requests, data and time, compared with a model that is simple enough to be obviously
//! right.
//!
//! The model stores allocations, permissions and channels in plain lists with expiries, and never
//! removes an entry. Expired entries are ignored. The server must return equal responses and
//! deliver equal data, whether or not its timers were served in between.

mod reading;
mod step;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use stun_wire::{
    AttributeType, ChannelNumber, Message, MessageBuilder, Method, channel_data, value,
};
use turn_proto::Route;
use turn_proto::limits::TIMER_TICK;
use turn_types::{FiveTuple, Instant, IpFamily, Now, UnixSeconds};

use self::reading::{Outcome, lifetime_of, outcome, relayed_of};
use self::step::{Families, Step, is_forbidden, peer, steps};
use crate::sim::caller::Caller;
use crate::sim::driver::Driver;
use crate::sim::setup::{addr, policy};

/// Cases of one run.
const CASES: u32 = 2_000;

const CLIENTS: usize = 3;
const PERMISSIONS_MAX: usize = 3;
const CHANNELS_MAX: usize = 2;

/// An allocation, as naive as it gets.
#[derive(Debug)]
struct Modelled {
    /// Relayed address and end of each family.
    halves: [Option<(SocketAddr, Instant)>; 2],
    permissions: Vec<(IpAddr, Instant)>,
    channels: Vec<(u16, SocketAddr, Instant)>,
}

impl Modelled {
    fn half(&self, family: IpFamily, now: Instant) -> Option<SocketAddr> {
        let half = self.halves[family as usize].filter(|(_, end)| now < *end);
        half.map(|(relayed, _)| relayed)
    }

    fn has_half_for(&self, ip: IpAddr, now: Instant) -> bool {
        self.half(IpFamily::of(ip), now).is_some()
    }

    fn is_live(&self, now: Instant) -> bool {
        IpFamily::ALL.into_iter().any(|family| self.half(family, now).is_some())
    }

    /// The addresses that are permitted, each once. A half takes its permissions along.
    fn permitted(&self, now: Instant) -> Vec<IpAddr> {
        let live = self.permissions.iter().filter(|(_, end)| now < *end).map(|(ip, _)| *ip);
        let mut live: Vec<_> = live.filter(|ip| self.has_half_for(*ip, now)).collect();
        live.sort_unstable();
        live.dedup();
        live
    }

    /// The channels that are bound, each once.
    fn bound(&self, now: Instant) -> Vec<(u16, SocketAddr)> {
        let live = self.channels.iter().filter(|(_, _, end)| now < *end);
        let mut live: Vec<_> = live
            .map(|(number, peer, _)| (*number, *peer))
            .filter(|(_, peer)| self.has_half_for(peer.ip(), now))
            .collect();
        live.sort_unstable();
        live.dedup();
        live
    }
}

impl Modelled {
    /// Until when a bound channel carries data to the peer and, if it still does, to the client.
    fn channel_ends(
        &self,
        number: u16,
        peer: SocketAddr,
        now: Instant,
    ) -> (Instant, Option<Instant>) {
        let family = IpFamily::of(peer.ip());
        let (_, half) = self.halves[family as usize].unwrap();
        let bound = self.channels.iter().filter(|(n, p, _)| (*n, *p) == (number, peer));
        let to_peer = bound.map(|(_, _, end)| *end).max().unwrap().min(half);
        let permitted = self.permissions.iter().filter(|(ip, _)| *ip == peer.ip());
        let permitted = permitted.map(|(_, end)| *end).max();
        (to_peer, permitted.map(|end| end.min(to_peer)).filter(|end| now < *end))
    }
}

/// Server, clients, and a model of both.
struct Bench {
    driver: Driver,
    callers: Vec<Caller>,
    now: Now,
    allocations: Vec<Option<Modelled>>,
    /// The Allocate that made each, to repeat it.
    made_by: Vec<Option<(Vec<u8>, Vec<u8>)>>,
    /// Last RESERVATION-TOKEN, with the reserved port and the expiry. Redeeming sets the expiry to
    /// zero.
    reserved: Option<([u8; 8], SocketAddr, Instant)>,
    payloads: u32,
}

type Case = Result<(), TestCaseError>;

impl Bench {
    fn new() -> Self {
        let mut policy = policy();
        policy.quotas.permissions = PERMISSIONS_MAX as u32;
        policy.quotas.channels = CHANNELS_MAX as u32;
        let clients = ["203.0.113.1:5000", "203.0.113.2:5000", "[2001:db8:c::1]:5000"].map(addr);
        let listener = |client: &SocketAddr| usize::from(client.is_ipv6());
        Self {
            driver: Driver::new(policy, [1; 32]),
            callers: clients.iter().map(|client| Caller::new(*client, listener(client))).collect(),
            now: Now { instant: Instant::ZERO, unix: UnixSeconds(1_700_000_000) },
            allocations: (0..CLIENTS).map(|_| None).collect(),
            made_by: vec![None; CLIENTS],
            reserved: None,
            payloads: 0,
        }
    }

    fn live(&self, client: usize) -> Option<&Modelled> {
        let allocation = self.allocations[client].as_ref();
        allocation.filter(|allocation| allocation.is_live(self.now.instant))
    }

    fn step(&mut self, step: &Step) -> Case {
        match step {
            Step::Allocate { client, families, lifetime } => {
                self.allocate(*client, *families, *lifetime)?;
            }
            Step::AllocatePair { client } => self.allocate_pair(*client)?,
            Step::Redeem { client } => self.redeem(*client)?,
            Step::Repeat { client } => self.repeat(*client)?,
            Step::Refresh { client, stranger, family, lifetime } => {
                self.refresh(*client, *stranger, *family, *lifetime)?;
            }
            Step::Permit { client, stranger, peers } => self.permit(*client, *stranger, peers)?,
            Step::Bind { client, stranger, channel, peer: number } => {
                self.bind(*client, *stranger, (*channel, peer(*number)))?;
            }
            Step::Send { client, peer: number } => self.send(*client, peer(*number))?,
            Step::ChannelData { client, channel } => self.channel_data(*client, *channel)?,
            Step::PeerSpeaks { client, family, peer: number } => {
                self.peer_speaks(*client, *family, peer(*number))?;
            }
            Step::Wait { secs, timers } => self.wait(*secs, *timers)?,
        }
        self.routes()?;
        prop_assert!(self.driver.violations.is_empty(), "{:?}", self.driver.violations);
        Ok(())
    }

    /// The routes told are the channels bound, with their ends, and each leads where a packet goes.
    fn routes(&mut self) -> Case {
        let now = self.now.instant;
        let live = |route: &&Route| now < route.to_peer_until;
        let routes: Vec<Route> = self.driver.routes.values().filter(live).copied().collect();
        let mut expected = 0;
        for client in 0..CLIENTS {
            let five_tuple = self.callers[client].path.five_tuple;
            let Some(allocation) = self.live(client) else { continue };
            for (number, peer) in allocation.bound(now) {
                let found: Vec<_> = routes
                    .iter()
                    .filter(|one| (one.five_tuple, one.id.channel) == (five_tuple, number))
                    .collect();
                let [route] = found[..] else {
                    return Err(TestCaseError::fail(format!("{number:#x}: {found:?}")));
                };
                expected += 1;
                let (to_peer, to_client) = allocation.channel_ends(number, peer, now);
                prop_assert_eq!(route.to_peer_until, to_peer);
                prop_assert_eq!(Some(route.to_client_until).filter(|end| now < *end), to_client);
                prop_assert_eq!(route.peer.0, peer);
                prop_assert_eq!(
                    Some(route.relayed.0),
                    allocation.half(IpFamily::of(peer.ip()), now)
                );
                prop_assert_eq!((route.own, route.bytes_per_second), (false, 0));
            }
        }
        prop_assert_eq!(routes.len(), expected, "{:?}", routes);
        routes.iter().try_for_each(|route| self.follow(route))
    }

    /// Sends a packet each way along a route. User space must forward both packets as the route
    /// does. After `to_client_until` nothing is relayed to the client.
    fn follow(&mut self, route: &Route) -> Case {
        let now = self.now;
        let caller = self.callers.iter().find(|one| one.path.five_tuple == route.five_tuple);
        let path = caller.unwrap().path;
        let [high, low] = route.id.channel.to_be_bytes();
        let there = self.driver.client(now, &path, &[high, low, 0, 1, 0xA5]);
        let there = there.map(|sent| (sent.from, sent.to, sent.payload));
        prop_assert_eq!(there, Some((route.relayed.0, route.peer.0, vec![0xA5])));
        let back = self.driver.peer(now, route.relayed.0, route.peer.0, &[0x5A]);
        let back = back.map(|sent| (sent.from, sent.to, sent.payload));
        let FiveTuple { client, server, .. } = route.five_tuple;
        let open = now.instant < route.to_client_until;
        prop_assert_eq!(back, open.then(|| (server.0, client.0, vec![high, low, 0, 1, 0x5A])));
        Ok(())
    }

    fn ask(
        &mut self,
        client: usize,
        stranger: bool,
        method: Method,
        write: impl Fn(&mut MessageBuilder<'_>),
    ) -> (Outcome, Vec<u8>) {
        let user = if stranger { "dave" } else { "alice" };
        let Self { driver, callers, now, .. } = self;
        let (request, reply) = callers[client].ask(driver, *now, (user, method), write);
        let outcome = outcome(&reply);
        if (method, outcome) == (Method::ALLOCATE, Outcome::Success) {
            self.made_by[client] = Some((request, reply.clone()));
        }
        (outcome, reply)
    }

    fn allocate(&mut self, client: usize, families: Families, asked: Option<u32>) -> Case {
        let (outcome, reply) = self.ask(client, false, Method::ALLOCATE, |builder| {
            builder.requested_transport(17);
            match families {
                Families::Unsaid => {}
                Families::One(family) => {
                    builder.requested_address_family(family.wire());
                }
                Families::Both => {
                    builder.additional_address_family(2);
                }
            }
            if let Some(secs) = asked {
                builder.lifetime(secs);
            }
        });
        if self.live(client).is_some() {
            prop_assert_eq!(outcome, Outcome::Error(437));
            return Ok(());
        }
        prop_assert_eq!(outcome, Outcome::Success);
        let granted = self.made(client, &reply, asked)?;
        let expected = match families {
            Families::Unsaid | Families::One(IpFamily::V4) => [true, false],
            Families::One(IpFamily::V6) => [false, true],
            Families::Both => [true, true],
        };
        prop_assert_eq!(granted.map(|half| half.is_some()), expected);
        Ok(())
    }

    /// Books an allocation that was made and returns its relayed addresses.
    fn made(
        &mut self,
        client: usize,
        reply: &[u8],
        asked: Option<u32>,
    ) -> Result<[Option<SocketAddr>; 2], TestCaseError> {
        let lifetime = lifetime_of(reply);
        prop_assert_eq!(lifetime, granted_lifetime(asked));
        let end = self.now.instant + Duration::from_secs(lifetime.into());
        let relayed = relayed_of(reply);
        let halves = relayed.map(|half| half.map(|relayed| (relayed, end)));
        let fresh = Modelled { halves, permissions: Vec::new(), channels: Vec::new() };
        self.allocations[client] = Some(fresh);
        Ok(relayed)
    }

    fn allocate_pair(&mut self, client: usize) -> Case {
        let (outcome, reply) = self.ask(client, false, Method::ALLOCATE, |builder| {
            builder.requested_transport(17).even_port(true);
        });
        if self.live(client).is_some() {
            prop_assert_eq!(outcome, Outcome::Error(437));
            return Ok(());
        }
        prop_assert_eq!(outcome, Outcome::Success);
        let [Some(relayed), None] = self.made(client, &reply, None)? else {
            return Err(TestCaseError::fail("not an IPv4 allocation"));
        };
        prop_assert_eq!(relayed.port() % 2, 0);
        let message = Message::parse(&reply).unwrap();
        let token = message.first(AttributeType::RESERVATION_TOKEN).unwrap();
        let next = SocketAddr::new(relayed.ip(), relayed.port() + 1);
        let end = self.now.instant + Duration::from_secs(30);
        self.reserved = Some((value::reservation_token(token).unwrap(), next, end));
        Ok(())
    }

    fn redeem(&mut self, client: usize) -> Case {
        let Some((token, next, end)) = self.reserved else { return Ok(()) };
        let (outcome, reply) = self.ask(client, false, Method::ALLOCATE, |builder| {
            builder.requested_transport(17).reservation_token(token);
        });
        if self.live(client).is_some() {
            prop_assert_eq!(outcome, Outcome::Error(437));
        } else if self.now.instant < end {
            prop_assert_eq!(outcome, Outcome::Success);
            prop_assert_eq!(self.made(client, &reply, None)?, [Some(next), None]);
            // The token is redeemed from now on. A second use is refused like an expired token.
            self.reserved = Some((token, next, Instant::ZERO));
        } else {
            prop_assert_eq!(outcome, Outcome::Error(508));
        }
        Ok(())
    }

    /// A retransmitted Allocate gets an equal response except for LIFETIME, which is the remaining
    /// lifetime.
    fn repeat(&mut self, client: usize) -> Case {
        let Some((request, first)) = self.made_by[client].clone() else { return Ok(()) };
        if self.live(client).is_none() {
            return Ok(());
        }
        let Self { driver, callers, now, .. } = self;
        let reply = callers[client].send(driver, *now, &request).unwrap();
        if Message::parse(&reply).unwrap().first(AttributeType::NONCE).is_some() {
            // The nonce has become stale in the meantime.
            prop_assert_eq!(outcome(&reply), Outcome::Error(438));
            return Ok(());
        }
        prop_assert_eq!(outcome(&reply), Outcome::Success);
        let live = self.live(client).unwrap();
        let told = relayed_of(&reply);
        for family in IpFamily::ALL {
            let half = live.half(family, self.now.instant);
            prop_assert!(half.is_none() || told[family as usize] == half);
        }
        let token = |reply: &[u8]| {
            let message = Message::parse(reply).unwrap();
            message.first(AttributeType::RESERVATION_TOKEN).map(<[u8]>::to_vec)
        };
        prop_assert_eq!(token(&reply), token(&first));
        let end = live.halves.iter().flatten().map(|(_, end)| *end).max().unwrap();
        let left = end.saturating_since(self.now.instant).as_secs();
        prop_assert_eq!(u64::from(lifetime_of(&reply)), left);
        Ok(())
    }

    /// Returns the error of a request on an allocation before other checks.
    fn not_theirs(&self, client: usize, stranger: bool) -> Option<u16> {
        match self.live(client) {
            None => Some(437),
            Some(_) if stranger => Some(441),
            Some(_) => None,
        }
    }

    fn refresh(
        &mut self,
        client: usize,
        stranger: bool,
        family: Option<IpFamily>,
        asked: Option<u32>,
    ) -> Case {
        let (outcome, reply) = self.ask(client, stranger, Method::REFRESH, |builder| {
            if let Some(secs) = asked {
                builder.lifetime(secs);
            }
            if let Some(family) = family {
                builder.requested_address_family(family.wire());
            }
        });
        if let Some(code) = self.not_theirs(client, stranger) {
            prop_assert_eq!(outcome, Outcome::Error(code));
            return Ok(());
        }
        let now = self.now.instant;
        let allocation = self.allocations[client].as_mut().unwrap();
        if family.is_some_and(|family| allocation.half(family, now).is_none()) {
            prop_assert_eq!(outcome, Outcome::Error(443));
            return Ok(());
        }
        prop_assert_eq!(outcome, Outcome::Success);
        let lifetime = if asked == Some(0) { 0 } else { granted_lifetime(asked) };
        prop_assert_eq!(lifetime_of(&reply), lifetime);
        for each in IpFamily::ALL {
            if family.is_none_or(|family| family == each) && allocation.half(each, now).is_some() {
                let (_, end) = allocation.halves[each as usize].as_mut().unwrap();
                *end = now + Duration::from_secs(lifetime.into());
            }
        }
        Ok(())
    }

    fn permit(&mut self, client: usize, stranger: bool, numbers: &[usize]) -> Case {
        let peers: Vec<_> = numbers.iter().map(|number| peer(*number)).collect();
        let (outcome, _) = self.ask(client, stranger, Method::CREATE_PERMISSION, |builder| {
            for peer in &peers {
                builder.xor_address(AttributeType::XOR_PEER_ADDRESS, *peer);
            }
        });
        if let Some(code) = self.not_theirs(client, stranger) {
            prop_assert_eq!(outcome, Outcome::Error(code));
            return Ok(());
        }
        let now = self.now.instant;
        let allocation = self.allocations[client].as_mut().unwrap();
        let ips: Vec<_> = peers.iter().map(SocketAddr::ip).collect();
        let refusals = refusals(&[
            (400, ips.is_empty()),
            (443, ips.iter().any(|ip| !allocation.has_half_for(*ip, now))),
            (403, ips.iter().any(|ip| is_forbidden(*ip))),
            (508, with(allocation.permitted(now), &ips).len() > PERMISSIONS_MAX),
        ]);
        if refusals.is_empty() {
            prop_assert_eq!(outcome, Outcome::Success);
            let end = now + Duration::from_secs(300);
            allocation.permissions.extend(ips.iter().map(|ip| (*ip, end)));
        } else {
            prop_assert!(refusals.contains(&outcome), "{outcome:?} is none of {refusals:?}");
        }
        Ok(())
    }

    fn bind(&mut self, client: usize, stranger: bool, (number, peer): (u16, SocketAddr)) -> Case {
        let (outcome, _) = self.ask(client, stranger, Method::CHANNEL_BIND, |builder| {
            builder.attribute(AttributeType::CHANNEL_NUMBER, &channel_value(number));
            builder.xor_address(AttributeType::XOR_PEER_ADDRESS, peer);
        });
        if let Some(code) = self.not_theirs(client, stranger) {
            prop_assert_eq!(outcome, Outcome::Error(code));
            return Ok(());
        }
        let now = self.now.instant;
        let allocation = self.allocations[client].as_mut().unwrap();
        let bound = allocation.bound(now);
        let again = bound.contains(&(number, peer));
        let conflict =
            !again && bound.iter().any(|(other, with)| *other == number || *with == peer);
        let permitted = with(allocation.permitted(now), &[peer.ip()]);
        let refusals = refusals(&[
            (400, ChannelNumber::new(number).is_none() || conflict),
            (443, !allocation.has_half_for(peer.ip(), now)),
            (403, is_forbidden(peer.ip())),
            (508, permitted.len() > PERMISSIONS_MAX || (!again && bound.len() == CHANNELS_MAX)),
        ]);
        if refusals.is_empty() {
            prop_assert_eq!(outcome, Outcome::Success);
            allocation.permissions.push((peer.ip(), now + Duration::from_secs(300)));
            allocation.channels.push((number, peer, now + Duration::from_secs(600)));
            // A channel has a route from its first data on.
            self.channel_data(client, number)?;
        } else {
            prop_assert!(refusals.contains(&outcome), "{outcome:?} is none of {refusals:?}");
        }
        Ok(())
    }

    fn send(&mut self, client: usize, peer: SocketAddr) -> Case {
        let payload = self.payload();
        let packet = self.callers[client].send_indication(peer, &payload);
        let now = self.now.instant;
        let permitted = self.live(client).filter(|live| live.permitted(now).contains(&peer.ip()));
        let from = permitted.and_then(|live| live.half(IpFamily::of(peer.ip()), now));
        self.expect_at_peer(client, &packet, from.map(|from| (from, peer, payload)))
    }

    fn channel_data(&mut self, client: usize, number: u16) -> Case {
        let payload = self.payload();
        let [high, low] = number.to_be_bytes();
        let mut packet = vec![high, low, 0, payload.len() as u8];
        packet.extend_from_slice(&payload);
        let now = self.now.instant;
        let bound = self.live(client).and_then(|live| {
            let (_, peer) = live.bound(now).into_iter().find(|(bound, _)| *bound == number)?;
            Some((live.half(IpFamily::of(peer.ip()), now)?, peer))
        });
        self.expect_at_peer(client, &packet, bound.map(|(from, peer)| (from, peer, payload)))
    }

    fn expect_at_peer(
        &mut self,
        client: usize,
        packet: &[u8],
        expected: Option<(SocketAddr, SocketAddr, Vec<u8>)>,
    ) -> Case {
        let path = self.callers[client].path;
        let sent = self.driver.client(self.now, &path, packet);
        let sent = sent.map(|sent| (sent.from, sent.to, sent.payload));
        prop_assert_eq!(sent, expected);
        Ok(())
    }

    fn peer_speaks(&mut self, client: usize, family: IpFamily, peer: SocketAddr) -> Case {
        let half = self.allocations[client].as_ref().and_then(|one| one.halves[family as usize]);
        let Some((relayed, _)) = half.filter(|_| IpFamily::of(peer.ip()) == family) else {
            return Ok(());
        };
        let payload = self.payload();
        let now = self.now.instant;
        let live = self.live(client).filter(|live| live.half(family, now).is_some());
        let permitted = live.filter(|live| live.permitted(now).contains(&peer.ip()));
        let channel = permitted.map(|live| {
            let bound = live.bound(now).into_iter().find(|(_, bound)| *bound == peer);
            bound.map(|(number, _)| number)
        });
        // Another client may have the port by now. Then this client gets nothing.
        let client_addr = self.callers[client].path.five_tuple.client.0;
        let sent = self.driver.peer(self.now, relayed, peer, &payload);
        let sent = sent.filter(|sent| sent.to == client_addr);
        let got = sent.map(|sent| match channel_data(&sent.payload) {
            Ok(frame) => (Some(frame.number), frame.data.to_vec()),
            Err(_) => {
                let message = Message::parse(&sent.payload).unwrap();
                (None, message.first(AttributeType::DATA).unwrap().to_vec())
            }
        });
        prop_assert_eq!(got, channel.map(|channel| (channel, payload)));
        Ok(())
    }

    fn wait(&mut self, secs: u64, timers: bool) -> Case {
        let wait = Duration::from_secs(secs);
        self.now.instant = self.now.instant + wait;
        self.now.unix.0 += secs;
        if timers {
            let late = self.driver.server.poll_timeout();
            if late.is_some_and(|at| at <= self.now.instant + TIMER_TICK) {
                self.driver.timeout(self.now);
            }
            let audit = self.driver.audit(self.now.instant);
            prop_assert!(audit.is_ok(), "{audit:?}");
        }
        Ok(())
    }

    fn payload(&mut self) -> Vec<u8> {
        self.payloads += 1;
        let bytes = self.payloads.to_be_bytes().repeat(2);
        bytes[..self.payloads as usize % 8].to_vec()
    }
}

/// RFC 8656 §7.2: the greater of the default and the lesser of the requested one and the maximum.
fn granted_lifetime(asked: Option<u32>) -> u32 {
    asked.unwrap_or(600).clamp(600, 3_600)
}

fn refusals(rows: &[(u16, bool)]) -> Vec<Outcome> {
    rows.iter().filter(|(_, applies)| *applies).map(|(code, _)| Outcome::Error(*code)).collect()
}

fn with(mut held: Vec<IpAddr>, more: &[IpAddr]) -> Vec<IpAddr> {
    held.extend(more);
    held.sort_unstable();
    held.dedup();
    held
}

fn channel_value(number: u16) -> [u8; 4] {
    let [high, low] = number.to_be_bytes();
    [high, low, 0, 0]
}

/// Each seed draws [`CASES`] cases; a case that fails is made small.
#[test]
fn the_server_does_what_the_model_says() {
    test_support::for_each_seed(0..1, |seed| {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_be_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
        let result = TestRunner::new_with_rng(config, rng).run(&steps(), |steps| {
            let mut bench = Bench::new();
            steps.iter().try_for_each(|step| bench.step(step))
        });
        if let Err(failure) = result {
            panic!("{failure}");
        }
    });
}

/// A half that has ended and is not reclaimed yet: its channels and permissions do not count.
#[test]
fn what_an_ended_half_had_does_not_stand_in_the_way() {
    let (client, stranger, timers) = (0, false, false);
    let bind = |channel, peer| Step::Bind { client, stranger, channel, peer };
    let v4 = Some(IpFamily::V4);
    let steps = [
        Step::Allocate { client, families: Families::Both, lifetime: None },
        Step::Wait { secs: 299, timers },
        bind(0x4000, 4),
        Step::Refresh { client, stranger, family: v4, lifetime: Some(3_600) },
        Step::Wait { secs: 301, timers },
        bind(0x4000, 0),
        bind(0x4001, 1),
        Step::Permit { client, stranger, peers: vec![2, 3] },
    ];
    let mut bench = Bench::new();
    for step in &steps {
        bench.step(step).unwrap();
    }
    let live = bench.live(client).unwrap();
    assert_eq!(live.bound(bench.now.instant).len(), CHANNELS_MAX);
    assert_eq!(live.permitted(bench.now.instant).len(), PERMISSIONS_MAX);
}
