//! A random world: a server, its clients, peers, strays and an operator.

mod node;
pub(crate) mod settings;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use control::CounterTotals;
use dataplane::ConnectionLimits;
use netsim::{Chance, LinkConfig, LinkId, Nat, NatConfig, NodeId, Outbox, Rng, World};
use simulation::{
    Board, ClientHost, ClientPlan, DirectoryFaults, Faults, PeerHost, ProbeHost, ServerHost,
    ServerPlan, StrayHost, TcpClientHost, TcpNet, TcpPeerHost,
};
use turn_proto::{PeerRules, Policy, RelayPrefix};
use turn_types::{Instant, Prefix, Transport, WorkerId};

use node::Node;
use settings::{
    TIMED, TOKEN, USERS, WORKERS_MAX, addr, alternate, discovery, dtls, listeners, log_in, look_up,
    peers, policy, policy_of_alternate, tls,
};

/// Life of the clients.
const RUN: Duration = Duration::from_secs(420);

/// Longer than anything lives without its client.
const AFTER: Duration = Duration::from_secs(1_500);

/// Steps of the operator.
const STEPS: u32 = 14;

/// A world and its hosts.
pub(crate) struct Scene {
    world: World<Node>,
    rng: Rng,
    /// The server, and another one that it may redirect clients to.
    servers: Vec<NodeId>,
    clients: Vec<NodeId>,
    peers: Vec<NodeId>,
    nats: Vec<NodeId>,
    links: Vec<LinkId>,
    policy: Policy,
    board: Board,
    tcp: TcpNet,
    transports: &'static [Transport],
}

impl Scene {
    pub(crate) fn new(seed: u64) -> Self {
        use Transport::{Dtls, Tcp, Tls, Udp};
        Self::with(seed, &[Udp, Udp, Udp, Tcp, Tcp, Tls, Dtls])
    }

    /// Without TLS and DTLS, whose randomness is the operating system's.
    pub(crate) fn without_cryptography(seed: u64) -> Self {
        Self::with(seed, &[Transport::Udp, Transport::Tcp])
    }

    fn with(seed: u64, transports: &'static [Transport]) -> Self {
        let mut world: World<Node> = World::new(seed);
        let mut rng = world.rng().fork();
        let tcp = TcpNet::new(rng.fork());
        let policy = policy(&mut rng);
        let internet = world.add_router();
        world.check("no invariant is broken", |world| {
            let broken = world.hosts().find_map(|(_, host)| host.violation());
            broken.cloned().map_or(Ok(()), Err)
        });
        let mut scene = Self {
            world,
            rng,
            servers: Vec::new(),
            clients: Vec::new(),
            peers: Vec::new(),
            nats: Vec::new(),
            links: Vec::new(),
            policy,
            board: Board::default(),
            tcp,
            transports,
        };
        scene.add_servers(internet);
        scene.add_peers(internet);
        for number in 0..=scene.rng.below(4) as u8 {
            scene.add_client(internet, number);
        }
        scene.add_stray(internet);
        if scene.policy.tcp_relaying {
            scene.add_tcp();
        }
        if !scene.policy.discovery.is_empty() {
            scene.add_probe(internet);
        }
        scene
    }

    fn add_servers(&mut self, internet: NodeId) {
        let mut all = listeners().to_vec();
        if !self.policy.discovery.is_empty() {
            all.extend(discovery().local.as_flattened());
            all.sort_unstable();
            all.dedup();
        }
        self.add_server(internet, self.policy.clone(), all);
        if !self.policy.alternates.is_empty() {
            self.add_server(internet, policy_of_alternate(&self.policy), vec![alternate()]);
        }
    }

    fn add_server(&mut self, internet: NodeId, policy: Policy, listeners: Vec<SocketAddr>) {
        let rng = &mut self.rng;
        let has_cryptography = self.transports.len() > 2;
        let mild = rng.below(3) == 0;
        let fault = |percent| if mild { Chance::NEVER } else { Chance::percent(percent) };
        let limits = if rng.below(2) == 0 { (0, 0) } else { (8, 4) };
        let mut ips: Vec<_> = listeners.iter().map(SocketAddr::ip).collect();
        ips.dedup();
        let routed: Vec<_> = policy.prefixes.iter().map(RelayPrefix::network).collect();
        let plan = ServerPlan {
            workers: 1 + rng.below(WORKERS_MAX.into()) as u16,
            policy,
            listeners,
            proxies: vec!["198.51.100.77/32".parse().unwrap()],
            tls: (has_cryptography && rng.below(6) > 0).then(tls),
            dtls: has_cryptography.then(dtls),
            limits: ConnectionLimits { total: limits.0, per_address: limits.1 },
            faults: Faults {
                port_taken: fault(5),
                exhausted: fault(2),
                send: fault(1),
                truncated: fault(1),
                watch: fault(5),
                route_refused: fault(5),
            },
            users: DirectoryFaults {
                delay_max: Duration::from_millis(*rng.pick(&[0, 20, 2_000])),
                silent: fault(3),
                unavailable: fault(3),
                refused: fault(3),
            },
        };
        let server = ServerHost::new(plan, look_up, self.tcp.clone(), rng.fork());
        let server = self.world.add_host(Node::Server(Box::new(server)));
        let mut prefixes: Vec<_> = ips.into_iter().map(Prefix::host).collect();
        prefixes.extend(routed);
        self.world.attach(internet, server, LinkConfig::default(), &prefixes);
        self.servers.push(server);
    }

    fn add_probe(&mut self, internet: NodeId) {
        let me = addr("203.0.113.201:6000");
        let until = Instant::ZERO + RUN;
        let probe = ProbeHost::new(me, discovery(), self.rng.fork(), until);
        let id = self.world.add_host(Node::Probe(Box::new(probe)));
        let link = self.link();
        self.world.attach(internet, id, link, &[Prefix::host(me.ip())]);
    }

    fn add_peers(&mut self, internet: NodeId) {
        for me in peers() {
            let peer = PeerHost::new(me, self.board.clone(), self.rng.fork());
            let id = self.world.add_host(Node::Peer(peer));
            let link = self.link();
            self.world.attach(internet, id, link, &[Prefix::host(me.ip())]);
            self.peers.push(id);
        }
    }

    fn add_client(&mut self, internet: NodeId, number: u8) {
        let transport = *self.rng.pick(self.transports);
        let is_v6 = self.rng.below(4) == 0;
        let (me, server) = if is_v6 {
            let ip = [0x2001, 0xdb8, 0xc, 0, 0, 0, 0, u16::from(number)];
            (SocketAddr::new(ip.into(), 5_000), listeners()[1])
        } else {
            (SocketAddr::new([10, 0, number, 2].into(), 5_000), listeners()[0])
        };
        let proxied = transport == Transport::Tcp && !is_v6 && self.rng.below(3) == 0;
        let mut talks_to = peers().to_vec();
        // Closed ports, and destinations that no client may reach.
        talks_to.extend([addr("192.0.2.10:9"), addr("127.0.0.1:80"), listeners()[0]]);
        let users = ["alice", "bob", "carol", "alice", "bob", "carol", "mallory", TIMED, TOKEN];
        let plan = ClientPlan {
            number,
            transport,
            me: if proxied { addr("198.51.100.77:1") } else { me },
            server,
            user: self.rng.pick::<&str>(&users),
            log_in,
            peers: talks_to,
            proxy: proxied.then_some(me),
            until: Instant::ZERO + RUN,
        };
        let client = ClientHost::new(plan, self.tcp.clone(), self.board.clone(), self.rng.fork());
        let id = self.world.add_host(Node::Client(Box::new(client)));
        let link = self.link();
        let access = if is_v6 {
            self.world.attach(internet, id, link, &[Prefix::host(me.ip())])
        } else {
            let public: IpAddr = [203, 0, 113, number + 1].into();
            let config = match self.rng.below(3) {
                0 => NatConfig::endpoint_independent(public),
                1 => NatConfig::address_dependent(public),
                _ => NatConfig::symmetric(public),
            };
            let timeout = Duration::from_secs(*self.rng.pick(&[30, 120, 300]));
            let nat = self.world.add_nat(Nat::new(config.timeout(timeout)));
            let access = self.world.attach(internet, nat, link, &[Prefix::host(public)]);
            self.world.connect(nat, id, LinkConfig::default().delay(Duration::from_millis(1)));
            self.nats.push(nat);
            access
        };
        self.clients.push(id);
        self.links.push(access);
    }

    /// Adds clients and peers of TCP relaying.
    fn add_tcp(&mut self) {
        let until = Instant::ZERO + RUN;
        for me in peers() {
            let (tcp, board) = (self.tcp.clone(), self.board.clone());
            let peer = TcpPeerHost::new(me, tcp, board, self.rng.fork(), until);
            self.world.add_host(Node::TcpPeer(Box::new(peer)));
        }
        for number in 0..=self.rng.below(2) as u8 {
            let is_tls = self.transports.contains(&Transport::Tls) && self.rng.below(3) == 0;
            let plan = ClientPlan {
                number: 100 + number,
                transport: if is_tls { Transport::Tls } else { Transport::Tcp },
                me: SocketAddr::new([203, 0, 113, 100 + number].into(), 0),
                server: listeners()[0],
                user: self.rng.pick::<&str>(&USERS),
                log_in,
                peers: peers().to_vec(),
                proxy: None,
                until,
            };
            let (tcp, board) = (self.tcp.clone(), self.board.clone());
            let client = TcpClientHost::new(plan, tcp, board, self.rng.fork());
            self.world.add_host(Node::TcpClient(Box::new(client)));
        }
    }

    fn add_stray(&mut self, internet: NodeId) {
        let me = addr("203.0.113.200:6000");
        let relays = (0..8).map(|_| {
            let port = 49_152 + self.rng.below(16_000) as u16;
            SocketAddr::new(listeners()[0].ip(), port)
        });
        let mut targets: Vec<_> = relays.collect();
        targets.extend([listeners()[0]; 8]);
        let until = Instant::ZERO + RUN;
        let where_to = (listeners()[0], addr("198.51.100.77:1"), targets);
        let stray = StrayHost::new(me, where_to, self.tcp.clone(), self.rng.fork(), until);
        let id = self.world.add_host(Node::Stray(Box::new(stray)));
        self.world.attach(internet, id, LinkConfig::default(), &[Prefix::host(me.ip())]);
    }

    fn link(&mut self) -> LinkConfig {
        let percent = |rng: &mut Rng, most| Chance::percent(rng.below(most) as u32);
        let delay = Duration::from_millis(self.rng.within(1..120));
        LinkConfig::default()
            .delay(delay)
            .jitter(delay / 2)
            .loss(percent(&mut self.rng, 12))
            .duplication(percent(&mut self.rng, 5))
            .reordering(percent(&mut self.rng, 8))
    }

    /// Runs the world to its end, and returns the counters of its servers.
    pub(crate) fn run(&mut self) -> Vec<CounterTotals> {
        // Some servers stop in the middle of everything.
        let is_stopped = self.rng.below(8) == 0;
        for _ in 0..if is_stopped { STEPS / 2 } else { STEPS } {
            self.operate();
            self.world.run_for(RUN / STEPS);
        }
        if is_stopped {
            let totals = self.stop();
            self.assert_clean();
            return totals;
        }
        let resumed = self.servers.iter().map(|id| self.world.host(*id).suspended_until()).max();
        let now = self.world.now().instant;
        let resumed = resumed.map_or(Duration::ZERO, |until| until.saturating_since(now));
        self.world.run_for(resumed + AFTER);
        self.assert_clean();
        self.stop()
    }

    fn assert_clean(&self) {
        for id in &self.servers {
            let Node::Server(server) = self.world.host(*id) else { unreachable!() };
            if let Err(why) = server.is_clean() {
                panic!("{why}");
            }
        }
    }

    fn stop(&mut self) -> Vec<CounterTotals> {
        let stop = |node: &mut Node, out: &mut Outbox| {
            let Node::Server(server) = node else { unreachable!() };
            server.stop(out);
            server.totals()
        };
        let servers = self.servers.clone().into_iter();
        servers.map(|id| self.world.act(id, |node, _, out| stop(node, out))).collect()
    }

    /// Lets an operator, a NAT or a network do something.
    fn operate(&mut self) {
        match self.rng.below(20) {
            0 => {
                let allow = ["192.0.2.10/32", "2001:db8:2::/48"].map(|one| one.parse().unwrap());
                let own = listeners().map(|listener| listener.ip());
                let peer_rules = PeerRules::new(&allow, &[], &own);
                let policy = Policy { peer_rules, ..self.policy.clone() };
                self.with_server(|server| server.apply(policy));
            }
            1 => {
                let policy = self.policy.clone();
                self.with_server(|server| server.apply(policy));
            }
            2 => {
                let relay = vec![self.policy.relay[1].clone()];
                let policy = Policy { relay, ..self.policy.clone() };
                self.with_server(|server| server.apply(policy));
            }
            3 => {
                let worker = WorkerId(self.rng.below(3) as u16);
                self.with_server(|server| server.end_any(worker));
            }
            4 => {
                let on = self.rng.below(2) == 0;
                self.with_server(|server| server.drain(on));
            }
            5 | 6 => {
                let nats = self.nats.clone();
                nats.into_iter().for_each(|nat| self.world.nat_mut(nat).forget());
                for client in self.clients.clone() {
                    // Some see it.
                    if self.rng.below(2) == 0 {
                        self.world.act(client, |node, now, _| {
                            let Node::Client(client) = node else { unreachable!() };
                            client.rebound(now.instant);
                        });
                    }
                }
            }
            7 => {
                let index = self.rng.index(self.links.len());
                let link = self.world.link_mut(self.links[index]);
                link.up = !link.up;
            }
            8 => {
                let time = Duration::from_secs(*self.rng.pick(&[2, 10, 45, 200, 10_000]));
                let until = self.world.now().instant + time;
                self.with_server(|server| server.suspend(until));
            }
            9 | 10 => {
                let seconds = *self.rng.pick(&[0, 0, 5, -5, 3_600, -3_600, 100_000, -100_000]);
                self.with_server(|server| server.set_wall_error(seconds));
            }
            11 | 12 => self.with_server(ServerHost::upgrade),
            13 => self.with_server_and_network(ServerHost::restart),
            14 | 15 => self.kill_server(),
            16 => self.with_server(ServerHost::keep),
            _ => {
                let links = self.links.clone();
                links.into_iter().for_each(|link| self.world.link_mut(link).up = true);
            }
        }
    }

    fn with_server(&mut self, act: impl FnOnce(&mut ServerHost)) {
        self.with_server_and_network(|server, _| act(server));
    }

    fn with_server_and_network(&mut self, act: impl FnOnce(&mut ServerHost, &mut Outbox)) {
        let server = *self.rng.pick(&self.servers);
        self.world.act(server, |node, now, out| {
            let Node::Server(server) = node else { unreachable!() };
            act(server, out);
            server.run(now, out);
        });
    }

    fn kill_server(&mut self) {
        let gracefully = self.rng.below(3) == 0;
        self.with_server_and_network(|server, out| server.die(gracefully, out));
        for client in self.clients.clone() {
            self.world.act(client, |node, _, _| {
                let Node::Client(client) = node else { unreachable!() };
                client.server_died();
            });
        }
    }

    pub(crate) const fn digest(&self) -> u64 {
        self.world.digest()
    }

    fn sum(&self, value: impl Fn(&Node) -> Option<u64>) -> u64 {
        self.world.hosts().filter_map(|(_, node)| value(node)).sum()
    }

    fn sum_of_clients(&self, value: impl Fn(&ClientHost) -> u64) -> u64 {
        self.sum(|node| if let Node::Client(client) = node { Some(value(client)) } else { None })
    }

    pub(crate) fn allocations(&self) -> u64 {
        self.sum_of_clients(|client| client.allocations)
    }

    /// Allocations by access tokens, or by time-limited names.
    pub(crate) fn allocations_of(&self, user: &str) -> u64 {
        self.sum_of_clients(|client| if client.user() == user { client.allocations } else { 0 })
    }

    pub(crate) fn moves(&self) -> u64 {
        self.sum_of_clients(|client| client.moves)
    }

    pub(crate) fn received_by_clients(&self) -> u64 {
        self.sum_of_clients(|client| client.received)
    }

    pub(crate) fn received_by_peers(&self) -> u64 {
        self.sum(|node| if let Node::Peer(peer) = node { Some(peer.received) } else { None })
    }

    fn sum_of_servers(&self, value: impl Fn(&ServerHost) -> u64) -> u64 {
        self.sum(|node| if let Node::Server(server) = node { Some(value(server)) } else { None })
    }

    /// Processes that have gone on with everything of the one before.
    pub(crate) fn handovers(&self) -> u64 {
        self.sum_of_servers(|server| server.handovers)
    }

    /// Processes that have gone on with a keeper's copies.
    pub(crate) fn resumptions(&self) -> u64 {
        self.sum_of_servers(|server| server.resumptions)
    }

    /// Responses of NAT behaviour discovery.
    pub(crate) fn discovered(&self) -> u64 {
        self.sum(|node| if let Node::Probe(probe) = node { Some(probe.answered) } else { None })
    }

    /// Data connections (RFC 6062) over which all bytes came back.
    pub(crate) fn completed(&self) -> u64 {
        self.sum(
            |node| {
                if let Node::TcpClient(client) = node { Some(client.completed) } else { None }
            },
        )
    }
}
