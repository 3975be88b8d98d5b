//! System calls of a worker for 64 waiting packets, counted by strace. The numbers are equal on any
//! machine. One more call makes the server slower, which time measurements on a busy machine would
//! not show.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use stun_wire::ChannelNumber;
use support::end::End;
use support::stream::{StreamUser, framed};
use support::user::TurnUser;
use support::{LOCALHOST, PEER, Start, World, prefix};
use test_support::require;
use turn_types::{IpFamily, IpMeta};

/// Clients of a world, each with a channel to a peer.
const CLIENTS: usize = 8;

/// Number of packets of each client.
const EACH: usize = 8;

const PACKETS: usize = CLIENTS * EACH;

/// Number of single packets after which a socket has the TTL of the client's packets, with a
/// margin.
const SINGLE_BEFORE: usize = 20;

/// strace process for a thread.
struct Trace {
    process: Child,
    file: PathBuf,
}

impl Trace {
    /// Attaches to the worker thread of this program.
    fn of_worker() -> Self {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
        let is_worker = |task: &PathBuf| {
            std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "worker-0")
        };
        let workers: Vec<_> = tasks.filter(is_worker).collect();
        let [task] = workers.as_slice() else { panic!("{workers:?}") };
        let task = task.file_name().unwrap().to_str().unwrap();
        let file = std::env::temp_dir().join(format!("system-calls-{task}"));
        let mut process = Command::new("strace")
            .args(["-e", "trace=network,read,readv,write,writev,epoll_wait", "-o"])
            .arg(&file)
            .args(["-p", task])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("strace: {error}"));
        // Tracing requires a privilege. If refused, strace reports the refusal here.
        let mut said = String::new();
        BufReader::new(process.stderr.take().unwrap()).read_line(&mut said).unwrap();
        assert!(said.contains("attached"), "{said}");
        Self { process, file }
    }

    /// Returns the number of calls by name, until the last of `sends`. Calls that only wake the
    /// worker are excluded.
    fn calls(mut self, sends: &str) -> BTreeMap<String, u32> {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        self.process.wait().unwrap();
        let text = std::fs::read_to_string(&self.file).unwrap();
        std::fs::remove_file(&self.file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines.iter().rposition(|line| line.starts_with(sends)).unwrap();
        let mut calls = BTreeMap::new();
        for line in &lines[..=last] {
            let name = line.split('(').next().unwrap_or_default();
            // A waker is an eventfd, from which 8 bytes are read.
            let is_waker = line.starts_with("read(") && line.contains(", 8)");
            if !is_waker {
                *calls.entry(name.to_owned()).or_default() += 1;
            }
        }
        calls
    }
}

/// Clients with channels, and the common peer.
struct Scene {
    world: World,
    users: Vec<(TurnUser, ChannelNumber)>,
    peer: End,
}

impl Scene {
    fn new(start: Start) -> Self {
        let (world, peer) = (World::start(start), End::at(PEER));
        let users = (0..CLIENTS).map(|_| {
            let mut user = TurnUser::allocated(LOCALHOST, world.server);
            let channel = user.bind_channel(peer.addr());
            (user, channel)
        });
        let users = users.collect();
        Self { world, users, peer }
    }

    /// Sends packets of alternating clients, and returns the worker's calls.
    fn send_to_peer(&mut self) -> BTreeMap<String, u32> {
        let held = self.world.hold();
        (0..EACH).for_each(|_| self.say_one_each());
        let trace = Trace::of_worker();
        drop(held);
        self.peer.receive_many(PACKETS);
        trace.calls("send")
    }

    /// Sends a packet of each client.
    fn say_one_each(&mut self) {
        for (user, channel) in &mut self.users {
            user.say(*channel, &[&[1; 200]], IpMeta::DEFAULT);
        }
    }

    /// Sends a packet of each client after the relay sockets have set the TTL, and returns the
    /// worker's calls.
    fn send_single_packets(&mut self) -> BTreeMap<String, u32> {
        for _ in 0..SINGLE_BEFORE {
            self.say_one_each();
            self.peer.receive_many(CLIENTS);
        }
        let held = self.world.hold();
        self.say_one_each();
        let trace = Trace::of_worker();
        drop(held);
        self.peer.receive_many(CLIENTS);
        trace.calls("send")
    }

    /// Sends packets to alternating clients, and returns the worker's calls.
    fn send_to_clients(&mut self) -> BTreeMap<String, u32> {
        let relayed: Vec<SocketAddr> =
            self.users.iter().map(|(user, _)| user.relayed(IpFamily::V4)).collect();
        let held = self.world.hold();
        for _ in 0..EACH {
            relayed.iter().for_each(|relayed| self.peer.send(*relayed, &[1; 200]));
        }
        let trace = Trace::of_worker();
        drop(held);
        for (user, _) in &mut self.users {
            (0..EACH).for_each(|_| drop(user.hear()));
        }
        trace.calls("send")
    }
}

/// Expected calls for 64 packets, by transport and direction, and for 8 single packets.
const EXPECTED: &[(&str, &str)] = &[
    // All clients use one listener, 32 packets at a time, and each client has a relay socket.
    ("udp to peers", "1 epoll_wait, 3 recvmmsg, 8 sendmsg"),
    ("udp to clients", "1 epoll_wait, 8 recvmmsg, 2 sendmmsg"),
    ("udp to peers, single packets", "1 epoll_wait, 1 recvmmsg, 8 sendto"),
    // One socket serves all clients.
    ("prefix to peers", "1 epoll_wait, 3 recvmmsg, 1 sendmmsg"),
    ("prefix to clients", "1 epoll_wait, 3 recvmmsg, 1 sendmmsg"),
    ("prefix to peers, single packets", "1 epoll_wait, 1 recvmmsg, 1 sendmmsg"),
    ("tcp to peers", "1 epoll_wait, 1 recvfrom, 1 sendmsg"),
    // 64 packets in one burst are too few for the peer's socket to coalesce.
    ("tcp to clients", "1 epoll_wait, 3 recvmmsg, 1 writev"),
];

/// The cases run one after the other, because each case searches for the only worker of this
/// program.
#[test]
fn no_packet_costs_more_calls_than_it_did() {
    if require(may_trace()).is_none() {
        return;
    }
    let mut measured = Vec::new();
    for (way, start) in [
        ("udp", Start::default()),
        ("prefix", Start { policy: prefix::policy(1), ..Start::default() }),
    ] {
        let mut scene = Scene::new(start);
        measured.push((format!("{way} to peers"), scene.send_to_peer()));
        measured.push((format!("{way} to clients"), scene.send_to_clients()));
        let single = (format!("{way} to peers, single packets"), scene.send_single_packets());
        measured.push(single);
    }
    measured.extend(by_stream());
    let written = |calls: &BTreeMap<String, u32>| {
        let calls: Vec<_> = calls.iter().map(|(name, count)| format!("{count} {name}")).collect();
        calls.join(", ")
    };
    let measured: Vec<_> = measured.iter().map(|(way, calls)| (way, written(calls))).collect();
    let same = measured.iter().map(|(way, calls)| (way.as_str(), calls.as_str()));
    assert!(same.eq(EXPECTED.iter().copied()), "{measured:#?}");
}

/// Tracing a process requires a privilege.
fn may_trace() -> Result<(), String> {
    let run = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    let run = run.unwrap_or_else(|error| panic!("strace: {error}"));
    let said = || String::from_utf8_lossy(&run.stderr).into_owned();
    run.status.success().then_some(()).ok_or_else(said)
}

/// Returns the calls for a client over TCP, whose packets arrive as one piece.
fn by_stream() -> [(String, BTreeMap<String, u32>); 2] {
    let (world, mut peer) = (World::new(), End::at(PEER));
    let mut user = StreamUser::allocated(world.server);
    let channel = user.bind_channel(peer.addr());
    let relayed = user.relayed();
    let all: Vec<u8> = (0..PACKETS).flat_map(|_| framed(channel, &[1; 200])).collect();
    let held = world.hold();
    user.write(&all);
    let trace = Trace::of_worker();
    drop(held);
    peer.receive_many(PACKETS);
    let to_peer = trace.calls("send");

    let held = world.hold();
    (0..PACKETS).for_each(|_| peer.send(relayed, &[1; 200]));
    let trace = Trace::of_worker();
    drop(held);
    (0..PACKETS).for_each(|_| drop(user.hear()));
    [("tcp to peers".to_owned(), to_peer), ("tcp to clients".to_owned(), trace.calls("writev"))]
}
