//! Clients over streams in a simulated world: messages cut into single bytes, reordered segments,
//! connections that stall, and connections that close in the middle of a message. Nothing is lost,
//! altered or out of order, and the end of a connection ends all state of the client.
//!
//! `SEED=... cargo test -p turn-proto stream_simulation` runs a single world.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use netsim::{Body, Host, LinkConfig, NodeId, Outbox, Packet, Rng, Stream, World};
use stun_wire::{ChannelNumber, Cut, next_message};
use test_support::for_each_seed;
use turn_client::{AllocateOptions, Client, ClientConfig, Event as ClientEvent, Incoming};
use turn_proto::{Command, EndReason, Event};
use turn_types::{Instant, Now, PeerAddr, Prefix, Transport};

use crate::sim::driver::{Driver, Sent};
use crate::sim::setup::{USERS, addr, listeners, look_up, password_of, policy, relay_ips};

/// Duration of all conversations.
const RUN: Duration = Duration::from_secs(200);

/// Longer than any delay in the network.
const AFTER: Duration = Duration::from_secs(60);

enum Node {
    Server(Box<ServerNode>),
    Client(Box<ClientNode>),
    Peer(SocketAddr),
}

/// A connection as the server has it.
struct Connection {
    stream: Stream,
    listener: usize,
    /// The beginning of a message.
    partial: Vec<u8>,
    segment: usize,
}

struct ServerNode {
    driver: Driver,
    rng: Rng,
    /// By the client's address.
    connections: BTreeMap<SocketAddr, (u32, Connection)>,
    answers: Vec<(Instant, Event)>,
    closed: u64,
    violation: Option<String>,
}

impl ServerNode {
    fn receive(&mut self, now: Now, packet: Packet, out: &mut Outbox) {
        let Body::Udp(bytes) = packet.body else { return };
        match listeners().iter().position(|listener| listener.0 == packet.dst) {
            Some(listener) => self.hear(now, (packet.src, listener), &bytes, out),
            None => {
                if self.driver.is_open(packet.dst) {
                    let sent = self.driver.peer(now, packet.dst, packet.src, &bytes);
                    self.after(now, sent, out);
                }
            }
        }
    }

    fn hear(
        &mut self,
        now: Now,
        (from, listener): (SocketAddr, usize),
        bytes: &[u8],
        out: &mut Outbox,
    ) {
        let Some(number) = Stream::connection_of(bytes) else { return };
        if let Some((known, _)) = self.connections.get(&from) {
            if number < *known {
                // Bytes of an abandoned connection.
                return;
            }
            if number > *known {
                self.close(now, from, out);
            }
        }
        let segment = *self.rng.pick(&[1, 2, 3, 7, 100, 1_400]);
        let fresh = || {
            (number, Connection { stream: Stream::new(number), listener, partial: vec![], segment })
        };
        let (_, connection) = self.connections.entry(from).or_insert_with(fresh);
        let heard = connection.stream.receive(bytes);
        connection.partial.extend(&heard.bytes);
        while let Some(message) = self.next(from) {
            let path = Driver::stream_path(from, listener);
            let sent = self.driver.client(now, &path, &message);
            self.after(now, sent, out);
        }
        if heard.ended {
            self.close(now, from, out);
        }
    }

    /// Removes the next complete message.
    fn next(&mut self, from: SocketAddr) -> Option<Vec<u8>> {
        let (_, connection) = self.connections.get_mut(&from)?;
        match next_message(&connection.partial) {
            Cut::Message { len, padded_len } => {
                let rest = connection.partial.split_off(padded_len);
                let mut message = std::mem::replace(&mut connection.partial, rest);
                message.truncate(len);
                Some(message)
            }
            Cut::NeedMore { .. } => None,
            Cut::Garbage => {
                self.violation = Some(format!("garbage in the stream of {from}"));
                None
            }
        }
    }

    fn close(&mut self, now: Now, from: SocketAddr, out: &mut Outbox) {
        if let Some((_, connection)) = self.connections.remove(&from) {
            self.closed += 1;
            self.driver.close(now, &Driver::stream_path(from, connection.listener));
            self.after(now, None, out);
        }
    }

    fn after(&mut self, now: Now, sent: Option<Sent>, out: &mut Outbox) {
        if let Some(Sent { from, to, payload, .. }) = sent {
            match self.connections.get_mut(&to) {
                Some((_, Connection { stream, segment, .. }))
                    if listeners().iter().any(|one| one.0 == from) =>
                {
                    let mut bytes = payload;
                    // Each message of the server has a multiple of 4 bytes (RFC 8656 §12.5).
                    bytes.resize(bytes.len().next_multiple_of(4), 0);
                    for segment in stream.send(&bytes, *segment) {
                        out.send(Packet::udp(from, to, segment));
                    }
                }
                _ => out.send(Packet::udp(from, to, payload)),
            }
        }
        for command in std::mem::take(&mut self.driver.commands) {
            let at = now.instant + self.rng.duration_below(Duration::from_millis(300));
            let answer = match command {
                Command::FindUser { pending, user, .. } => {
                    Event::UserFound { pending, answer: look_up(&user) }
                }
                Command::UserOverdue { pending } => {
                    Event::UserFound { pending, answer: turn_proto::UserAnswer::Unavailable }
                }
                Command::OpenRelay { pending, relay, .. } => {
                    Event::RelayOpened { pending, relay, result: Ok(()) }
                }
                Command::CloseRelay { .. }
                | Command::Authorize { .. }
                | Command::SetRoute(_)
                | Command::RemoveRoute(_)
                | Command::SuspendRoutes
                | Command::ResumeRoutes
                | Command::AskWorker { .. }
                | Command::Fetch { .. }
                | Command::HandOver(_)
                | Command::Tcp(_) => continue,
            };
            self.answers.push((at, answer));
        }
        if let Err(why) = self.driver.audit(now.instant) {
            self.violation.get_or_insert(why);
        }
    }

    fn wake(&mut self, now: Now, out: &mut Outbox) {
        if self.driver.server.poll_timeout().is_some_and(|at| at <= now.instant) {
            self.driver.timeout(now);
            self.after(now, None, out);
        }
        while let Some(at) = self.answers.iter().position(|(at, _)| *at <= now.instant) {
            let (_, event) = self.answers.remove(at);
            let sent = self.driver.answer(now, event);
            self.after(now, sent, out);
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let answers = self.answers.iter().map(|(at, _)| *at).min();
        [answers, self.driver.server.poll_timeout()].into_iter().flatten().min()
    }
}

/// A client that connects, allocates, binds a channel to the peer that echoes, and counts the
/// echoes.
struct ClientNode {
    client: Client,
    config: ClientConfig,
    me: SocketAddr,
    rng: Rng,
    stream: Stream,
    connections: u32,
    partial: Vec<u8>,
    peer: PeerAddr,
    ready: Option<Option<ChannelNumber>>,
    next: Instant,
    /// Numbers of messages sent and echoed on this connection.
    sent: u32,
    echoed: u32,
    /// Sum over all connections.
    total_echoed: u32,
    /// True if no new message is started.
    quiet: bool,
    violation: Option<String>,
}

impl ClientNode {
    fn new(config: ClientConfig, me: SocketAddr, peer: SocketAddr, rng: Rng) -> Self {
        Self {
            client: Client::new(config.clone()),
            config,
            me,
            rng,
            stream: Stream::new(1),
            connections: 1,
            partial: Vec::new(),
            peer: PeerAddr(peer),
            ready: None,
            next: Instant::ZERO,
            sent: 0,
            echoed: 0,
            total_echoed: 0,
            quiet: false,
            violation: None,
        }
    }

    fn send(&mut self, bytes: &[u8], out: &mut Outbox) {
        let len = *self.rng.pick(&[1, 2, 5, 64, 1_400]);
        for segment in self.stream.send(bytes, len) {
            out.send(Packet::udp(self.me, self.client.server().0, segment));
        }
    }

    fn receive(&mut self, now: Now, packet: &Packet, out: &mut Outbox) {
        let Body::Udp(segment) = &packet.body else { return };
        if Stream::connection_of(segment) != Some(self.connections) {
            return;
        }
        self.partial.extend(self.stream.receive(segment).bytes);
        loop {
            let (len, padded_len) = match next_message(&self.partial) {
                Cut::Message { len, padded_len } => (len, padded_len),
                Cut::NeedMore { .. } => break,
                Cut::Garbage => {
                    self.violation = Some("garbage from the server".to_owned());
                    break;
                }
            };
            let rest = self.partial.split_off(padded_len);
            let message = std::mem::replace(&mut self.partial, rest);
            if let Incoming::Data { payload, .. } =
                self.client.handle_datagram(now.instant, &message[..len])
            {
                let number = u32::from_be_bytes(*payload.first_chunk().unwrap());
                let whole =
                    payload.len() == payload_of(number).len() && payload == payload_of(number);
                if number != self.echoed || !whole {
                    self.violation =
                        Some(format!("{number} came back in place of {}", self.echoed));
                }
                self.echoed += 1;
                self.total_echoed += 1;
            }
        }
        self.flush(out);
    }

    fn wake(&mut self, now: Now, out: &mut Outbox) {
        if self.client.poll_timeout().is_some_and(|at| at <= now.instant) {
            self.client.handle_timeout(now.instant);
        }
        if self.next <= now.instant {
            self.next = now.instant
                + Duration::from_millis(1)
                + self.rng.duration_below(Duration::from_secs(4));
            if !self.quiet {
                self.act(now.instant, out);
            }
        }
        self.flush(out);
    }

    fn act(&mut self, now: Instant, out: &mut Outbox) {
        if self.client.allocation().is_none() {
            let _ = self.client.allocate(now, AllocateOptions::default());
            return;
        }
        let Some(channel) = self.ready else {
            let _ = if self.rng.below(2) == 0 {
                self.client.permit(now, self.peer.ip())
            } else {
                self.client.bind_channel(now, self.peer).map(|_| ())
            };
            return;
        };
        match self.rng.below(60) {
            0 => self.leave(out),
            1 if channel.is_none() => {
                let _ = self.client.bind_channel(now, self.peer);
            }
            _ => {
                for _ in 0..=self.rng.below(5) {
                    self.talk(channel, out);
                }
            }
        }
    }

    fn talk(&mut self, channel: Option<ChannelNumber>, out: &mut Outbox) {
        let payload = payload_of(self.sent);
        let mut message = [0; 1_500];
        let len = match channel {
            Some(channel) => self.client.write_channel_data(&mut message, channel, &payload),
            None => self.client.write_send_indication(&mut message, self.peer, &payload, false),
        };
        self.sent += 1;
        let len = len.unwrap();
        self.send(&message[..len.next_multiple_of(4)], out);
    }

    /// Closes the connection, sometimes in the middle of a message, and opens another from the same
    /// port.
    fn leave(&mut self, out: &mut Outbox) {
        if self.rng.below(2) == 0 {
            // The beginning of ChannelData.
            self.send(&[0x40, 0, 0, 100, 1, 2, 3], out);
        }
        if self.rng.below(3) > 0 {
            let end = self.stream.end();
            out.send(Packet::udp(self.me, self.client.server().0, end));
        }
        self.connections += 1;
        self.stream = Stream::new(self.connections);
        self.config.seed = self.rng.seed_32();
        self.client = Client::new(self.config.clone());
        self.partial.clear();
        (self.ready, self.sent, self.echoed) = (None, 0, 0);
    }

    fn flush(&mut self, out: &mut Outbox) {
        while let Some(request) = self.client.poll_transmit() {
            let request = request.to_vec();
            self.send(&request, out);
        }
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::PermissionReady { .. } => {
                    self.ready.get_or_insert(None);
                }
                ClientEvent::ChannelReady { channel, .. } => self.ready = Some(Some(channel)),
                ClientEvent::Refused { .. }
                | ClientEvent::Failed { .. }
                | ClientEvent::AllocationLost(_)
                | ClientEvent::PermissionLost { .. }
                | ClientEvent::ChannelLost { .. } => {
                    self.violation = Some(format!("{event:?}"));
                }
                ClientEvent::Allocated(_)
                | ClientEvent::Released
                | ClientEvent::Bound { .. }
                | ClientEvent::Refreshed { .. }
                | ClientEvent::Redirected { .. } => {}
            }
        }
    }
}

/// Returns the message of this number, which determines its length and bytes.
fn payload_of(number: u32) -> Vec<u8> {
    let mut payload = number.to_be_bytes().to_vec();
    payload.resize(4 + (number as usize * 37) % 900, number as u8);
    payload
}

impl Host for Node {
    fn receive(&mut self, now: Now, packet: Packet, out: &mut Outbox) {
        match self {
            Self::Server(server) => server.receive(now, packet, out),
            Self::Client(client) => client.receive(now, &packet, out),
            Self::Peer(me) => {
                if let Body::Udp(payload) = packet.body {
                    out.send(Packet::udp(*me, packet.src, payload));
                }
            }
        }
    }

    fn wake(&mut self, now: Now, out: &mut Outbox) {
        match self {
            Self::Server(server) => server.wake(now, out),
            Self::Client(client) => client.wake(now, out),
            Self::Peer(_) => {}
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        match self {
            Self::Server(server) => server.next_wake(),
            Self::Client(client) => {
                Some(client.client.poll_timeout().map_or(client.next, |at| at.min(client.next)))
            }
            Self::Peer(_) => None,
        }
    }
}

/// A world with a server, a peer that echoes, and clients.
struct Scene {
    world: World<Node>,
    rng: Rng,
    server: NodeId,
    clients: Vec<NodeId>,
    access: Vec<netsim::LinkId>,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let mut world = World::new(seed);
        let mut rng = world.rng().fork();
        let internet = world.add_router();
        let mut driver = Driver::new(policy(), rng.seed_32());
        driver.transport = Transport::Tcp;
        let node = ServerNode {
            driver,
            rng: rng.fork(),
            connections: BTreeMap::new(),
            answers: Vec::new(),
            closed: 0,
            violation: None,
        };
        let server = world.add_host(Node::Server(Box::new(node)));
        let prefixes = relay_ips().map(Prefix::host);
        world.attach(internet, server, LinkConfig::default(), &prefixes);
        let echo = addr("192.0.2.10:7000");
        let peer = world.add_host(Node::Peer(echo));
        world.attach(internet, peer, LinkConfig::default(), &[Prefix::host(echo.ip())]);
        let mut scene = Self { world, rng, server, clients: Vec::new(), access: Vec::new() };
        for number in 0..=scene.rng.below(4) as u8 {
            let me = SocketAddr::new([203, 0, 113, number + 1].into(), 5_000);
            let name = USERS[usize::from(number) % USERS.len()];
            let seed = scene.rng.seed_32();
            let mut config = ClientConfig::new(listeners()[0], name, &password_of(name), seed);
            config.transport = Transport::Tcp;
            let node = ClientNode::new(config, me, echo, scene.rng.fork());
            let id = scene.world.add_host(Node::Client(Box::new(node)));
            // Segments overtake each other by the jitter; none is lost, as TCP would have it.
            let jitter = Duration::from_millis(scene.rng.within(0..200));
            let link = LinkConfig::default().jitter(jitter);
            scene.access.push(scene.world.attach(internet, id, link, &[Prefix::host(me.ip())]));
            scene.clients.push(id);
        }
        scene.world.check("everybody", |world| {
            world.hosts().try_for_each(|(_, node)| {
                let violation = match node {
                    Node::Server(server) => &server.violation,
                    Node::Client(client) => &client.violation,
                    Node::Peer(_) => &None,
                };
                violation.clone().map_or(Ok(()), Err)
            })
        });
        scene
    }

    /// Runs, and has connections stall now and then for longer than a second.
    fn live(&mut self) {
        let end = self.world.now().instant + RUN;
        while self.world.now().instant < end {
            let pause = Duration::from_secs(self.rng.within(5..40));
            self.world.run_for(pause);
            let link = *self.rng.pick(&self.access);
            let stall = Duration::from_secs(self.rng.within(1..8));
            let usual = std::mem::replace(&mut self.world.link_mut(link).delay, stall);
            self.world.run_for(stall);
            self.world.link_mut(link).delay = usual;
        }
    }

    /// Stops new messages. All messages must have returned.
    fn quiet(&mut self) -> u64 {
        for id in self.clients.clone() {
            self.world.act(id, |node, _, _| match node {
                Node::Client(client) => client.quiet = true,
                Node::Server(_) | Node::Peer(_) => {}
            });
        }
        self.world.run_for(AFTER);
        let mut echoed = 0;
        for id in &self.clients {
            if let Node::Client(client) = self.world.host(*id) {
                assert_eq!(client.echoed, client.sent, "SEED={}", self.world.seed());
                echoed += u64::from(client.total_echoed);
            }
        }
        echoed
    }

    /// All connections end.
    fn end(&mut self) -> (u64, u64) {
        self.world.act(self.server, |node, now, out| {
            let Node::Server(server) = node else { return (0, 0) };
            for from in server.connections.keys().copied().collect::<Vec<_>>() {
                server.close(now, from, out);
            }
            assert_eq!(server.driver.open_sockets(), 0);
            let ended = server.driver.ended_by();
            let by_end = ended.get(&EndReason::ConnectionClosed).copied().unwrap_or(0);
            assert_eq!(server.driver.created(), ended.values().sum::<u64>());
            (by_end, server.closed)
        })
    }
}

#[test]
fn streams_lose_nothing_however_they_are_cut_and_stalled() {
    let (mut echoed, mut ended, mut closed, mut runs) = (0, 0, 0, 0);
    for_each_seed(0..20, |seed| {
        let mut scene = Scene::new(seed);
        scene.live();
        echoed += scene.quiet();
        let (by_end, all) = scene.end();
        (ended, closed, runs) = (ended + by_end, closed + all, runs + 1);
    });
    if runs > 1 {
        // A simulation in which nothing happens proves nothing.
        assert!(echoed > 3_000, "{echoed} datagrams came back");
        assert!(ended > 50 && closed >= ended, "{ended} allocations, {closed} connections ended");
    }
}
