//! Oracle: the server's rules for each packet, with a [`Server`] and simulated sockets.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stun_wire::{AttributeType, Class, Message, MessageBuilder, Method, TransactionId, value};
use turn_proto::*;
use turn_types::*;
use xdp_relay::FlowId;

use super::frame::Datagram;

const SEED: [u8; 32] = [7; 32];

/// Registry of a server without other servers or workers.
#[derive(Debug, Default)]
struct Alone(Mutex<Registry>);

impl SharedRegistry for Alone {
    fn with(&self, f: &mut dyn FnMut(&mut Registry)) {
        f(&mut self.0.lock().unwrap());
    }
}

/// Change of a route.
#[derive(Clone, Debug)]
pub enum Told {
    Set(Route),
    Removed(RouteId),
}

/// Allocation that a packet passed through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    pub allocation: AllocationId,
    /// Channel number, or `None` for datagrams without a channel.
    pub channel: Option<u16>,
    pub to_client: bool,
    /// Payload bytes.
    pub bytes: u64,
}

impl Leg {
    pub fn flow(&self) -> Option<FlowId> {
        Some(FlowId { allocation: self.allocation, channel: self.channel? })
    }
}

/// Datagram that leaves this host, after all allocations on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relayed {
    pub legs: Vec<Leg>,
    pub datagram: Datagram,
}

/// Server's decision on a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    Relayed(Relayed),
    Dropped(DropReason, Vec<Leg>),
    /// The datagram gets a response, or the destination has no socket.
    Other,
}

pub struct Oracle {
    server: Server,
    pub policy: Policy,
    pub now: Now,
    /// Addresses of listeners.
    listeners: Vec<SocketAddr>,
    /// Open relay sockets.
    sockets: BTreeMap<RelayId, SocketAddr>,
    pub routes: BTreeMap<RouteId, Route>,
    told: Vec<Told>,
    reply: Box<ReplyBuffer>,
    transactions: u32,
    /// Relayed traffic of the given packets.
    pub relayed: BTreeMap<AllocationId, Traffic>,
    /// Number of first packets of channels, which are not counted.
    first: BTreeMap<AllocationId, u64>,
}

const HOUR: Duration = Duration::from_hours(1);

/// Returns a policy of an open relay with these addresses and any peer.
pub fn policy(relays: &[IpAddr], own: &[IpAddr]) -> Policy {
    let relay = |ip: &IpAddr| RelayAddress {
        local: *ip,
        public: *ip,
        ports: RelayPorts::new(),
        is_present: true,
    };
    Policy {
        relay: relays.iter().map(relay).collect(),
        lifetimes: Lifetimes {
            allocation_default: HOUR,
            permission: HOUR,
            channel: HOUR,
            ..Lifetimes::default()
        },
        quotas: Quotas {
            allocations_per_user: 0,
            allocations_per_customer: 0,
            new_peers_per_second: 0,
            ..Quotas::default()
        },
        peer_rules: rules(&[], own),
        unauthenticated: UnauthenticatedBudget { per_second: 0 },
        rfc5766_clients: true,
        ..Policy::new(
            "turn.example.org".into(),
            AuthPolicy { open: true, ..AuthPolicy::new(Secret::new([1; 32])) },
        )
    }
}

/// Returns rules that permit all peers, except `deny`.
pub fn rules(deny: &[&str], own: &[IpAddr]) -> PeerRules {
    let all = ["0.0.0.0/0", "::/0"].map(|text| text.parse().unwrap());
    let deny: Vec<Prefix> = deny.iter().map(|text| text.parse().unwrap()).collect();
    PeerRules::new(&all, &deny, own)
}

impl Oracle {
    pub fn new(policy: Policy, now: Now, listeners: Vec<SocketAddr>) -> Self {
        let server = Server::new(ServerConfig {
            worker: WorkerId(3),
            policy: Arc::new(policy.clone()),
            registry: Arc::new(Alone::default()),
            seed: SEED,
            routes: true,
        });
        Self {
            server,
            policy,
            now,
            listeners,
            sockets: BTreeMap::new(),
            routes: BTreeMap::new(),
            told: Vec::new(),
            reply: Box::new([0; REPLY_MAX]),
            transactions: 0,
            relayed: BTreeMap::new(),
            first: BTreeMap::new(),
        }
    }

    /// Replaces the policy.
    pub fn apply(&mut self, change: impl FnOnce(&mut Policy)) {
        change(&mut self.policy);
        self.server.apply(self.now, Arc::new(self.policy.clone()));
        self.carry_out();
    }

    /// Returns the changes of routes since the last call.
    pub fn told(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.told)
    }

    /// Returns the server's counts for each allocation.
    pub fn counted(&self) -> BTreeMap<AllocationId, Traffic> {
        let counted = self.server.allocations().map(|record| {
            let mut traffic = record.traffic;
            traffic.to_peer_packets -= self.first.get(&record.id).copied().unwrap_or(0);
            (record.id, traffic)
        });
        counted.collect()
    }

    fn path(client: SocketAddr, server: SocketAddr) -> ClientPath {
        let five_tuple = FiveTuple {
            transport: Transport::Udp,
            client: ClientAddr(client),
            server: ServerAddr(server),
        };
        ClientPath { five_tuple, socket: SocketId(4) }
    }

    /// Sends a request that must succeed, and returns the response.
    fn ask(
        &mut self,
        (client, server): (SocketAddr, SocketAddr),
        method: Method,
        write: impl FnOnce(&mut MessageBuilder<'_>),
    ) -> Vec<u8> {
        self.transactions += 1;
        let mut id = [0xC1; 12];
        id[..4].copy_from_slice(&self.transactions.to_be_bytes());
        let mut request = vec![0; 512];
        let mut builder =
            MessageBuilder::new(&mut request, Class::Request, method, TransactionId(id));
        write(&mut builder);
        let len = builder.finish().unwrap();
        let path = Self::path(client, server);
        let (now, reply) = (self.now, &mut self.reply);
        let verdict =
            self.server.handle_client(now, &path, IpMeta::DEFAULT, &request[..len], reply);
        let len = match verdict {
            Verdict::Reply { len, .. } => Some(len),
            Verdict::Wait | Verdict::Hold => None,
            other => panic!("{other:?} to {method:?}"),
        };
        let waited = self.carry_out();
        let len = len.or(waited).unwrap();
        let answer = self.reply[..len.into()].to_vec();
        let message = Message::parse(&answer).unwrap();
        assert_eq!(message.class(), Class::Success, "{method:?} of {client}: {answer:x?}");
        answer
    }

    /// Creates a dual allocation, and returns the relayed addresses.
    pub fn allocate(&mut self, client: SocketAddr, server: SocketAddr) -> [SocketAddr; 2] {
        let answer = self.ask((client, server), Method::ALLOCATE, |builder| {
            builder.requested_transport(17).additional_address_family(2);
        });
        let message = Message::parse(&answer).unwrap();
        let relayed: Vec<SocketAddr> = message
            .attributes()
            .filter(|attribute| attribute.kind == AttributeType::XOR_RELAYED_ADDRESS)
            .map(|a| value::xor_address(a.value, message.transaction_id()).unwrap())
            .collect();
        relayed.try_into().unwrap()
    }

    pub fn bind(&mut self, client: (SocketAddr, SocketAddr), number: u16, peer: SocketAddr) {
        self.ask(client, Method::CHANNEL_BIND, |builder| {
            let [high, low] = number.to_be_bytes();
            builder.attribute(AttributeType::CHANNEL_NUMBER, &[high, low, 0, 0]);
            builder.xor_address(AttributeType::XOR_PEER_ADDRESS, peer);
        });
        self.send_first(client, number);
    }

    /// Sends the first data of a channel, which installs the route. The data is not counted, and
    /// does not use the bandwidth.
    fn send_first(&mut self, (client, server): (SocketAddr, SocketAddr), number: u16) {
        let path = Self::path(client, server);
        let of_it =
            |route: &&Route| route.five_tuple == path.five_tuple && route.id.channel == number;
        if self.routes.values().any(|route| of_it(&route)) {
            return;
        }
        let rate = self.policy.quotas.bytes_per_second;
        if rate > 0 {
            self.apply(|policy| policy.quotas.bytes_per_second = 0);
        }
        let [high, low] = number.to_be_bytes();
        let (now, packet) = (self.now, [high, low, 0, 0]);
        self.server.handle_client(now, &path, IpMeta::DEFAULT, &packet, &mut self.reply);
        self.carry_out();
        if let Some(route) = self.routes.values().find(of_it) {
            *self.first.entry(route.id.allocation).or_default() += 1;
        }
        if rate > 0 {
            self.apply(|policy| policy.quotas.bytes_per_second = rate);
        }
    }

    pub fn permit(&mut self, client: SocketAddr, server: SocketAddr, peer: SocketAddr) {
        self.ask((client, server), Method::CREATE_PERMISSION, |builder| {
            builder.xor_address(AttributeType::XOR_PEER_ADDRESS, peer);
        });
    }

    /// Removes the allocation of a client.
    pub fn end(&mut self, client: SocketAddr, server: SocketAddr) {
        self.ask((client, server), Method::REFRESH, |builder| {
            builder.lifetime(0);
        });
    }

    /// Executes the server's commands. Returns the length of a response that waited for the
    /// commands.
    fn carry_out(&mut self) -> Option<u16> {
        let mut answer = None;
        while let Some(command) = self.server.poll_command() {
            match command {
                Command::OpenRelay { pending, relay, at } => {
                    self.sockets.insert(relay, at.0);
                    let event = Event::RelayOpened { pending, relay, result: Ok(()) };
                    let (now, reply) = (self.now, &mut self.reply);
                    let waited = self.server.handle_event(now, event, reply);
                    answer = waited.map(|answer| answer.len).or(answer);
                }
                Command::Tcp(command) => unreachable!("{command:?}, and no TCP is relayed"),
                Command::CloseRelay { relay } => drop(self.sockets.remove(&relay)),
                Command::SetRoute(route) => {
                    self.routes.insert(route.id, *route);
                    self.told.push(Told::Set(*route));
                }
                Command::RemoveRoute(id) => {
                    self.routes.remove(&id);
                    self.told.push(Told::Removed(id));
                }
                Command::SuspendRoutes | Command::ResumeRoutes => {
                    unreachable!("{command:?} for a few routes")
                }
                Command::FindUser { .. }
                | Command::Authorize { .. }
                | Command::UserOverdue { .. } => {
                    panic!("an open relay asks for nobody")
                }
                Command::AskWorker { .. } | Command::Fetch { .. } | Command::HandOver(_) => {
                    panic!("nobody moves on an open relay")
                }
            }
        }
        while self.server.poll_notice().is_some() {}
        answer
    }

    fn socket_at(&self, at: SocketAddr) -> Option<RelayId> {
        self.sockets.iter().find(|(_, socket)| **socket == at).map(|(id, _)| *id)
    }

    /// Returns the fate of a datagram received by a socket. Datagrams to a relayed address of this
    /// host continue to that relay.
    pub fn take(&mut self, datagram: &Datagram) -> Fate {
        let mut legs = Vec::new();
        let fate = if self.listeners.contains(&datagram.to) {
            self.client_sent(datagram, &mut legs)
        } else if let Some(relay) = self.socket_at(datagram.to) {
            self.peer_sent(relay, datagram, &mut legs)
        } else {
            Ok(None)
        };
        self.carry_out();
        for leg in &legs {
            let relayed = self.relayed.entry(leg.allocation).or_default();
            let (packets, bytes) = if leg.to_client {
                (&mut relayed.to_client_packets, &mut relayed.to_client_bytes)
            } else {
                (&mut relayed.to_peer_packets, &mut relayed.to_peer_bytes)
            };
            *packets += 1;
            *bytes += leg.bytes;
        }
        match fate {
            Ok(Some(datagram)) => Fate::Relayed(Relayed { legs, datagram }),
            Ok(None) => Fate::Other,
            Err(reason) => Fate::Dropped(reason, legs),
        }
    }

    /// Returns the outbound form of a client's datagram.
    fn client_sent(
        &mut self,
        datagram: &Datagram,
        legs: &mut Vec<Leg>,
    ) -> Result<Option<Datagram>, DropReason> {
        let path = Self::path(datagram.from, datagram.to);
        let (now, meta, bytes) = (self.now, datagram.meta(), &datagram.payload);
        let verdict = self.server.handle_client(now, &path, meta, bytes, &mut self.reply);
        self.carry_out();
        let (relay, peer, range, meta) = match verdict {
            Verdict::ToPeer { relay, peer, start, len, meta } => {
                let start = usize::from(start);
                (relay, peer.0, start..start + usize::from(len), meta)
            }
            Verdict::Drop(reason) => return Err(reason),
            Verdict::Reply { .. }
            | Verdict::ReplyFrom { .. }
            | Verdict::Wait
            | Verdict::Hold
            | Verdict::Queued => {
                return Ok(None);
            }
            Verdict::ToClient { .. } => panic!("from one client to another"),
        };
        let number = u16::from_be_bytes([bytes[0], bytes[1]]);
        let is_it =
            |route: &&Route| route.five_tuple == path.five_tuple && route.id.channel == number;
        let id = self.routes.values().find(is_it).expect("a channel that relays has a route").id;
        legs.push(Leg {
            allocation: id.allocation,
            channel: Some(id.channel),
            to_client: false,
            bytes: range.len() as u64,
        });
        let payload = bytes[range].to_vec();
        let left = Datagram::relayed(self.sockets[&relay], peer, meta, payload);
        match self.socket_at(peer) {
            Some(other) => self.peer_sent(other, &left, legs),
            None => Ok(Some(left)),
        }
    }

    /// Returns the outbound form of a peer's datagram.
    fn peer_sent(
        &mut self,
        relay: RelayId,
        datagram: &Datagram,
        legs: &mut Vec<Leg>,
    ) -> Result<Option<Datagram>, DropReason> {
        let Datagram { from: peer, ref payload, .. } = *datagram;
        let mut header = [0xEE; HEADER_MAX];
        let (now, meta, len) = (self.now, datagram.meta(), payload.len());
        let verdict = self.server.handle_peer(now, relay, PeerAddr(peer), meta, len, &mut header);
        self.carry_out();
        let (client, from, header_len, padding, meta) = match verdict {
            Verdict::ToClient { client, from, header, padding, meta, .. } => {
                (client.0, from, usize::from(header), usize::from(padding), meta)
            }
            Verdict::Drop(reason) => return Err(reason),
            other => panic!("{other:?} for a peer's datagram"),
        };
        let relayed = self.sockets[&relay];
        let is_it = |route: &&Route| route.relayed.0 == relayed && route.peer.0 == peer;
        legs.push(Leg {
            allocation: self.counted_by(client, relayed),
            channel: self.routes.values().find(is_it).map(|route| route.id.channel),
            to_client: true,
            bytes: len as u64,
        });
        let bytes = [&header[..header_len], payload, &[0; 4][..padding]].concat();
        let port = self.listeners.iter().find(|at| at.ip() == from).unwrap().port();
        Ok(Some(Datagram::relayed(SocketAddr::new(from, port), client, meta, bytes)))
    }

    /// Returns the allocation of a client that has this relayed address.
    fn counted_by(&self, client: SocketAddr, relayed: SocketAddr) -> AllocationId {
        let of_it = |record: &AllocationRecord| {
            record.five_tuple.client.0 == client
                && record.relayed.iter().flatten().any(|at| at.0 == relayed)
        };
        self.server.allocations().find(of_it).unwrap().id
    }
}
