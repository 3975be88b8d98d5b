//! Number of instructions for each kind of packet, counted by valgrind. The count is equal on any
//! machine of this architecture. A change that lengthens a path is therefore detected where times
//! would hide the change.
//!
//! `costs.txt` contains the counts of this build. The profile `dev` is not the profile of users, so
//! the counts are only for comparison. A failing test prints the new content of the file.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hint::black_box;
use std::process;

use stun_wire::*;
use support::*;
use turn_proto::*;
use turn_types::*;

/// Most repetitions: enough that the setting up, which differs a little from run to run, does not
/// show.
const REPETITIONS_MAX: u64 = 2000;

/// Number of instructions after which a longer path is not repeated again. Valgrind takes half a
/// second for this number.
const INSTRUCTIONS_ENOUGH: u64 = 20_000_000;

/// The part by which a count may differ: other versions of the C library copy and hash with other
/// instructions.
const TOLERANCE: f64 = 0.08;

const COUNTS: &str = include_str!("costs.txt");

/// A server with an allocation that has a channel and a permission, and all that is sent to it.
struct Bench {
    world: World,
    client: Client,
    relay: RelayId,
    reply: Box<ReplyBuffer>,
    header: HeaderBuffer,
}

/// A path, executed once.
type Work = Box<dyn FnMut(&mut Bench)>;

/// Peer with a permission and no channel.
const PERMITTED: &str = "192.0.2.20:1";

impl Bench {
    fn new() -> Self {
        let mut policy = policy();
        // Derived keys, because looking up users is not a part of the rules.
        policy.auth.userhash = false;
        policy.auth.secrets =
            vec![SharedSecret { name: "one".into(), secret: Secret::new((*SECRET).into()) }];
        let mut world = World::with(policy);
        let mut client = timed(1);
        let relayed = client.allocate(&mut world);
        client.bind(&mut world, 0x4000, PEER).success();
        client.permit(&mut world, &[PERMITTED]).success();
        let relay = world.socket_at(relayed);
        Self { world, client, relay, reply: Box::new([0; REPLY_MAX]), header: [0; HEADER_MAX] }
    }

    /// Passes a client's packet to the server, and opens the relay socket that the server requests.
    fn hand_in(&mut self, path: &ClientPath, packet: &[u8]) -> Verdict {
        let Self { world, reply, .. } = self;
        let (now, server) = (world.now, &mut world.server);
        let verdict = server.handle_client(now, path, IpMeta::DEFAULT, packet, reply);
        while let Some(command) = server.poll_command() {
            if let Command::OpenRelay { pending, relay, .. } = command {
                let event = Event::RelayOpened { pending, relay, result: Ok(()) };
                black_box(server.handle_event(now, event, reply));
            }
        }
        while server.poll_notice().is_some() {}
        verdict
    }
}

const SECRET: &[u8] = b"a secret of thirty-two bytes, so";

/// A client with a time-limited name.
fn timed(port: u16) -> Client {
    const USER: &str = "4000000000:alice";
    let password = time_limited_password(SECRET, USER);
    let mut client = Client::new(port);
    (client.user, client.password) = (USER, password.leak());
    client
}

/// A packet of the client that has the allocation.
fn packet(bytes: Vec<u8>, is_expected: fn(&Verdict) -> bool) -> Work {
    Box::new(move |bench| {
        let path = bench.client.path;
        let verdict = bench.hand_in(&path, &bytes);
        assert!(is_expected(&verdict), "{verdict:?}");
    })
}

const fn is_success(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Reply { error: false, .. })
}

/// A peer's datagram.
fn datagram(from: &str, header_len: u8) -> Work {
    let from = peer(from);
    Box::new(move |bench| {
        let Bench { world, relay, header, .. } = bench;
        let (now, meta) = (world.now, IpMeta::DEFAULT);
        let verdict = world.server.handle_peer(now, *relay, from, meta, 1000, header);
        let is_expected =
            matches!(verdict, Verdict::ToClient { header, .. } if header == header_len);
        assert!(is_expected, "{verdict:?}");
    })
}

/// An Allocate, and the Refresh that deletes the allocation.
fn allocation(bench: &mut Bench, of_prefix: bool) -> Work {
    let mut client = timed(9);
    if of_prefix {
        let prefix = RelayPrefix::new("203.0.113.64/26".parse().unwrap(), 40_000, 4).unwrap();
        let policy = Policy { prefixes: vec![prefix], ..bench.world.policy.clone() };
        bench.world.apply(policy);
    }
    let ask = |client: &mut Client, bench: &mut Bench, method, lifetime| {
        client.sealed(&mut bench.world, method, |builder| {
            if method == Method::ALLOCATE {
                builder.requested_transport(17);
            }
            builder.lifetime(lifetime);
        })
    };
    let begin = ask(&mut client, bench, Method::ALLOCATE, 600);
    let end = ask(&mut client, bench, Method::REFRESH, 0);
    let path = client.path;
    Box::new(move |bench| {
        let verdict = bench.hand_in(&path, &begin);
        assert_eq!(verdict, Verdict::Wait, "it waits for its socket");
        let verdict = bench.hand_in(&path, &end);
        assert!(is_success(&verdict), "{verdict:?}");
    })
}

fn work(path: &str, bench: &mut Bench) -> Work {
    let Bench { world, client, .. } = bench;
    match path {
        "nothing" => Box::new(|_| ()),
        "channel_data_to_peer" => {
            let bytes = client::channel_message(0x4000, &[0; 1000]);
            packet(bytes, |verdict| matches!(verdict, Verdict::ToPeer { .. }))
        }
        "send_to_peer" => {
            let bytes = client.indication(Method::SEND, |builder| {
                let kind = AttributeType::XOR_PEER_ADDRESS;
                builder.xor_address(kind, addr(PERMITTED)).data(&[0; 1000]);
            });
            packet(bytes, |verdict| matches!(verdict, Verdict::ToPeer { .. }))
        }
        "peer_to_channel_data" => datagram(PEER, 4),
        "peer_to_data_indication" => datagram(PERMITTED, 36),
        "stray_packet" => packet(vec![0xFF; 100], |verdict| matches!(verdict, Verdict::Drop(_))),
        "binding" => packet(client.bare(Method::BINDING, |_| ()), is_success),
        "challenge" => {
            let bytes =
                client.bare(Method::ALLOCATE, |builder| _ = builder.requested_transport(17));
            packet(bytes, |verdict| matches!(verdict, Verdict::Reply { error: true, .. }))
        }
        "refresh" => {
            let bytes = client.sealed(world, Method::REFRESH, |builder| _ = builder.lifetime(600));
            packet(bytes, is_success)
        }
        "create_permission" => {
            let bytes = client.sealed(world, Method::CREATE_PERMISSION, |builder| {
                builder.xor_address(AttributeType::XOR_PEER_ADDRESS, addr(PERMITTED));
            });
            packet(bytes, is_success)
        }
        "channel_bind" => {
            let bytes = client.sealed(world, Method::CHANNEL_BIND, |builder| {
                builder.attribute(AttributeType::CHANNEL_NUMBER, &[0x40, 0, 0, 0]);
                builder.xor_address(AttributeType::XOR_PEER_ADDRESS, addr(PEER));
            });
            packet(bytes, is_success)
        }
        "allocate_and_release" => allocation(bench, false),
        "allocate_and_release_of_prefix" => allocation(bench, true),
        other => panic!("no path {other}"),
    }
}

/// A test for each path: the result is correct, and valgrind runs the path.
macro_rules! paths {
    ($($path:ident)*) => {
        const PATHS: &[&str] = &[$(stringify!($path)),*];

        mod one {
            #[test]
            fn nothing() {
                super::repeat("nothing");
            }
            $(
                #[test]
                fn $path() {
                    super::repeat(stringify!($path));
                }
            )*
        }
    };
}

paths! {
    channel_data_to_peer
    send_to_peer
    peer_to_channel_data
    peer_to_data_indication
    stray_packet
    binding
    challenge
    refresh
    create_permission
    channel_bind
    allocate_and_release
    allocate_and_release_of_prefix
}

/// The committed counts.
fn counts() -> BTreeMap<&'static str, u64> {
    let lines = COUNTS.lines().filter_map(|line| line.split_once(' '));
    lines.map(|(path, count)| (path, count.parse().unwrap())).collect()
}

/// Repetitions of a path.
fn repetitions(path: &str) -> u64 {
    let count = counts().get(path).copied().unwrap_or(1);
    (INSTRUCTIONS_ENOUGH / count.max(1)).min(REPETITIONS_MAX)
}

fn repeat(path: &str) {
    let mut bench = Bench::new();
    let mut work = work(path, &mut bench);
    for _ in 0..repetitions(path) {
        work(&mut bench);
    }
}

/// Instructions of a run of one path.
fn instructions(path: &str) -> u64 {
    let program = std::env::current_exe().unwrap();
    let run = process::Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(program)
        .args(["--exact", &format!("one::{path}"), "--test-threads=1"])
        .output();
    let run = run.unwrap_or_else(|error| panic!("valgrind: {error}"));
    let text = String::from_utf8_lossy(&run.stderr);
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{path}: {said}{text}");
    let line = text.lines().find_map(|line| line.split_once("refs:"));
    let count = line.map(|(_, count)| count.trim().replace(',', ""));
    count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{path}: {text}"))
}

#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "the counts are of x86-64")]
fn no_path_costs_more_or_less_than_it_did() {
    let nothing = instructions("nothing");
    let measured: BTreeMap<&str, u64> = PATHS
        .iter()
        .map(|path| (*path, instructions(path).saturating_sub(nothing) / repetitions(path)))
        .collect();
    let mut text = String::new();
    for path in PATHS {
        writeln!(text, "{path} {}", measured[path]).unwrap();
    }
    let before = counts();
    let differs = |path: &&&str| {
        let before = before.get(**path).map(|count| *count as f64);
        let now = measured[**path] as f64;
        before.is_none_or(|before| (now / before - 1.0).abs() > TOLERANCE)
    };
    let other: Vec<_> = PATHS.iter().filter(differs).collect();
    assert!(other.is_empty(), "{other:?} differ from costs.txt, which would be:\n{text}");
}
