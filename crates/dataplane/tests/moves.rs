//! RFC 8016 over sockets: an allocation moves to the worker of the client's new 5-tuple.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::support;

use control::NoAuthorizer;
use control::{
    Asked, LockedRegistry, Mailbox, Request, Series, SessionFilter, UnconfirmedUsers,
    UserDirectory, UserLookup, WorkerCounters,
};
use dataplane::limits::COPIES_WAITING;
use dataplane::{
    Admission, ConnectionLimits, DtlsSettings, Listener, LogOptions, NetOptions, Snapshot,
    StreamSettings, WorkerChannels, WorkerSpec, mailbox, spawn,
};
use stun_wire::{
    AttributeType, Class, IntegrityKey, IntegrityKind, Message, MessageBuilder, Method,
    TransactionId, value,
};
use turn_proto::{AllocationRecord, Policy, SharedRegistry, UserAnswer};
use turn_types::{Transport, WorkerId};

use test_support::eventually;

use crate::support::dtls::{DtlsUser, config};
use crate::support::stream::StreamUser;
use crate::support::{
    LOCALHOST, PASSWORD, PATIENCE, PEER, REALM, Start, USER, World, alice, policy,
};

const WORKERS: u16 = 2;
const CHANNEL: [u8; 2] = [0x40, 0x00];

/// Directory in which every user is alice.
struct Users;

impl UserDirectory for Users {
    fn find(&self, _: UserLookup) -> Asked {
        Asked::Answered(UserAnswer::Known(alice()))
    }

    fn forget(&self, _: &str, _: &str) {}

    fn unconfirmed(&self) -> UnconfirmedUsers {
        UnconfirmedUsers::default()
    }

    fn distrust(&self, _users: &UnconfirmedUsers) {}
}

/// Two workers that share a port.
struct Server {
    addr: SocketAddr,
    mailboxes: Vec<Mailbox>,
    counters: Vec<Arc<WorkerCounters>>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    fn start() -> Self {
        let net = NetOptions::default();
        let (first, _) = Listener::bind(SocketAddr::new(LOCALHOST, 0), &net).unwrap();
        let addr = first.local_addr();
        let (second, _) = Listener::bind(addr, &net).unwrap();
        let policy = Arc::new(Policy { mobility: true, ..policy() });
        let registry: Arc<dyn SharedRegistry> = Arc::new(LockedRegistry::new());
        let mut posts = Vec::new();
        let mut endpoints = Vec::new();
        for _ in 0..WORKERS {
            let (mailbox, endpoint) = mailbox().unwrap();
            posts.push((mailbox, Arc::new(WorkerCounters::new())));
            endpoints.push(endpoint);
        }
        let (mailboxes, counters): (Vec<_>, Vec<_>) = posts.iter().cloned().unzip();
        let workers = WorkerChannels::to(&endpoints);
        let limits = ConnectionLimits { total: 0, per_address: 0 };
        let admission = Arc::new(Admission::new(limits));
        let mut threads = Vec::new();
        for ((id, listener), endpoint) in (0..).zip([first, second]).zip(endpoints) {
            let spec = WorkerSpec {
                id: WorkerId(id),
                started: Duration::ZERO,
                listeners: vec![listener],
                shared: Vec::new(),
                acceptors: vec![],
                streams: StreamSettings {
                    proxies: vec![],
                    tls: None,
                    plain: true,
                    acme_redirect: None,
                    admission: Arc::clone(&admission),
                },
                dtls: DtlsSettings { config: None, only: false, admission: Arc::clone(&admission) },
                policy: Arc::clone(&policy),
                registry: Arc::clone(&registry),
                seed: [id as u8; 32],
                directory: Arc::new(Users),
                authorizer: Arc::new(NoAuthorizer),
                counters: Arc::clone(&counters[usize::from(id)]),
                endpoint,
                workers: workers.clone(),
                routes: None,
                net: net.clone(),
                log: LogOptions::default(),
            };
            threads.push(spawn(spec, None, None).unwrap().built().unwrap().0);
        }
        Self { addr, mailboxes, counters, threads }
    }

    /// Returns the allocations of each worker.
    fn sessions(&self) -> Vec<Vec<AllocationRecord>> {
        let of = |mailbox: &Mailbox| {
            let (sender, answer) = mpsc::channel();
            let reply = Box::new(move |list| sender.send(list).unwrap());
            let filter = SessionFilter::default();
            mailbox.post(Request::List { filter, limit: 100, reply }).unwrap();
            let list: Vec<control::Session> = answer.recv_timeout(PATIENCE).unwrap();
            list.into_iter().map(|session| session.record).collect()
        };
        self.mailboxes.iter().map(of).collect()
    }

    fn moved(&self) -> u64 {
        self.counters.iter().map(|c| c.value(Series::AllocationsMoved)).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for mailbox in &self.mailboxes {
            let _ = mailbox.post(Request::Stop);
        }
        for thread in self.threads.drain(..) {
            assert!(thread.join().is_ok() || std::thread::panicking(), "a worker panicked");
        }
    }
}

/// Transport of a client's messages.
trait Way {
    fn write(&mut self, message: &[u8]);
    fn read(&mut self) -> Vec<u8>;
}

impl Way for UdpSocket {
    fn write(&mut self, message: &[u8]) {
        self.send(message).unwrap();
    }

    fn read(&mut self) -> Vec<u8> {
        let mut buffer = [0; 2000];
        let len = self.recv(&mut buffer).unwrap();
        buffer[..len].to_vec()
    }
}

impl Way for StreamUser {
    fn write(&mut self, message: &[u8]) {
        let padding = &[0; 3][..message.len().next_multiple_of(4) - message.len()];
        Self::write(self, &[message, padding].concat());
    }

    fn read(&mut self) -> Vec<u8> {
        Self::read(self).unwrap()
    }
}

impl Way for DtlsUser {
    fn write(&mut self, message: &[u8]) {
        Self::write(self, message);
    }

    fn read(&mut self) -> Vec<u8> {
        Self::read(self).unwrap()
    }
}

/// Client that uses one transport.
struct Client<W = UdpSocket> {
    way: W,
    nonce: Vec<u8>,
    transactions: u8,
}

impl Client {
    fn new(server: &Server) -> Self {
        Self::over(connected(server.addr))
    }
}

fn connected(server: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((LOCALHOST, 0)).unwrap();
    socket.connect(server).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

impl<W: Way> Client<W> {
    fn over(way: W) -> Self {
        let mut client = Self { way, nonce: Vec::new(), transactions: 0 };
        let challenge = client.exchange(Method::ALLOCATE, |_| ());
        let message = Message::parse(&challenge).unwrap();
        client.nonce = message.first(AttributeType::NONCE).unwrap().to_vec();
        client
    }

    /// Sends a request, with credentials after the first nonce, and returns the response.
    fn request(&mut self, method: Method, write: impl FnOnce(&mut MessageBuilder<'_>)) -> Vec<u8> {
        self.transactions += 1;
        let mut out = [0; 1000];
        let id = TransactionId([self.transactions; 12]);
        let mut builder = MessageBuilder::new(&mut out, Class::Request, method, id);
        write(&mut builder);
        let len = if self.nonce.is_empty() {
            builder.finish()
        } else {
            builder.username(USER).realm(REALM);
            builder.attribute(AttributeType::NONCE, &self.nonce);
            let key = stun_wire::long_term_key_md5(USER, REALM, PASSWORD).unwrap();
            builder.integrity(IntegrityKind::Sha1, &IntegrityKey::new(&key)).finish()
        };
        out[..len.unwrap()].to_vec()
    }

    fn exchange(&mut self, method: Method, write: impl FnOnce(&mut MessageBuilder<'_>)) -> Vec<u8> {
        let request = self.request(method, write);
        self.way.write(&request);
        loop {
            let answer = self.way.read();
            if answer[0] & 0xC0 == 0 {
                return answer;
            }
        }
    }

    fn success(&mut self, method: Method, write: impl FnOnce(&mut MessageBuilder<'_>)) -> Vec<u8> {
        let answer = self.exchange(method, write);
        let message = Message::parse(&answer).unwrap();
        let error = message.first(AttributeType::ERROR_CODE).map(value::error_code);
        assert_eq!(message.class(), Class::Success, "{error:?}");
        answer
    }

    /// Requests an allocation, and returns the ticket for a move.
    fn allocate(&mut self) -> Vec<u8> {
        ticket_of(&self.success(Method::ALLOCATE, |b| {
            b.requested_transport(17).mobility_ticket(&[]);
        }))
    }

    /// Moves the allocation of this ticket to this client, and returns the next ticket.
    fn take(&mut self, ticket: &[u8]) -> Vec<u8> {
        ticket_of(&self.success(Method::REFRESH, |b| {
            b.mobility_ticket(ticket);
        }))
    }

    fn bind(&mut self, peer: &UdpSocket) {
        self.success(Method::CHANNEL_BIND, |b| {
            b.attribute(AttributeType::CHANNEL_NUMBER, &[CHANNEL[0], CHANNEL[1], 0, 0]);
            b.xor_address(AttributeType::XOR_PEER_ADDRESS, peer.local_addr().unwrap());
        });
    }

    /// Asserts that data passes in both directions, with an unchanged relayed address.
    fn talk(&mut self, peer: &UdpSocket, relayed: SocketAddr, data: u8) {
        assert_eq!(self.reach(peer, data), relayed);
        peer.send_to(b"back", relayed).unwrap();
        assert_eq!(self.way.read(), [&CHANNEL[..], &[0, 4], b"back"].concat());
    }

    /// Sends `data` through the channel until `peer` receives the data. Data sent during a move is
    /// lost.
    fn reach(&mut self, peer: &UdpSocket, data: u8) -> SocketAddr {
        for _ in 0..100 {
            self.way.write(&[CHANNEL[0], CHANNEL[1], 0, 1, data]);
            let mut buffer = [0; 10];
            if let Ok((1, from)) = peer.recv_from(&mut buffer)
                && buffer[0] == data
            {
                return from;
            }
        }
        panic!("the peer hears nothing");
    }
}

fn ticket_of(answer: &[u8]) -> Vec<u8> {
    Message::parse(answer).unwrap().first(AttributeType::MOBILITY_TICKET).unwrap().to_vec()
}

/// 8016-3.2.2-01, 8016-3.2.2-02, 8016-3.2.2-05: whichever worker a new 5-tuple is of.
#[test]
fn an_allocation_follows_its_client_through_all_workers() {
    let server = Server::start();
    let peer = UdpSocket::bind((PEER, 0)).unwrap();
    peer.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut client = Client::new(&server);
    let mut ticket = client.allocate();
    client.bind(&peer);
    let relayed = client.reach(&peer, 0);

    let mut homes = BTreeSet::new();
    let mut crossed = 0;
    let mut moves = 0;
    let home = |server: &Server| server.sessions().iter().position(|list| list.len() == 1).unwrap();
    homes.insert(home(&server));
    // Each new port belongs to a random worker. The probability that one worker has no port is
    // 2^-40.
    while moves < 40 && (crossed < 3 || homes.len() < 2) {
        moves += 1;
        let before = home(&server);
        let mut next = Client::new(&server);
        ticket = next.take(&ticket);
        // Make before break: the old 5-tuple carries data in both directions.
        assert_eq!(client.reach(&peer, 100), relayed);
        peer.send_to(b"old", relayed).unwrap();
        assert_eq!(client.way.read(), [&CHANNEL[..], &[0, 3], b"old"].concat());
        // Then the new 5-tuple carries data.
        assert_eq!(next.reach(&peer, moves), relayed, "the relayed address stays");
        peer.send_to(b"new", relayed).unwrap();
        assert_eq!(next.way.read(), [&CHANNEL[..], &[0, 3], b"new"].concat());
        let sessions = server.sessions();
        assert_eq!(sessions.iter().map(Vec::len).sum::<usize>(), 1, "it is in one place");
        let after = home(&server);
        assert_eq!(sessions[after][0].five_tuple.client.0, next.way.local_addr().unwrap());
        crossed += usize::from(before != after);
        homes.insert(after);
        client = next;
    }
    assert_eq!((homes.len(), crossed >= 3), (2, true), "{moves} moves");
    assert_eq!(server.moved(), u64::from(moves));

    client.success(Method::REFRESH, |b| {
        b.lifetime(0);
    });
    assert!(server.sessions().iter().all(Vec::is_empty));
}

/// 8016-3.2.2-01: whatever carried it before and carries it now, and at whichever worker; also when
/// the old way is gone first.
#[test]
fn an_allocation_changes_from_one_transport_to_another() {
    let policy = Policy { mobility: true, ..policy() };
    let start = Start { policy, dtls: Some(config()), ..Start::default() };
    let worlds = World::start_many(start, WORKERS);
    let [here, there] = [worlds[0].server, worlds[1].server];
    let peer = UdpSocket::bind((PEER, 0)).unwrap();
    peer.set_read_timeout(Some(Duration::from_millis(100))).unwrap();

    let mut by_tcp = Client::over(StreamUser::connect(here));
    let ticket = by_tcp.allocate();
    by_tcp.bind(&peer);
    let relayed = by_tcp.reach(&peer, 1);
    drop(by_tcp);

    let mut by_dtls = Client::over(DtlsUser::connect(there));
    let ticket = by_dtls.take(&ticket);
    by_dtls.talk(&peer, relayed, 2);

    let mut by_tcp = Client::over(StreamUser::connect(here));
    let ticket = by_tcp.take(&ticket);
    by_tcp.talk(&peer, relayed, 3);
    // A closed connection has no effect.
    by_dtls.way.stream.shutdown().unwrap();
    by_tcp.talk(&peer, relayed, 4);

    let mut by_udp = Client::over(connected(here));
    let ticket = by_udp.take(&ticket);
    by_udp.talk(&peer, relayed, 5);
    drop(by_tcp);
    by_udp.talk(&peer, relayed, 6);

    let mut by_dtls = Client::over(DtlsUser::connect(here));
    by_dtls.take(&ticket);
    by_dtls.talk(&peer, relayed, 7);
    let sessions: Vec<_> = worlds.iter().flat_map(World::all_sessions).collect();
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].five_tuple.transport, Transport::Dtls);
    assert_eq!(worlds.iter().map(|world| world.count(Series::AllocationsMoved)).sum::<u64>(), 4);
    by_dtls.success(Method::REFRESH, |b| {
        b.lifetime(0);
    });
    assert!(worlds.iter().all(|world| world.all_sessions().is_empty()));
}

/// A request suffices for the move, and gets a response.
#[test]
fn a_request_from_a_new_address_waits_for_the_allocation() {
    let server = Server::start();
    let mut client = Client::new(&server);
    let mut ticket = client.allocate();
    for _ in 0..8 {
        let mut next = Client::new(&server);
        ticket = next.take(&ticket);
        next.success(Method::CREATE_PERMISSION, |b| {
            b.xor_address(AttributeType::XOR_PEER_ADDRESS, "127.0.0.2:9".parse().unwrap());
        });
    }
    assert_eq!(server.moved(), 8);
}

/// Number of datagrams that a moving client sends with the Refresh by ticket, before or after the
/// response. The client's new 5-tuple belongs to another worker.
const COUNT: u8 = 60;

impl<W: Way> Client<W> {
    /// Returns a Refresh by ticket.
    fn refresh_by(&mut self, ticket: &[u8]) -> Vec<u8> {
        self.request(Method::REFRESH, |b| {
            b.mobility_ticket(ticket);
        })
    }

    fn send_many(&mut self, numbers: std::ops::Range<u8>) {
        for number in numbers {
            self.way.write(&[CHANNEL[0], CHANNEL[1], 0, 1, number]);
        }
    }
}

fn numbers_at(peer: &UdpSocket, count: u8) -> Vec<u8> {
    let mut buffer = [0; 10];
    let numbers = (0..count).map_while(|_| match peer.recv_from(&mut buffer) {
        Ok((1, _)) => Some(buffer[0]),
        Ok(other) => panic!("{other:?}"),
        Err(_) => None,
    });
    numbers.collect()
}

/// Returns the numbers that a client receives through the channel, up to `COUNT`.
fn numbers_by(way: &mut impl Way) -> Vec<u8> {
    let mut numbers = Vec::new();
    while numbers.last() != Some(&COUNT) {
        let message = way.read();
        if message[..4] == [CHANNEL[0], CHANNEL[1], 0, 1] {
            numbers.push(message[4]);
        }
    }
    numbers
}

/// Returns the datagrams that have reached a client after the move.
fn numbers_so_far(socket: &mut UdpSocket) -> Vec<u8> {
    socket.set_nonblocking(true).unwrap();
    let mut buffer = [0; 100];
    std::iter::from_fn(|| socket.recv(&mut buffer).ok().map(|_| buffer[4])).collect()
}

fn loses_nothing<W: Way>(connect: impl Fn(&[World]) -> W) {
    loses_nothing_under(policy(), connect);
}

fn loses_nothing_under<W: Way>(policy: Policy, connect: impl Fn(&[World]) -> W) {
    let policy = Policy { mobility: true, ..policy };
    let (tls, dtls) = (Some(support::tls::config()), Some(config()));
    let worlds = World::start_many(Start { policy, tls, dtls, ..Start::default() }, WORKERS);
    let peer = UdpSocket::bind((PEER, 0)).unwrap();
    peer.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    for answered_first in [true, false] {
        let mut old = Client::over(connected(worlds[0].server));
        let ticket = old.allocate();
        old.bind(&peer);
        let relayed = old.reach(&peer, 0);

        let mut new = Client::over(connect(&worlds));
        let refresh = new.refresh_by(&ticket);
        new.way.write(&refresh);
        if answered_first {
            assert_eq!(new.way.read()[..2], [0x01, 0x04]);
        }
        new.send_many(0..COUNT);
        for number in 0..COUNT {
            peer.send_to(&[number], relayed).unwrap();
        }
        assert_eq!(numbers_at(&peer, COUNT), (0..COUNT).collect::<Vec<_>>(), "{answered_first}");
        // Some data arrives through the old 5-tuple, until the worker has received a packet from
        // the new 5-tuple. The remaining data arrives through the new 5-tuple.
        peer.send_to(&[COUNT], relayed).unwrap();
        let late = numbers_by(&mut new.way);
        let early = numbers_so_far(&mut old.way);
        assert_eq!([early, late].concat(), (0..=COUNT).collect::<Vec<_>>(), "{answered_first}");
    }
    for world in &worlds {
        world.assert_adds_up();
    }
}

/// 8016-3.2.2-08: data that comes with a move is relayed, all of it and in its order.
#[test]
fn a_move_loses_nothing_over_udp() {
    loses_nothing(|worlds| connected(worlds[1].server));
}

/// Data follows a Refresh by ticket that waits for the user look-up. The successor gets the data,
/// and each packet has a fate.
#[test]
fn data_of_a_client_that_moves_is_exported() {
    let policy = Policy { mobility: true, ..policy() };
    let worlds = World::start_many(Start { policy, ..Start::default() }, WORKERS);
    let peer = UdpSocket::bind((PEER, 0)).unwrap();
    let mut old = Client::over(connected(worlds[0].server));
    let ticket = old.allocate();
    old.bind(&peer);
    let mut new = Client::over(connected(worlds[1].server));
    let refresh = new.refresh_by(&ticket);
    *worlds[1].directory.is_silent.lock().unwrap() = true;
    new.way.write(&refresh);
    new.send_many(0..COUNT);
    let mut queued = Vec::new();
    eventually("all waits", || {
        let left = worlds[1].channels.export().unwrap();
        queued.extend(left.into_iter().flat_map(|export| export.snapshot.queued));
        worlds[1].channels.roll_back();
        queued.len() == usize::from(COUNT)
    });
    worlds.iter().for_each(World::assert_adds_up);
}

/// The allocation moves away from the shared socket.
#[test]
fn a_move_loses_nothing_of_a_prefix() {
    let policy = support::prefix::policy(WORKERS);
    loses_nothing_under(policy, |worlds| connected(worlds[1].server));
}

#[test]
fn a_move_loses_nothing_over_tcp() {
    loses_nothing(|worlds| StreamUser::connect(worlds[1].server));
}

#[test]
fn a_move_loses_nothing_over_tls() {
    loses_nothing(|worlds| StreamUser::connect(support::tls::tunnel(worlds[1].server)));
}

#[test]
fn a_move_loses_nothing_over_dtls() {
    loses_nothing(|worlds| DtlsUser::connect(worlds[1].server));
}

/// A successor receives connections only in the pause. Without the connection, the successor would
/// not expect the client there.
#[test]
fn an_allocation_on_its_way_to_a_connection_is_handed_over_in_the_pause() {
    let policy = Policy { mobility: true, ..policy() };
    let worlds = World::start_many(Start { policy, ..Start::default() }, 1);
    let world = &worlds[0];
    let mut by_udp = Client::over(connected(world.server));
    let ticket = by_udp.allocate();
    let id = world.all_sessions()[0].id;
    let (to, received) = mpsc::sync_channel(COPIES_WAITING);
    world.channels.copy_to_successor(&to);
    let next = || received.recv_timeout(PATIENCE).unwrap().snapshot;
    let has = |snapshot: &Snapshot| snapshot.allocations.iter().any(|one| one.id == id);
    while !has(&next()) {}
    let mut by_tcp = Client::over(StreamUser::connect(world.server));
    by_tcp.take(&ticket);
    loop {
        let snapshot = next();
        assert!(!has(&snapshot), "it would be without its connection");
        if snapshot.ended.contains(&id) {
            break;
        }
    }
}
