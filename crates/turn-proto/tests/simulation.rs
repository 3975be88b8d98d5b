//! Complete conversations in a simulated world, with many seeds and checks after each step.
//!
//! Clients behind NATs and lossy links allocate, permit, bind and talk to peers through the server.
//! Others invent, replay, mutate and forge packets. Ports are in use, the user database stalls, and
//! operators interfere. The invariants are in [`sim::ledger`] and [`sim::driver::Driver::audit`].
//! `SEED=... cargo test -p turn-proto simulation` runs a single world.

#[path = "sim/nodes/mod.rs"]
#[allow(dead_code, unreachable_pub, reason = "parts of the simulated world")]
mod nodes;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use netsim::{Chance, LinkConfig, LinkId, Nat, NatConfig, NodeId, Rng, World};
use nodes::Surroundings;
use nodes::{Board, ClientNode, ClientPlan, HostileNode, Node, PeerNode, ServerNode, SharedTap};
use test_support::for_each_seed;
use turn_client::{AlgorithmChoice, Client, ClientConfig};
use turn_proto::{DropReason, EndReason, PeerRules, Policy, PortRange, RelayAddress, RelayPrefix};
use turn_types::{PeerAddr, PendingId, Prefix};

use crate::sim::driver::{Driver, Fates};
use crate::sim::setup::{USERS, addr, listeners, password_of, policy, relay_ips, routed};

/// Lifetime of clients in a run: past the ends of permissions, channels and allocations.
const RUN: Duration = Duration::from_secs(1_500);

/// Longer than any state can live without its client.
const AFTER: Duration = Duration::from_secs(3_700);

/// Totals of all runs.
#[derive(Default)]
struct Total {
    fates: Fates,
    ended: BTreeMap<EndReason, u64>,
    allocations: u64,
    at_clients: u64,
    at_peers: u64,
    icmp: u64,
}

#[test]
fn many_worlds_keep_every_promise() {
    let (mut total, mut runs) = (Total::default(), 0);
    for_each_seed(0..200, |seed| {
        let mut scene = Scene::new(seed);
        scene.live();
        scene.end(&mut total);
        runs += 1;
    });
    if runs > 1 {
        total.is_worth_it();
    }
}

#[test]
fn the_same_seed_is_the_same_world() {
    let digest = |seed| {
        let mut scene = Scene::new(seed);
        scene.live();
        scene.world.digest()
    };
    assert_eq!(digest(11), digest(11));
    assert_ne!(digest(11), digest(12));
}

impl Total {
    /// A simulation in which nothing happens proves nothing.
    fn is_worth_it(&self) {
        let Self { fates, ended, .. } = self;
        assert!(self.allocations > 500, "{} allocations", self.allocations);
        assert!(self.at_peers > 10_000, "{} datagrams at peers", self.at_peers);
        assert!(self.at_clients > 10_000, "{} datagrams at clients", self.at_clients);
        assert!(self.icmp > 50, "{} ICMP reports at clients", self.icmp);
        for reason in [
            EndReason::Deleted,
            EndReason::Expired,
            EndReason::EndedByOperator,
            EndReason::RelayAddressRemoved,
        ] {
            assert!(ended.get(&reason).is_some_and(|count| *count > 10), "{reason:?}: {ended:?}");
        }
        for reason in [
            DropReason::NotStun,
            DropReason::MalformedStun,
            DropReason::UnexpectedMethod,
            DropReason::AlreadyPending,
            DropReason::NoAllocation,
            DropReason::MalformedChannelData,
            DropReason::ChannelNotBound,
            DropReason::NoPermission,
            DropReason::PeerFamily,
            DropReason::OwnAddress,
            DropReason::RelayClosed,
        ] {
            assert!(fates.dropped.contains_key(&reason), "{reason:?} never happened: {fates:?}");
        }
    }
}

/// A world and its hosts.
struct Scene {
    world: World<Node>,
    rng: Rng,
    server: NodeId,
    clients: Vec<NodeId>,
    peers: Vec<NodeId>,
    hostiles: Vec<NodeId>,
    nats: Vec<NodeId>,
    /// Links between clients or NATs and the other hosts.
    access: Vec<LinkId>,
    /// Nothing is corrupted or forged.
    clean: bool,
    mild: bool,
    /// Time-limited names are good.
    secrets: bool,
    board: Board,
    /// All relay addresses, including temporarily disabled addresses.
    relay: Vec<RelayAddress>,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let mut world = World::new(seed);
        let mut rng = world.rng().fork();
        let tap = SharedTap::default();
        let clean = rng.below(2) == 0;
        // Some worlds have no faults, and clients must succeed there.
        let mild = rng.below(4) == 0;
        let policy = random_policy(&mut rng, mild);
        let relay = policy.relay.clone();
        let secrets = !policy.auth.secrets.is_empty();
        let surroundings = random_surroundings(&mut rng, mild);
        let internet = world.add_router();
        let node = ServerNode::new(policy, surroundings, rng.fork(), Rc::clone(&tap));
        let server = world.add_host(Node::Server(Box::new(node)));
        let prefixes: Vec<_> =
            relay_ips().map(Prefix::host).into_iter().chain([routed()]).collect();
        world.attach(internet, server, LinkConfig::default(), &prefixes);
        world.check("the server", move |world| match world.host(server) {
            Node::Server(node) => node.violation.clone().map_or(Ok(()), Err),
            Node::Client(_) | Node::Peer(_) | Node::Hostile(_) => Ok(()),
        });
        let mut scene = Self {
            world,
            rng,
            server,
            clients: Vec::new(),
            peers: Vec::new(),
            hostiles: Vec::new(),
            nats: Vec::new(),
            access: Vec::new(),
            clean,
            mild,
            secrets,
            board: Board::default(),
            relay,
        };
        scene.add_peers(internet);
        scene.add_clients(internet);
        scene.add_hostiles(internet, &tap);
        scene.check_endpoints();
        scene
    }

    fn add_peers(&mut self, internet: NodeId) {
        for text in ["192.0.2.10:7000", "192.0.2.11:7000", "[2001:db8:2::10]:7000"] {
            let me = addr(text);
            let peer = PeerNode::new(me, self.rng.fork(), self.clean);
            let id = self.world.add_host(Node::Peer(peer));
            let link = self.link();
            self.world.attach(internet, id, link, &[Prefix::host(me.ip())]);
            self.peers.push(id);
        }
    }

    fn add_clients(&mut self, internet: NodeId) {
        for number in 0..=self.rng.below(3) as u8 {
            let link = self.link();
            let v6 = self.rng.below(4) == 0;
            let (me, listener) = if v6 {
                (
                    SocketAddr::new(
                        [0x2001, 0xdb8, 0xc, 0, 0, 0, 0, u16::from(number)].into(),
                        5_000,
                    ),
                    1,
                )
            } else {
                (SocketAddr::new([10, 0, number, 2].into(), 5_000), 0)
            };
            let node = self.client(number, me, listener);
            let id = self.world.add_host(Node::Client(Box::new(node)));
            let access = if v6 {
                self.world.attach(internet, id, link, &[Prefix::host(me.ip())])
            } else {
                let public = [203, 0, 113, number + 1].into();
                let timeout = Duration::from_secs(*self.rng.pick(&[30, 120, 300]));
                let config = match self.rng.below(3) {
                    0 => NatConfig::endpoint_independent(public),
                    1 => NatConfig::address_dependent(public),
                    _ => NatConfig::symmetric(public),
                };
                let nat = self.world.add_nat(Nat::new(config.timeout(timeout)));
                let access = self.world.attach(internet, nat, link, &[Prefix::host(public)]);
                self.world.connect(nat, id, LinkConfig::default().delay(Duration::from_millis(1)));
                self.nats.push(nat);
                access
            };
            self.clients.push(id);
            self.access.push(access);
        }
    }

    fn client(&mut self, number: u8, me: SocketAddr, listener: usize) -> ClientNode {
        let name = match self.rng.below(5) {
            // A time-limited name, valid for longer than the run.
            0 if self.secrets => format!("{}:{number}", 1_700_000_000 + 2_000_000),
            _ => (*self.rng.pick(&USERS)).to_owned(),
        };
        let server = listeners()[listener];
        let mut config = ClientConfig::new(server, &name, &password_of(&name), self.rng.seed_32());
        config.algorithms = *self.rng.pick(&[
            AlgorithmChoice::AsOffered,
            AlgorithmChoice::Sha256,
            AlgorithmChoice::Rfc5389,
        ]);
        config.userhash = self.rng.below(2) == 0;
        config.fingerprint = self.rng.below(2) == 0;
        let mut peers: Vec<_> = [
            "192.0.2.10:7000",
            "192.0.2.10:7001",
            "192.0.2.11:7000",
            "192.0.2.11:9",
            "[2001:db8:2::10]:7000",
            "[2001:db8:2::10]:9",
        ]
        .map(|text| PeerAddr(addr(text)))
        .to_vec();
        if self.rng.below(3) == 0 {
            // Forbidden destinations: the server, its host, and its neighbours.
            let forbidden =
                ["198.51.100.1:3478", "127.0.0.1:80", "10.0.0.1:80", "[2001:db8:1::1]:3478"];
            peers.extend(forbidden.map(|text| PeerAddr(addr(text))));
        }
        let plan = ClientPlan {
            client: Client::new(config),
            me,
            peers,
            board: Board::clone(&self.board),
            pause: Duration::from_secs(self.rng.within(4..20)),
            clean: self.clean,
        };
        ClientNode::new(plan, self.rng.fork())
    }

    fn add_hostiles(&mut self, internet: NodeId, tap: &SharedTap) {
        for number in 0..self.rng.below(3) as u8 {
            // Addresses within allowed prefixes, so clients may permit these peers.
            let me = vec![
                SocketAddr::new([192, 0, 2, 66 + number].into(), 6_000),
                SocketAddr::new([0x2001, 0xdb8, 2, 0, 0, 0, 0, 0x66].into(), 6_000),
            ];
            let prefixes: Vec<_> = me.iter().map(|me| Prefix::host(me.ip())).collect();
            let node = HostileNode::new(me, self.rng.fork(), Rc::clone(tap), !self.clean);
            let id = self.world.add_host(Node::Hostile(node));
            self.world.attach(internet, id, LinkConfig::default(), &prefixes);
            self.hostiles.push(id);
        }
    }

    fn link(&mut self) -> LinkConfig {
        let delay = Duration::from_millis(self.rng.within(1..150));
        let link = LinkConfig::default().delay(delay);
        if self.mild {
            return link.loss(Chance::percent(1));
        }
        let rng = &mut self.rng;
        let link = link
            .jitter(Duration::from_millis(rng.within(0..100)))
            .loss(Chance::percent(rng.below(25) as u32))
            .duplication(Chance::percent(rng.below(10) as u32))
            .reordering(Chance::percent(rng.below(10) as u32))
            .mtu(*rng.pick(&[1_500, 1_280, 576]));
        if self.clean { link } else { link.corruption(Chance::percent(rng.below(5) as u32)) }
    }

    fn check_endpoints(&mut self) {
        self.world.check("clients and peers", |world| {
            for (_, node) in world.hosts() {
                let violation = match node {
                    Node::Client(client) => &client.violation,
                    Node::Peer(peer) => &peer.violation,
                    Node::Server(_) | Node::Hostile(_) => &None,
                };
                if let Some(why) = violation {
                    return Err(why.clone());
                }
            }
            Ok(())
        });
    }

    /// Runs the world, and interferes with it now and then.
    fn live(&mut self) {
        let end = self.world.now().instant + RUN;
        while self.world.now().instant < end {
            let next = Duration::from_secs(self.rng.within(10..200));
            self.world.run_for(next.min(end.saturating_since(self.world.now().instant)));
            if !self.mild {
                self.interfere();
            }
        }
    }

    fn interfere(&mut self) {
        match self.rng.below(10) {
            0 if !self.nats.is_empty() => {
                let nat = *self.rng.pick(&self.nats);
                self.world.nat_mut(nat).forget();
            }
            1 => {
                let link = *self.rng.pick(&self.access);
                let until = Duration::from_secs(self.rng.within(1..400));
                self.world.link_mut(link).up = false;
                self.world.run_for(until);
                self.world.link_mut(link).up = true;
            }
            2 => {
                let random = self.rng.next_u64();
                self.operate(|driver, now| {
                    let ids: Vec<_> = driver.server.allocations().map(|one| one.id).collect();
                    if !ids.is_empty() {
                        driver.end_allocation(now, ids[random as usize % ids.len()]);
                    }
                });
            }
            3 => {
                let deny: &[&str] =
                    self.rng.pick::<&[&str]>(&[&["192.0.2.10/32"], &["2001:db8:2::/64"], &[]]);
                let deny: Vec<Prefix> = deny.iter().map(|prefix| prefix.parse().unwrap()).collect();
                self.operate(|driver, now| {
                    let mut policy = (*driver.policy).clone();
                    let allow = ["192.0.2.0/24", "2001:db8:2::/48"].map(|one| one.parse().unwrap());
                    policy.peer_rules = PeerRules::new(&allow, &deny, &relay_ips());
                    driver.apply(now, policy);
                });
            }
            4 => {
                let draining = self.rng.below(2) == 0;
                self.operate(|driver, _| driver.server.drain(draining));
            }
            5 => {
                let kept = self.rng.below(3);
                let mut relay = self.relay.clone();
                if relay.len() > 1 && kept < 2 {
                    relay.remove(kept as usize);
                }
                self.operate(|driver, now| {
                    let policy = Policy { relay, ..(*driver.policy).clone() };
                    driver.apply(now, policy);
                });
            }
            6 => {
                let pending = PendingId(self.rng.below(200));
                self.world.act(self.server, |node, now, out| {
                    if let Node::Server(server) = node {
                        server.confuse(now, pending, out);
                    }
                });
            }
            _ => {}
        }
    }

    fn operate(&mut self, act: impl FnOnce(&mut Driver, turn_types::Now)) {
        self.world.act(self.server, |node, now, out| {
            if let Node::Server(server) = node {
                server.operate(now, |driver| act(driver, now), out);
            }
        });
    }

    /// All hosts vanish silently. Then no state may remain.
    fn end(&mut self, total: &mut Total) {
        for id in self.clients.iter().chain(&self.peers).chain(&self.hostiles).copied() {
            self.world.act(id, |node, _, _| match node {
                Node::Client(client) => {
                    client.gone = true;
                    total.allocations += u64::from(client.allocations);
                    total.at_clients += u64::from(client.received);
                    total.icmp += u64::from(client.icmp);
                    let served = client.allocations > 0 && client.received > 0;
                    assert!(served || !self.mild, "a client got nothing in a mild world");
                }
                Node::Peer(peer) => {
                    peer.next = None;
                    total.at_peers += u64::from(peer.received);
                }
                Node::Hostile(hostile) => hostile.next = None,
                Node::Server(_) => {}
            });
        }
        self.world.run_for(AFTER);
        assert!(!self.world.step(), "something still happens in an empty world");
        let Node::Server(server) = self.world.host(self.server) else { unreachable!() };
        let driver = &server.driver;
        assert_eq!(driver.is_empty(), Ok(()), "after everybody left");
        let ended: u64 = driver.ended_by().values().sum();
        assert_eq!(driver.created(), ended);
        for (reason, count) in driver.ended_by() {
            *total.ended.entry(*reason).or_default() += count;
        }
        for (reason, count) in &driver.fates.dropped {
            *total.fates.dropped.entry(*reason).or_default() += count;
        }
    }
}

fn random_policy(rng: &mut Rng, mild: bool) -> Policy {
    let mut policy = policy();
    if rng.below(2) == 0 {
        // A time-limited name cannot be recovered from its hash, so a policy has either hashes or
        // secrets.
        policy.auth.userhash = true;
        policy.auth.secrets.clear();
    }
    if mild {
        return policy;
    }
    if rng.below(3) == 0 {
        // So few ports that they run out.
        policy.ports = PortRange::new(50_000, 50_000 + rng.below(6) as u16).unwrap();
    }
    if rng.below(3) == 0 {
        policy.quotas.allocations_per_user = 1 + rng.below(2) as u32;
    }
    if rng.below(3) == 0 {
        policy.quotas.permissions = 2;
        policy.quotas.channels = 1;
    }
    if rng.below(3) == 0 {
        policy.quotas.bytes_per_second = 500;
    }
    if rng.below(4) == 0 {
        // Keep a single family.
        let family = rng.index(2);
        policy.relay.remove(family);
    }
    if rng.below(3) == 0 {
        policy.prefixes.push(RelayPrefix::new(routed(), 40_000, 1).unwrap());
    }
    if rng.below(3) == 0 {
        policy.lifetimes.nonce = Duration::from_secs(60);
    }
    if rng.below(3) == 0 {
        policy.unauthenticated.per_second = 3;
    }
    policy
}

fn random_surroundings(rng: &mut Rng, mild: bool) -> Surroundings {
    if mild {
        return Surroundings {
            delay_max: Duration::from_millis(20),
            port_taken: Chance::NEVER,
            exhausted: Chance::NEVER,
            unavailable: Chance::NEVER,
            silent: Chance::NEVER,
        };
    }
    Surroundings {
        delay_max: Duration::from_millis(*rng.pick(&[0, 20, 2_000, 60_000])),
        port_taken: Chance::percent(rng.below(40) as u32),
        exhausted: Chance::percent(rng.below(10) as u32),
        unavailable: Chance::percent(rng.below(10) as u32),
        silent: Chance::percent(rng.below(5) as u32),
    }
}
