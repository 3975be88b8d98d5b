//! A client: `turn-client` over one of the transports, doing what clients do at random moments.

use std::net::SocketAddr;
use std::time::Duration;

use netsim::{Body, Outbox, Packet, Rng};
use stun_wire::{AttributeType, Class, Message, Method, value};
use turn_client::{
    AccessToken, AlgorithmChoice, AllocateOptions, Client, ClientConfig, Event, Families, Incoming,
};
use turn_types::{Instant, IpFamily, Now, PeerAddr, ServerAddr, Transport, UnixSeconds};

use crate::addresses::FormerAddresses;
use crate::framing::{Board, client_of, payload};
use crate::link::Link;
use crate::tcp::TcpNet;

/// Longest pause between two actions.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Longest silence: past the ends of connections, permissions and allocations.
const SILENCE_MAX: Duration = Duration::from_secs(900);

/// Time for a connection to be established, or for a handshake to be complete.
const CONNECT_TIME: Duration = Duration::from_secs(8);

/// Everything a client begins with.
#[derive(Clone, Debug)]
pub struct ClientPlan {
    /// Number of the client, in all its payloads.
    pub number: u8,
    /// Transport to the server.
    pub transport: Transport,
    /// Address of the client; over TCP and TLS each connection has a port of its own.
    pub me: SocketAddr,
    /// The server.
    pub server: SocketAddr,
    /// User, as `log_in` knows it.
    pub user: &'static str,
    /// Credentials of a user at a time.
    pub log_in: fn(&str, UnixSeconds) -> Login,
    /// Peers to talk to.
    pub peers: Vec<SocketAddr>,
    /// A load balancer connects for the client: PROXY header of its connections.
    pub proxy: Option<SocketAddr>,
    /// End of its life.
    pub until: Instant,
}

/// Credentials of a client.
#[derive(Clone, Debug)]
pub struct Login {
    /// User name.
    pub user: String,
    /// Password.
    pub password: String,
    /// An access token in place of the password (RFC 7635).
    pub token: Option<AccessToken>,
}

/// A client.
#[derive(Debug)]
pub struct ClientHost {
    plan: ClientPlan,
    tcp: TcpNet,
    board: Board,
    rng: Rng,
    client: Client,
    link: Option<Link>,
    /// A TCP connection that is not established yet.
    connecting: Option<crate::tcp::TcpEnd>,
    linked_at: Instant,
    unix: UnixSeconds,
    acts_at: Instant,
    silent: bool,
    sent: u32,
    gone: bool,
    former: FormerAddresses,
    /// Payloads received.
    pub received: u64,
    /// Allocations that it had.
    pub allocations: u64,
    /// Moves of allocations to another address.
    pub moves: u64,
    /// The first byte that was another's.
    pub violation: Option<String>,
}

impl ClientHost {
    /// A client that has done nothing yet.
    #[must_use]
    pub fn new(plan: ClientPlan, tcp: TcpNet, board: Board, mut rng: Rng) -> Self {
        let client = new_client(&plan, UnixSeconds(0), &mut rng);
        Self {
            plan,
            tcp,
            board,
            rng,
            client,
            link: None,
            connecting: None,
            linked_at: Instant::ZERO,
            unix: UnixSeconds(0),
            acts_at: Instant::ZERO,
            silent: false,
            sent: 0,
            gone: false,
            former: FormerAddresses::default(),
            received: 0,
            allocations: 0,
            moves: 0,
            violation: None,
        }
    }

    /// The user.
    #[must_use]
    pub const fn user(&self) -> &'static str {
        self.plan.user
    }

    /// Takes a packet.
    pub fn receive(&mut self, now: Now, packet: Packet, out: &mut Outbox) {
        let Body::Udp(bytes) = packet.body else { return };
        if let Err(why) = self.former.check(now.instant, packet.dst, &bytes) {
            self.violation.get_or_insert(why);
        }
        let Some(Link::Udp(datagrams) | Link::Dtls(datagrams, _)) = &self.link else { return };
        if packet.src == self.client.server().0 && packet.dst == self.plan.me {
            datagrams.deliver(bytes);
            self.wake(now, out);
        }
    }

    /// Serves timers and the connection, and acts when it is time.
    pub fn wake(&mut self, now: Now, out: &mut Outbox) {
        let at = now.instant;
        if std::mem::replace(&mut self.unix, now.unix) == UnixSeconds(0) {
            self.client = new_client(&self.plan, now.unix, &mut self.rng);
        }
        self.tcp.advance(at);
        if !self.gone && at >= self.plan.until {
            self.leave(out);
        }
        if self.gone {
            return;
        }
        self.connect(at);
        if at >= self.acts_at {
            self.silent = false;
            self.acts_at = at + Duration::from_millis(50) + self.rng.duration_below(PAUSE_MAX);
            self.act(at);
        }
        if !self.silent {
            self.receive_messages(at);
            self.client.handle_timeout(at);
        }
        self.send_messages();
        self.send_datagrams(out);
    }

    /// Time at which it is to wake.
    #[must_use]
    pub fn next_wake(&self) -> Option<Instant> {
        if self.gone {
            return None;
        }
        let timer = self.client.poll_timeout().filter(|_| !self.silent && self.link.is_some());
        let stream = matches!(self.link, Some(Link::Tcp { .. } | Link::Tls { .. }) | None);
        let event = self.tcp.next_event().filter(|_| stream && !self.silent);
        [Some(self.acts_at), timer, event, Some(self.plan.until)].into_iter().flatten().min()
    }

    /// Notes that a NAT has given the client another public address.
    pub fn rebound(&mut self, at: Instant) {
        let _ = self.client.moved(at);
    }

    /// Notes that the server has died: it may have forgotten the client's last move.
    pub fn server_died(&mut self) {
        self.former.forget();
    }

    /// Goes to another address with its allocation.
    fn change_address(&mut self, at: Instant) {
        self.former.leave(self.plan.me);
        let port = self.plan.me.port() + 1;
        self.plan.me.set_port(port);
        self.link = None;
        let _ = self.client.moved(at);
    }

    fn leave(&mut self, out: &mut Outbox) {
        if let (Some(_), Some(link)) = (self.client.allocation(), &mut self.link)
            && self.rng.below(2) == 0
            && self.client.release(self.plan.until).is_ok()
        {
            while let Some(bytes) = self.client.poll_transmit() {
                link.send(bytes);
            }
        }
        self.send_datagrams(out);
        self.link = None;
        self.connecting = None;
        self.gone = true;
    }

    /// Makes a link if there is none.
    fn connect(&mut self, at: Instant) {
        if self.link.is_some() {
            return;
        }
        if self.plan.transport == Transport::Udp || self.plan.transport == Transport::Dtls {
            self.link = Some(Link::datagrams(self.plan.transport));
        } else if let Some(end) = self.connecting.take() {
            if end.is_writable() {
                if let Some(client) = self.plan.proxy {
                    let header = proxy_header(client, self.client.server().0);
                    let _ = end.write(header.as_bytes());
                }
                self.link = Some(Link::stream(self.plan.transport, end));
            } else if at < self.linked_at + CONNECT_TIME {
                self.connecting = Some(end);
                return;
            }
        } else {
            let from = SocketAddr::new(self.plan.me.ip(), self.tcp.next_port());
            self.connecting = Some(self.tcp.connect(from, self.client.server().0));
        }
        self.linked_at = at;
    }

    /// Forgets the link, and the allocation with it.
    fn drop_link(&mut self) {
        self.link = None;
        self.former.give_up();
        self.client = new_client(&self.plan, self.unix, &mut self.rng);
    }

    fn act(&mut self, at: Instant) {
        if self.link.is_none() {
            return;
        }
        if self.client.allocation().is_none() {
            let mut options = AllocateOptions::default();
            if self.rng.below(4) == 0 {
                options.families = Families::Both;
            }
            options.mobility = self.rng.below(3) > 0;
            // One in flight is an error.
            let asked = self.client.allocate(at, options);
            if asked.is_err() && self.rng.below(8) == 0 {
                self.drop_link();
            }
            return;
        }
        // The first peers most often: to the others no client may send.
        let most = if self.rng.below(4) == 0 { self.plan.peers.len() } else { 3 };
        let peer = PeerAddr(self.plan.peers[self.rng.index(most)]);
        match self.rng.below(40) {
            0 => drop(self.client.release(at)),
            1 => self.drop_link(),
            2 | 3 => {
                self.silent = true;
                self.acts_at = at + self.rng.duration_below(SILENCE_MAX);
            }
            4 => drop(self.client.refresh(at, None, 600)),
            5..=11 => drop(self.client.bind_channel(at, peer)),
            12..=16 => drop(self.client.permit(at, peer.ip())),
            17 => self.send_rubbish(),
            18..=22 if self.client.is_mobile() => self.change_address(at),
            // To where it is already.
            23 => self.rebound(at),
            _ => self.talk(peer),
        }
    }

    /// Sends a burst of payloads to a peer.
    fn talk(&mut self, peer: PeerAddr) {
        let len = self.rng.within(9..1100) as usize;
        for _ in 0..=self.rng.below(12) {
            self.sent += 1;
            let payload = payload(self.plan.number, peer.0, self.sent, len);
            let mut message = vec![0; len + 64];
            let written = match self.client.channel_of(peer) {
                Some(channel) => self.client.write_channel_data(&mut message, channel, &payload),
                None => self.client.write_send_indication(&mut message, peer, &payload, false),
            };
            if let (Some(len), Some(link)) = (written, &mut self.link) {
                link.send(&message[..len]);
            }
        }
    }

    fn send_rubbish(&mut self) {
        let len = self.rng.within(2..200) as usize;
        let mut bytes = self.rng.bytes(len);
        // STUN, ChannelData, or anything. Over TCP the messages that follow become data of its
        // channel, so it is one that no client binds.
        match self.rng.below(3) {
            0 => bytes[0] = 0x00,
            1 => bytes[..2].copy_from_slice(&[0x40, 0xFF]),
            _ if bytes[0] == 0x40 => bytes[0] = 0x50,
            _ => {}
        }
        if let Some(link) = &mut self.link {
            link.send(&bytes);
        }
    }

    fn receive_messages(&mut self, at: Instant) {
        loop {
            let Some(link) = &mut self.link else { return };
            let message = match link.receive() {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(()) if self.client.is_mobile() && self.rng.below(4) > 0 => {
                    return self.change_address(at);
                }
                Err(()) => return self.drop_link(),
            };
            self.note_allocation(&message);
            if let Incoming::Data { payload, .. } = self.client.handle_datagram(at, &message) {
                let Some(number) = payload.first().copied() else { continue };
                let relayed = self.client.allocation().map(|allocation| allocation.relayed);
                let relayed = relayed.into_iter().flatten().flatten();
                let mut relayed = relayed.map(|relayed| relayed.0);
                // A late echo for an earlier holder of the relayed address is no fault of the
                // server.
                let is_own = number == self.plan.number
                    || relayed.any(|relayed| self.board.has_owned(number, relayed));
                let peers = &self.plan.peers;
                if !is_own || !peers.iter().any(|peer| client_of(payload, *peer) == Some(number)) {
                    let me = self.plan.number;
                    self.violation
                        .get_or_insert_with(|| format!("client {me} got bytes of {number}"));
                }
                self.received += 1;
                self.moves += u64::from(self.former.moved(at));
            }
            self.take_events();
        }
        self.take_events();
    }

    /// Notes the relayed addresses of a response to Allocate, also of one that the client ignores:
    /// after a crash of the server, a late duplicate of the request makes another allocation.
    fn note_allocation(&self, message: &[u8]) {
        let Ok(response) = Message::parse(message) else { return };
        if (response.class(), response.method()) != (Class::Success, Method::ALLOCATE) {
            return;
        }
        for attribute in response.attributes() {
            if attribute.kind == AttributeType::XOR_RELAYED_ADDRESS
                && let Ok(relayed) = value::xor_address(attribute.value, response.transaction_id())
            {
                self.board.owns(self.plan.number, relayed);
            }
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.client.poll_event() {
            match event {
                Event::Allocated(allocation) => {
                    self.allocations += 1;
                    for relayed in allocation.relayed.into_iter().flatten() {
                        self.board.owns(self.plan.number, relayed.0);
                    }
                }
                // To another server.
                Event::Redirected { .. } => self.link = None,
                Event::AllocationLost(_) | Event::Released => self.former.give_up(),
                Event::Bound { .. }
                | Event::Refreshed { .. }
                | Event::PermissionReady { .. }
                | Event::ChannelReady { .. }
                | Event::Refused { .. }
                | Event::Failed { .. }
                | Event::PermissionLost { .. }
                | Event::ChannelLost { .. } => {}
            }
        }
    }

    fn send_messages(&mut self) {
        let Some(link) = &mut self.link else { return };
        link.flush();
        while let Some(bytes) = self.client.poll_transmit() {
            link.send(bytes);
        }
    }

    fn send_datagrams(&self, out: &mut Outbox) {
        if let Some(Link::Udp(datagrams) | Link::Dtls(datagrams, _)) = &self.link {
            for datagram in datagrams.take_sent() {
                out.send(Packet::udp(self.plan.me, self.client.server().0, datagram));
            }
        }
    }
}

fn new_client(plan: &ClientPlan, now: UnixSeconds, rng: &mut Rng) -> Client {
    let server = ServerAddr(plan.server);
    let Login { user, password, token } = (plan.log_in)(plan.user, now);
    let mut config = ClientConfig::new(server, &user, &password, rng.seed_32());
    config.token = token;
    config.transport = plan.transport;
    config.algorithms =
        *rng.pick(&[AlgorithmChoice::AsOffered, AlgorithmChoice::Sha256, AlgorithmChoice::Rfc5389]);
    Client::new(config)
}

/// The header of a load balancer (version 1).
fn proxy_header(client: SocketAddr, server: SocketAddr) -> String {
    let family = match IpFamily::of(client.ip()) {
        IpFamily::V4 => "TCP4",
        IpFamily::V6 => "TCP6",
    };
    let (from, to) = (client.ip(), server.ip());
    format!("PROXY {family} {from} {to} {} {}\r\n", client.port(), server.port())
}
