//! The world: nodes, links between them, virtual time, and one queue of events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::mem;
use std::time::Duration;

use turn_types::{Instant, Now, Prefix, UnixSeconds};

use crate::link::{Fate, LinkConfig};
use crate::nat::Nat;
use crate::node::NodeId;
use crate::packet::Packet;
use crate::rng::Rng;
use crate::router::Router;
use crate::trace::{Summary, Trace, What};

/// Wall-clock time when a world begins.
const UNIX_START: u64 = 1_700_000_000;

/// Wake-ups of a host at one instant in a row, after which it counts as stuck: a timer that is
/// always due would otherwise hang the test.
const WAKES_AT_ONE_INSTANT_MAX: u32 = 1_000;

/// Something with an address that sends and receives. Tests bring their own, usually an enum.
pub trait Host {
    /// A packet arrived. The host checks that the destination is its own.
    fn receive(&mut self, now: Now, packet: Packet, out: &mut Outbox);

    /// The time of [`Host::next_wake`] is reached.
    fn wake(&mut self, now: Now, out: &mut Outbox);

    /// Time of the next call of [`Host::wake`]; queried after every event of the host.
    fn next_wake(&self) -> Option<Instant>;
}

/// A link of one world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(usize);

/// Outgoing packets of a host. They leave by the host's first link.
#[derive(Debug, Default)]
pub struct Outbox {
    packets: Vec<Packet>,
}

impl Outbox {
    /// Sends a packet.
    pub fn send(&mut self, packet: Packet) {
        self.packets.push(packet);
    }
}

#[derive(Debug)]
enum Kind<H> {
    Host(H),
    Router(Router),
    Nat(Nat),
}

#[derive(Debug)]
struct Node<H> {
    kind: Kind<H>,
    /// The node's ports: link and end of each.
    ports: Vec<(LinkId, End)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    A,
    B,
}

#[derive(Debug)]
struct Link {
    config: LinkConfig,
    /// Node and port at end A, then at end B.
    ends: [(NodeId, usize); 2],
}

impl Link {
    const fn far_end(&self, near: End) -> (NodeId, usize) {
        match near {
            End::A => self.ends[1],
            End::B => self.ends[0],
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Arrival {
    at: Instant,
    /// Order of causes: decides between arrivals at one instant.
    order: u64,
    node: NodeId,
    port: usize,
    packet: Packet,
}

impl Ord for Arrival {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl PartialOrd for Arrival {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

type Checker<H> = Box<dyn FnMut(&World<H>) -> Result<(), String>>;

/// A seeded world of hosts of type `H`.
pub struct World<H> {
    seed: u64,
    rng: Rng,
    now: Instant,
    nodes: Vec<Node<H>>,
    links: Vec<Link>,
    arrivals: BinaryHeap<Reverse<Arrival>>,
    order: u64,
    steps: u64,
    wakes_at_now: u32,
    checkers: Vec<(String, Checker<H>)>,
    trace: Trace,
}

impl<H: Host> World<H> {
    /// An empty world.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            rng: Rng::new(seed),
            now: Instant::ZERO,
            nodes: Vec::new(),
            links: Vec::new(),
            arrivals: BinaryHeap::new(),
            order: 0,
            steps: 0,
            wakes_at_now: 0,
            checkers: Vec::new(),
            trace: Trace::default(),
        }
    }

    // Building.

    /// Adds a host.
    pub fn add_host(&mut self, host: H) -> NodeId {
        self.add(Kind::Host(host))
    }

    /// Adds a router without routes.
    pub fn add_router(&mut self) -> NodeId {
        self.add(Kind::Router(Router::default()))
    }

    /// Adds a NAT. The first link connected to it is its outside.
    pub fn add_nat(&mut self, nat: Nat) -> NodeId {
        self.add(Kind::Nat(nat))
    }

    fn add(&mut self, kind: Kind<H>) -> NodeId {
        self.nodes.push(Node { kind, ports: Vec::new() });
        NodeId(self.nodes.len() - 1)
    }

    /// Connects two nodes by a link.
    pub fn connect(&mut self, a: NodeId, b: NodeId, config: LinkConfig) -> LinkId {
        let id = LinkId(self.links.len());
        let ends = [(a, End::A), (b, End::B)].map(|(node, end)| {
            let ports = &mut self.nodes[node.0].ports;
            ports.push((id, end));
            (node, ports.len() - 1)
        });
        self.links.push(Link { config, ends });
        id
    }

    /// Connects a router to a node by a link with routes for `prefixes`.
    ///
    /// # Panics
    /// `router` is no router.
    pub fn attach(
        &mut self,
        router: NodeId,
        node: NodeId,
        config: LinkConfig,
        prefixes: &[Prefix],
    ) -> LinkId {
        let link = self.connect(router, node, config);
        let port = self.links[link.0].ends[0].1;
        let Kind::Router(routes) = &mut self.nodes[router.0].kind else {
            panic!("node {} is no router", router.0);
        };
        prefixes.iter().for_each(|prefix| routes.add_route(*prefix, port));
        link
    }

    /// Adds something that must hold after every step.
    pub fn check(
        &mut self,
        name: &str,
        checker: impl FnMut(&Self) -> Result<(), String> + 'static,
    ) {
        self.checkers.push((name.to_owned(), Box::new(checker)));
    }

    // Looking and acting.

    /// The seed.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Virtual time on both clocks.
    #[must_use]
    pub const fn now(&self) -> Now {
        let secs = self.now.as_nanos() / 1_000_000_000;
        Now { instant: self.now, unix: UnixSeconds(UNIX_START + secs) }
    }

    /// The world's random generator; forking keeps the draws of links independent of a test's.
    pub const fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Steps so far.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Equal for two runs exactly when the same things happened in them in the same order.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.trace.digest()
    }

    /// Packets in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.arrivals.len()
    }

    /// A host.
    ///
    /// # Panics
    /// When the node is no host.
    #[must_use]
    pub fn host(&self, id: NodeId) -> &H {
        match &self.nodes[id.0].kind {
            Kind::Host(host) => host,
            Kind::Router(_) | Kind::Nat(_) => panic!("node {} is no host", id.0),
        }
    }

    /// All hosts.
    pub fn hosts(&self) -> impl Iterator<Item = (NodeId, &H)> {
        self.nodes.iter().enumerate().filter_map(|(at, node)| match &node.kind {
            Kind::Host(host) => Some((NodeId(at), host)),
            Kind::Router(_) | Kind::Nat(_) => None,
        })
    }

    /// A NAT.
    ///
    /// # Panics
    /// When the node is no NAT.
    pub fn nat_mut(&mut self, id: NodeId) -> &mut Nat {
        match &mut self.nodes[id.0].kind {
            Kind::Nat(nat) => nat,
            Kind::Host(_) | Kind::Router(_) => panic!("node {} is no NAT", id.0),
        }
    }

    /// Configuration of a link; changes apply from the next packet on.
    pub fn link_mut(&mut self, id: LinkId) -> &mut LinkConfig {
        &mut self.links[id.0].config
    }

    /// Lets a host act now: a step of its own, checked like any other.
    ///
    /// # Panics
    /// When the node is no host, or a checker fails.
    pub fn act<R>(&mut self, id: NodeId, action: impl FnOnce(&mut H, Now, &mut Outbox) -> R) -> R {
        let now = self.now();
        let mut out = Outbox::default();
        let result = match &mut self.nodes[id.0].kind {
            Kind::Host(host) => action(host, now, &mut out),
            Kind::Router(_) | Kind::Nat(_) => panic!("node {} is no host", id.0),
        };
        self.trace.record(self.now, id, What::Touched);
        self.dispatch(id, out);
        self.finish_step();
        result
    }

    // Running.

    /// Runs for this long; time has passed afterwards even when nothing happened.
    pub fn run_for(&mut self, duration: Duration) {
        self.run_until(self.now + duration);
    }

    /// Runs up to and including this instant.
    pub fn run_until(&mut self, until: Instant) {
        while self.next_at().is_some_and(|at| at <= until) {
            self.step();
        }
        if self.now < until {
            self.now = until;
            self.wakes_at_now = 0;
        }
    }

    /// Time of the next event.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        let arrival = self.arrivals.peek().map(|Reverse(arrival)| arrival.at);
        let wake = self.next_wake().map(|(at, _)| at);
        [arrival, wake].into_iter().flatten().min().map(|at| at.max(self.now))
    }

    /// Runs the next event. Returns false when there is none.
    ///
    /// # Panics
    /// A checker fails, or a host's timer is due repeatedly at one instant.
    pub fn step(&mut self) -> bool {
        let arrival = self.arrivals.peek().map(|Reverse(arrival)| arrival.at);
        let wake = self.next_wake();
        match (arrival, wake) {
            (None, None) => return false,
            // Packets first: an arrival at the deadline is in time.
            (Some(at), None) => self.arrive(at),
            (Some(at), Some((wake_at, _))) if at <= wake_at => self.arrive(at),
            (_, Some((at, node))) => self.wake(at, node),
        }
        self.finish_step();
        true
    }

    fn next_wake(&self) -> Option<(Instant, NodeId)> {
        self.hosts().filter_map(|(id, host)| Some((host.next_wake()?, id))).min()
    }

    fn advance_to(&mut self, at: Instant) {
        if at > self.now {
            self.now = at;
            self.wakes_at_now = 0;
        }
    }

    fn wake(&mut self, at: Instant, id: NodeId) {
        self.advance_to(at);
        self.wakes_at_now += 1;
        if self.wakes_at_now > WAKES_AT_ONE_INSTANT_MAX {
            self.fail(&format!("node {} is due again and again at one instant", id.0));
        }
        let now = self.now();
        let mut out = Outbox::default();
        match &mut self.nodes[id.0].kind {
            Kind::Host(host) => host.wake(now, &mut out),
            Kind::Router(_) | Kind::Nat(_) => {}
        }
        self.trace.record(self.now, id, What::Woke);
        self.dispatch(id, out);
    }

    fn arrive(&mut self, at: Instant) {
        self.advance_to(at);
        let Some(Reverse(arrival)) = self.arrivals.pop() else {
            return;
        };
        let Arrival { node, port, packet, .. } = arrival;
        self.trace.record(self.now, node, What::Arrived(Summary::of(&packet)));
        let now = self.now();
        let forwarded = match &mut self.nodes[node.0].kind {
            Kind::Host(host) => {
                let mut out = Outbox::default();
                host.receive(now, packet, &mut out);
                return self.dispatch(node, out);
            }
            Kind::Router(router) => router.route(&packet).map(|port| (port, packet)),
            Kind::Nat(nat) => nat.translate(now.instant, &mut self.rng, port, packet),
        };
        if let Some((port, packet)) = forwarded {
            self.transmit(node, port, packet);
        }
    }

    fn dispatch(&mut self, from: NodeId, out: Outbox) {
        for packet in out.packets {
            self.transmit(from, 0, packet);
        }
    }

    fn transmit(&mut self, from: NodeId, port: usize, packet: Packet) {
        let Some(&(link, end)) = self.nodes[from.0].ports.get(port) else {
            return;
        };
        let link = &self.links[link.0];
        let (to, to_port) = link.far_end(end);
        let summary = Summary::of(&packet);
        match link.config.carry(&mut self.rng, packet) {
            Fate::Lost => self.trace.record(self.now, from, What::Lost(summary)),
            Fate::Bounced(error) => self.schedule(self.now, from, port, error),
            Fate::Arrives { packet, first, second } => {
                if let Some(second) = second {
                    self.schedule(self.now + second, to, to_port, packet.clone());
                }
                self.schedule(self.now + first, to, to_port, packet);
            }
        }
    }

    fn schedule(&mut self, at: Instant, node: NodeId, port: usize, packet: Packet) {
        self.order += 1;
        self.arrivals.push(Reverse(Arrival { at, order: self.order, node, port, packet }));
    }

    fn finish_step(&mut self) {
        self.steps += 1;
        let mut checkers = mem::take(&mut self.checkers);
        for (name, checker) in &mut checkers {
            if let Err(why) = checker(self) {
                self.fail(&format!("{name}: {why}"));
            }
        }
        self.checkers = checkers;
    }

    fn fail(&self, why: &str) -> ! {
        panic!(
            "{why}\nSEED={} step {} at {:.6} s; the last steps were:\n{}",
            self.seed,
            self.steps,
            self.now.as_nanos() as f64 / 1e9,
            self.trace
        );
    }
}
