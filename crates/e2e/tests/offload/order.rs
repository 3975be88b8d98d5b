//! Order of the packets of many flows, by millions, while routes are set, refreshed and withdrawn.
//! Run by hand:
//!
//! ```sh
//! cargo build -p turnpike
//! PACKETS=10000000 cargo test -p e2e offload::order -- --nocapture --test-threads 1
//! ```

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use turn_types::IpFamily;

use super::{Call, Scene};

/// Calls at a time.
const CALLS: usize = 20;

/// Packets of each direction of a call, before the next call with its own allocation: ten to twenty
/// seconds, in which each is shown to the stack several times.
const PACKETS_PER_CALL: u64 = 20_000;

/// Between two packets of a direction of a call, about.
const PACE: Duration = Duration::from_micros(700);

/// Between two reloads, which refresh all routes.
const RELOAD_EVERY: Duration = Duration::from_millis(400);

/// Time in which nothing arrives at the end of a round.
const QUIET: Duration = Duration::from_millis(500);

/// Packets of one end.
#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    came: AtomicU64,
    late: AtomicU64,
}

/// Sends numbers on each socket in turn.
fn send(sockets: &[(&UdpSocket, Option<u16>)], counts: &Counts) {
    let mut next = Instant::now();
    for number in 0..PACKETS_PER_CALL {
        for (socket, channel) in sockets {
            let mut packet = Vec::with_capacity(12);
            if let Some(channel) = channel {
                packet.extend_from_slice(&channel.to_be_bytes());
                packet.extend_from_slice(&8_u16.to_be_bytes());
            }
            packet.extend_from_slice(&number.to_be_bytes());
            counts.sent.fetch_add(u64::from(socket.send(&packet).is_ok()), Relaxed);
        }
        next += PACE;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// Receives numbers until stopped and quiet; one below an earlier one of its socket is late.
fn receive(sockets: &[(&UdpSocket, usize)], stop: &AtomicBool, counts: &Counts) {
    let mut highest = vec![None; sockets.len()];
    let mut last = Instant::now();
    let mut packet = [0; 2048];
    while !stop.load(Relaxed) || last.elapsed() < QUIET {
        let before = last;
        for ((socket, header), highest) in sockets.iter().zip(&mut highest) {
            while let Ok(len) = socket.recv(&mut packet) {
                last = Instant::now();
                let Some(bytes) = packet[..len].get(*header..).and_then(|p| p.first_chunk()) else {
                    continue;
                };
                let number = Some(u64::from_be_bytes(*bytes));
                counts.came.fetch_add(1, Relaxed);
                counts.late.fetch_add(u64::from(number < *highest), Relaxed);
                *highest = number.max(*highest);
            }
        }
        if last == before {
            thread::sleep(Duration::from_micros(200));
        }
    }
}

/// A round of calls, which begin as soon as their channels are bound.
fn round(scene: &mut Scene, counts: &[Counts; 2], bandwidth: &mut u32) {
    let family = |v6: bool| if v6 { IpFamily::V6 } else { IpFamily::V4 };
    let mut calls: Vec<Call> = (0..CALLS)
        .map(|number| scene.call(family(number & 1 > 0), family(number & 2 > 0)))
        .collect();
    let nonblocking = |calls: &[Call], is: bool| {
        for call in calls {
            call.caller.socket.set_nonblocking(is).expect("a socket");
            call.peer.set_nonblocking(is).expect("a socket");
        }
    };
    nonblocking(&calls, true);
    let (stop, [to_peer, to_client]) = (AtomicBool::new(false), counts);
    let clients: Vec<_> = calls.iter().map(|call| &call.caller.socket).collect();
    let peers: Vec<_> = calls.iter().map(|call| &call.peer).collect();
    let with = |sockets: &[&'_ UdpSocket], header| -> Vec<_> {
        sockets.iter().map(|socket| (socket.try_clone().expect("a socket"), header)).collect()
    };
    let (at_peer, at_client) = (with(&peers, 0), with(&clients, 4));
    thread::scope(|scope| {
        for (sockets, counts) in [(&at_peer, to_peer), (&at_client, to_client)] {
            let stop = &stop;
            scope.spawn(move || {
                let sockets: Vec<_> = sockets.iter().map(|(socket, at)| (socket, *at)).collect();
                receive(&sockets, stop, counts);
            });
        }
        let calls = &calls;
        let there = scope.spawn(move || {
            let number = |call: &Call| Some(call.channel.get());
            let ways: Vec<_> = calls.iter().map(|c| (&c.caller.socket, number(c))).collect();
            send(&ways, to_peer);
        });
        let back = scope.spawn(move || {
            let ways: Vec<_> = calls.iter().map(|call| (&call.peer, None)).collect();
            send(&ways, to_client);
        });
        while !there.is_finished() || !back.is_finished() {
            thread::sleep(RELOAD_EVERY);
            *bandwidth += 1;
            let limits = format!("[quotas]\nbytes_per_second = \"{} MiB\"\n", 50 + *bandwidth % 50);
            let (tables, _) = scene.config.tables.split_once("[quotas]").expect("the limits");
            scene.config.tables = format!("{tables}{limits}");
            scene.reload();
        }
        stop.store(true, Relaxed);
    });
    nonblocking(&calls, false);
    calls.iter_mut().for_each(|call| call.caller.release());
}

fn in_order(mode: &str) {
    let Ok(wanted) = std::env::var("PACKETS") else {
        return e2e::skip("takes minutes, and a quiet machine; PACKETS=10000000 runs it");
    };
    let wanted: u64 = wanted.parse().expect("a number");
    let scene = Scene::new(mode, |_, config| {
        config.tables.push_str("[quotas]\nbytes_per_second = \"50 MiB\"\n");
    });
    let Some(mut scene) = scene else { return };
    let (counts, mut bandwidth) = ([Counts::default(), Counts::default()], 0);
    let of =
        |field: fn(&Counts) -> &AtomicU64| counts.each_ref().map(|one| field(one).load(Relaxed));
    while of(|one| &one.came).iter().sum::<u64>() < wanted {
        round(&mut scene, &counts, &mut bandwidth);
        let offload = &scene.server.json(&["status"])["offload"];
        eprintln!(
            "{mode}, to peers and to clients: {:?} sent, {:?} came, {:?} late; {bandwidth} reloads; by the \
             kernel {}, passed {}",
            of(|one| &one.sent),
            of(|one| &one.came),
            of(|one| &one.late),
            offload["by_kernel"],
            offload["passed"]
        );
    }
    assert_eq!(of(|one| &one.late), [0; 2], "late to peers, to clients");
}

#[test]
fn packets_stay_in_order_by_xdp() {
    in_order("xdp");
}

#[test]
fn packets_stay_in_order_by_tc() {
    in_order("tc");
}
