//! A reload does not affect a call: each of its datagrams is numbered.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use e2e::{Certificates, Config};
use turn_types::IpFamily;

use super::{Call, Scene, by_xdp_and_tc};

/// Reloads within a call.
const RELOADS: u32 = 20;

/// Between two reloads, so that many datagrams are before and behind each.
const REST: Duration = Duration::from_millis(150);

/// Between two datagrams of a direction: as in a video call.
const PACE: Duration = Duration::from_millis(1);

/// Time after which a datagram counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(2);

/// The n-th configuration: each setting is another than before that may change while calls go on
/// and that could concern them.
fn change(config: &mut Config, certificates: &Certificates, mode: &str, n: u32) {
    let is_odd = n % 2 == 1;
    let certificate = certificates.entry(if is_odd { "other" } else { "turn" });
    // Unlimited, and far more than the call takes.
    let bandwidth = if is_odd { "100 MiB" } else { "0 B" };
    config.deny = vec![format!("192.0.2.{n}")];
    config.tables = format!(
        "[auth]\nsecret = \"the secret of reload number {n}\"\n\
         [quotas]\nallocations_per_user = {}\nchannels = {}\nbytes_per_second = \"{bandwidth}\"\n\
         [lifetimes]\nchannel = \"{} min\"\n\
         [tls]\ncertificates = [{certificate}]\n\
         [offload]\nmode = \"{mode}\"\n",
        100 + n,
        10 + n,
        10 + n,
    );
}

/// Sends numbers until stopped; returns their count.
fn send_numbers(stop: &AtomicBool, mut send: impl FnMut(&[u8])) -> u64 {
    let mut sent = 0;
    while !stop.load(Relaxed) {
        send(&u64::to_be_bytes(sent));
        sent += 1;
        thread::sleep(PACE);
    }
    sent
}

/// The received numbers in order, until none arrives.
fn receive_numbers(
    stop: &AtomicBool,
    mut receive: impl FnMut(Duration) -> Option<Vec<u8>>,
) -> Vec<u64> {
    let mut came = Vec::new();
    loop {
        match receive(LOST_AFTER) {
            Some(bytes) => came.push(u64::from_be_bytes(bytes.try_into().expect("a number"))),
            None if stop.load(Relaxed) => return came,
            None => {}
        }
    }
}

/// Sends numbers both ways until `during` is over; returns the number sent, and the ones received,
/// for the peer and for the client.
fn numbered(call: &Call, during: impl FnOnce()) -> [(u64, Vec<u64>); 2] {
    let stop = AtomicBool::new(false);
    let peer: &UdpSocket = &call.peer;
    thread::scope(|scope| {
        let to_peer = scope.spawn(|| send_numbers(&stop, |it| call.caller.send(call.channel, it)));
        let to_client = scope.spawn(|| {
            send_numbers(&stop, |number| assert_eq!(peer.send(number).expect("sent"), number.len()))
        });
        let at_peer = scope.spawn(|| receive_numbers(&stop, |wait| call.receive_at_peer(wait)));
        let at_client = scope.spawn(|| receive_numbers(&stop, |wait| call.caller.receive(wait)));
        let stopping = Stop(&stop);
        during();
        drop(stopping);
        let join = |sent: thread::ScopedJoinHandle<'_, u64>,
                    came: thread::ScopedJoinHandle<'_, Vec<u64>>| {
            (sent.join().expect("sent"), came.join().expect("received"))
        };
        [join(to_peer, at_peer), join(to_client, at_client)]
    })
}

/// Stops the senders, however `during` ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn reloads(mode: &str) {
    let mut certificates = None;
    let scene = Scene::new(mode, |lab, config| {
        let files = certificates.insert(Certificates::new(lab));
        files.make("turn", "turn.example.org", e2e::certificates::ECDSA, "90");
        files.make("other", "other.example.org", e2e::certificates::ECDSA, "90");
        change(config, files, mode, 0);
    });
    let (Some(mut scene), Some(certificates)) = (scene, certificates) else { return };
    for (client, relay) in [(IpFamily::V4, IpFamily::V4), (IpFamily::V6, IpFamily::V6)] {
        let call = scene.call(client, relay);
        if mode != "off" {
            scene.wait_for_kernel(&call);
        }
        let count = |scene: &Scene| match mode {
            "off" => 0,
            _ => scene.by_kernel(&call.caller),
        };
        let before = count(&scene);
        let ways = numbered(&call, || {
            for n in 1..=RELOADS {
                change(&mut scene.config, &certificates, mode, n);
                let applied = scene.reload();
                assert!(applied >= 6, "{applied} settings are new");
                thread::sleep(REST);
            }
        });
        for (way, (sent, came)) in ["to the peer", "to the client"].into_iter().zip(&ways) {
            assert!(*sent > u64::from(RELOADS), "{sent} {way}");
            check(&scene, (mode, way), *sent, came);
        }
        let sent: u64 = ways.iter().map(|(sent, _)| sent).sum();
        let by_kernel = count(&scene) - before;
        eprintln!("{mode}: {sent} sent while {RELOADS} reloads, {by_kernel} by the kernel");
        assert_eq!(by_kernel > sent / 2, mode != "off", "{by_kernel} of {sent} by the kernel");
    }
}

/// Each number arrived once, in order.
#[track_caller]
fn check(scene: &Scene, of: (&str, &str), sent: u64, came: &[u64]) {
    let mut sorted = came.to_vec();
    sorted.sort_unstable();
    assert!(sorted.iter().copied().eq(0..sent), "{of:?}: {sent} sent, {}", missing(sent, came));
    // The kernel path continues after a packet was in the stack for 50 ms, as on a busy machine,
    // and counts it.
    let late = came.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert!(late == 0 || scene.passed("overtaken") > 0, "{of:?}: {late} came out of order");
}

fn missing(sent: u64, came: &[u64]) -> String {
    let lost: Vec<u64> = (0..sent).filter(|number| !came.contains(number)).collect();
    format!("{} came, {} of them lost: {lost:?}", came.len(), lost.len())
}

#[test]
fn calls_by_sockets_lose_nothing_by_reloads() {
    reloads("off");
}

#[test]
fn calls_by_the_kernel_lose_nothing_by_reloads() {
    by_xdp_and_tc(reloads);
}
