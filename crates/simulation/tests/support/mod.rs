//! A random world: a server, its clients, peers, strays and an operator.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use control::CounterTotals;
use dataplane::ConnectionLimits;
use netsim::{
    Chance, Host, LinkConfig, LinkId, Nat, NatConfig, NodeId, Outbox, Packet, Rng, World,
};
use simulation::{
    Board, ClientHost, ClientPlan, DirectoryFaults, Faults, PeerHost, ServerHost, ServerPlan,
    StrayHost, TcpNet,
};
use stun_wire::LongTermKeys;
use turn_proto::{
    AuthPolicy, Lifetimes, PeerRules, Policy, Quotas, RelayAddress, RelayPorts,
    UnauthenticatedBudget, User, UserAnswer, UserKeys, UserQuery,
};
use turn_session::dtls::{CookieHandler, Cookies, DtlsConfig};
use turn_session::{Certificate, Certificates, TlsConfig, tls_config};
use turn_types::{Instant, Now, Prefix, Secret, Transport, WorkerId};

const REALM: &str = "turn.example";
const USERS: [&str; 3] = ["alice", "bob", "carol"];

/// Life of the clients.
const RUN: Duration = Duration::from_secs(420);

/// Longer than anything lives without its client.
const AFTER: Duration = Duration::from_secs(1_500);

/// Steps of the operator.
const STEPS: u32 = 14;

/// Hosts of a world.
pub(crate) enum Node {
    Server(Box<ServerHost>),
    Client(Box<ClientHost>),
    Peer(PeerHost),
    Stray(Box<StrayHost>),
}

impl Host for Node {
    fn receive(&mut self, now: Now, packet: Packet, out: &mut Outbox) {
        match self {
            Self::Server(server) => server.receive(now, packet, out),
            Self::Client(client) => client.receive(now, packet, out),
            Self::Peer(peer) => peer.receive(packet, out),
            Self::Stray(_) => {}
        }
    }

    fn wake(&mut self, now: Now, out: &mut Outbox) {
        match self {
            Self::Server(server) => server.run(now, out),
            Self::Client(client) => client.wake(now, out),
            Self::Peer(_) => {}
            Self::Stray(stray) => stray.wake(now, out),
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        match self {
            Self::Server(server) => server.next_wake(),
            Self::Client(client) => client.next_wake(),
            Self::Peer(_) => None,
            Self::Stray(stray) => stray.next_wake(),
        }
    }
}

impl Node {
    fn violation(&self) -> Option<&String> {
        match self {
            Self::Server(server) => server.violation.as_ref(),
            Self::Client(client) => client.violation.as_ref(),
            Self::Peer(peer) => peer.violation.as_ref(),
            Self::Stray(_) => None,
        }
    }
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn listeners() -> [SocketAddr; 2] {
    [addr("198.51.100.1:3478"), addr("[2001:db8:1::1]:3478")]
}

fn peers() -> [SocketAddr; 3] {
    [addr("192.0.2.10:7000"), addr("192.0.2.11:7000"), addr("[2001:db8:2::10]:7000")]
}

fn password_of(user: &str) -> String {
    format!("password of {user}")
}

/// The user database.
fn look_up(query: &UserQuery) -> UserAnswer {
    let UserQuery::Name(name) = query else { return UserAnswer::Unknown };
    if !USERS.contains(&&**name) {
        return UserAnswer::Unknown;
    }
    let keys = LongTermKeys::new(name, REALM, &password_of(name)).unwrap();
    UserAnswer::Known(User {
        name: Arc::clone(name),
        keys: UserKeys { md5: Secret::new(keys.md5), sha256: Some(Secret::new(keys.sha256)) },
        allocations_max: None,
    })
}

fn policy(rng: &mut Rng) -> Policy {
    let allow = ["192.0.2.0/24", "2001:db8:2::/48"].map(|prefix| prefix.parse().unwrap());
    let ips = listeners().map(|listener| listener.ip());
    let some = |rng: &mut Rng, value| if rng.below(4) == 0 { value } else { 0 };
    Policy {
        realm: REALM.into(),
        auth: AuthPolicy { users: true, nonce_key: Secret::new([42; 32]), ..AuthPolicy::default() },
        relay: ips
            .map(|ip| RelayAddress { local: ip, public: ip, ports: RelayPorts::new() })
            .to_vec(),
        lifetimes: Lifetimes {
            allocation_max: Duration::from_secs(1200),
            nonce: Duration::from_secs(*rng.pick(&[60, 900])),
            ..Lifetimes::default()
        },
        quotas: Quotas {
            allocations_per_user: some(rng, 1),
            allocations_per_customer: some(rng, 2),
            new_peers_per_second: some(rng, 1),
            allocations_total: some(rng, 2),
            bytes_per_second: u64::from(some(rng, 2_000)),
            ..Quotas::default()
        },
        peer_rules: PeerRules::new(&allow, &[], &ips),
        unauthenticated: UnauthenticatedBudget { per_second: some(rng, 1) },
        mobility: rng.below(2) == 0,
        rfc3489_clients: rng.below(2) == 0,
        ..Policy::default()
    }
}

/// TLS and DTLS with one certificate that signs itself.
fn certificates() -> Arc<Certificates> {
    static ALL: OnceLock<Arc<Certificates>> = OnceLock::new();
    let make = || {
        let names = ["turn.example.org".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let key = made.signing_key.serialize_pem();
        let certificate = Certificate::read(made.cert.pem().as_bytes(), key.as_bytes()).unwrap();
        let certificates = Arc::new(Certificates::default());
        certificates.replace(vec![certificate]);
        certificates
    };
    Arc::clone(ALL.get_or_init(make))
}

fn tls() -> TlsConfig {
    static ALL: OnceLock<TlsConfig> = OnceLock::new();
    ALL.get_or_init(|| tls_config(certificates(), None).unwrap()).clone()
}

fn dtls() -> DtlsConfig {
    let handler = CookieHandler::new(Cookies::new(&[7; 32]));
    DtlsConfig::new(certificates(), handler).unwrap()
}

/// A world and its hosts.
pub(crate) struct Scene {
    world: World<Node>,
    rng: Rng,
    server: NodeId,
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
        let mut world = World::new(seed);
        let mut rng = world.rng().fork();
        let tcp = TcpNet::new(rng.fork());
        let policy = policy(&mut rng);
        let mild = rng.below(3) == 0;
        let fault = |percent| if mild { Chance::NEVER } else { Chance::percent(percent) };
        let limits = if rng.below(2) == 0 { (0, 0) } else { (8, 4) };
        let plan = ServerPlan {
            workers: 1 + rng.below(3) as u16,
            policy: policy.clone(),
            listeners: listeners().to_vec(),
            proxies: vec!["198.51.100.77/32".parse().unwrap()],
            tls: (transports.len() > 2 && rng.below(6) > 0).then(tls),
            dtls: (transports.len() > 2).then(dtls),
            limits: ConnectionLimits { total: limits.0, per_address: limits.1 },
            faults: Faults {
                port_taken: fault(5),
                exhausted: fault(2),
                send: fault(1),
                truncated: fault(1),
                watch: fault(2),
                route_refused: fault(5),
            },
            users: DirectoryFaults {
                delay_max: Duration::from_millis(*rng.pick(&[0, 20, 2_000])),
                silent: fault(3),
                unavailable: fault(3),
                refused: fault(3),
            },
        };
        let server = ServerHost::new(plan, look_up, tcp.clone(), rng.fork());
        let internet = world.add_router();
        let server = world.add_host(Node::Server(Box::new(server)));
        let prefixes = listeners().map(|listener| Prefix::host(listener.ip()));
        world.attach(internet, server, LinkConfig::default(), &prefixes);
        world.check("no invariant is broken", |world| {
            let broken = world.hosts().find_map(|(_, host)| host.violation());
            broken.cloned().map_or(Ok(()), Err)
        });
        let mut scene = Self {
            world,
            rng,
            server,
            clients: Vec::new(),
            peers: Vec::new(),
            nats: Vec::new(),
            links: Vec::new(),
            policy,
            board: Board::default(),
            tcp,
            transports,
        };
        scene.add_peers(internet);
        for number in 0..=scene.rng.below(4) as u8 {
            scene.add_client(internet, number);
        }
        scene.add_stray(internet);
        scene
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
        let user = *self.rng.pick(&["alice", "bob", "carol", "alice", "bob", "carol", "mallory"]);
        let plan = ClientPlan {
            number,
            transport,
            me: if proxied { addr("198.51.100.77:1") } else { me },
            server,
            user: user.to_owned(),
            password: password_of(user),
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

    /// Runs the world to its end, and returns the counters of the server.
    pub(crate) fn run(&mut self) -> CounterTotals {
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
        let Node::Server(server) = self.world.host(self.server) else { unreachable!() };
        let suspended = server.suspended_until().saturating_since(self.world.now().instant);
        self.world.run_for(suspended + AFTER);
        self.assert_clean();
        self.stop()
    }

    fn assert_clean(&self) {
        let Node::Server(server) = self.world.host(self.server) else { unreachable!() };
        if let Err(why) = server.is_clean() {
            panic!("{why}");
        }
    }

    fn stop(&mut self) -> CounterTotals {
        self.world.act(self.server, |node, _, out| {
            let Node::Server(server) = node else { unreachable!() };
            server.stop(out);
            server.totals()
        })
    }

    /// Lets an operator, a NAT or a network do something.
    fn operate(&mut self) {
        match self.rng.below(16) {
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
                        self.world.act(client, |node, now, _| match node {
                            Node::Client(client) => client.rebound(now.instant),
                            Node::Server(_) | Node::Peer(_) | Node::Stray(_) => {}
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
            _ => {
                let links = self.links.clone();
                links.into_iter().for_each(|link| self.world.link_mut(link).up = true);
            }
        }
    }

    fn with_server(&mut self, act: impl FnOnce(&mut ServerHost)) {
        self.world.act(self.server, |node, now, out| {
            let Node::Server(server) = node else { unreachable!() };
            act(server);
            server.run(now, out);
        });
    }

    pub(crate) const fn digest(&self) -> u64 {
        self.world.digest()
    }

    fn sum(&self, nodes: &[NodeId], value: impl Fn(&Node) -> u64) -> u64 {
        nodes.iter().map(|id| value(self.world.host(*id))).sum()
    }

    pub(crate) fn allocations(&self) -> u64 {
        self.sum(&self.clients, |node| match node {
            Node::Client(client) => client.allocations,
            Node::Server(_) | Node::Peer(_) | Node::Stray(_) => 0,
        })
    }

    pub(crate) fn moves(&self) -> u64 {
        self.sum(&self.clients, |node| match node {
            Node::Client(client) => client.moves,
            Node::Server(_) | Node::Peer(_) | Node::Stray(_) => 0,
        })
    }

    pub(crate) fn received_by_clients(&self) -> u64 {
        self.sum(&self.clients, |node| match node {
            Node::Client(client) => client.received,
            Node::Server(_) | Node::Peer(_) | Node::Stray(_) => 0,
        })
    }

    pub(crate) fn received_by_peers(&self) -> u64 {
        self.sum(&self.peers, |node| match node {
            Node::Peer(peer) => peer.received,
            Node::Server(_) | Node::Client(_) | Node::Stray(_) => 0,
        })
    }
}
