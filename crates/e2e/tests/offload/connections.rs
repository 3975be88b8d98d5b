//! The host's own rules hold for data delivered through the ring to clients with connections.

use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

use e2e::{Certificates, Host, Running, pion, require};

use super::rules::{STOPPED, ban, has_nft, lift};
use super::scene::local;
use super::{Scene, by_xdp_and_tc, wait_until};

/// pion's client by a transport, with a channel to its peer.
struct Listening {
    client: Running,
    /// Connected to the relayed address.
    peer: UdpSocket,
}

impl Listening {
    fn start(scene: &Scene, program: &Path, transport: &str) -> Self {
        const PATIENCE: Duration = Duration::from_secs(20);
        let peer = scene.lab.socket(Host::Peer, (scene.lab.v4.peer, 0));
        let server = format!("{}:3478", scene.lab.v4.listen);
        let mut client = Running::start(scene.lab.command(Host::Client, program).args([
            &*server,
            "alice",
            "correct-horse-battery",
            "turn.test",
            &local(&peer).to_string(),
            "0",
            transport,
        ]));
        client.wait_for("relayed address", PATIENCE);
        let output = client.output();
        let line = output.lines().find_map(|line| line.strip_prefix("relayed address "));
        peer.connect(line.expect("it was printed")).expect("an address");
        Self { client, peer }
    }

    fn send(&self, payload: &str) {
        drop(self.peer.send(payload.as_bytes()));
    }

    /// Payloads received by the client.
    fn heard(&self, payload: &str) -> usize {
        let line = format!("heard {payload}");
        self.client.output().lines().filter(|one| **one == line).count()
    }
}

/// Packets of all sessions delivered through the ring.
fn handed_over(scene: &Scene) -> u64 {
    scene.traffic("by_kernel")["from_peers"]["packets"].as_u64().expect("packets")
}

/// Sends to all clients until nearly all is delivered through the ring.
#[track_caller]
fn wait_for_ring(scene: &Scene, all: &[Listening]) {
    let what = || format!("it is handed over: {:#}", scene.server.json(&["status"])["offload"]);
    wait_until(what, || {
        let before = handed_over(scene);
        for _ in 0..20 {
            all.iter().for_each(|one| one.send("before"));
            // A pause: without one, packets follow a punted packet through the stack.
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_millis(100));
        handed_over(scene) >= before + 18 * all.len() as u64
    });
}

#[test]
fn a_peer_that_the_firewall_bans_from_clients_with_connections() {
    let (Some(()), Some(program)) = (has_nft(), require(pion())) else { return };
    by_xdp_and_tc(|mode| {
        let mut certificates = None;
        let Some(scene) = Scene::new(mode, |lab, config| {
            config.tables.push_str(&certificates.insert(Certificates::new(lab)).simple());
        }) else {
            return;
        };
        let all = ["tcp", "tls", "dtls"].map(|by| Listening::start(&scene, &program, by));
        wait_for_ring(&scene, &all);
        ban(&scene.lab, "input", "ip saddr 10.77.2.2 drop");
        let start = Instant::now();
        while start.elapsed() < STOPPED {
            all.iter().for_each(|one| one.send("while banned"));
            std::thread::sleep(Duration::from_millis(5));
        }
        for _ in 0..50 {
            all.iter().for_each(|one| one.send("too late"));
        }
        std::thread::sleep(Duration::from_secs(1));
        let heard = || all.each_ref().map(|one| one.heard("too late"));
        assert_eq!(heard(), [0; 3], "{mode}: by TCP, TLS and DTLS");
        lift(&scene.lab);
        wait_for_ring(&scene, &all);
        let what = || format!("{mode}: the clients hear the peers again");
        wait_until(what, || {
            all.iter().for_each(|one| one.send("lifted"));
            all.iter().all(|one| one.heard("lifted") > 0)
        });
        assert_eq!(heard(), [0; 3], "{mode}: what was banned stays so");
    });
}
