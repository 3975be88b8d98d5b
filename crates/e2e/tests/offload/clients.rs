//! Third-party clients over the kernel path get the same as over sockets.

use std::time::Duration;

use e2e::{
    Certificates, Config, Host, Lab, Running, Tool, aioice, coturn, echo_peer, pion, pion_run,
    require,
};

use super::{Scene, by_xdp_and_tc, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);

/// A server, and coturn's echo peer at both families of the peer's host.
fn scene(mode: &str) -> Option<(Scene, [Running; 2])> {
    require(coturn())?;
    let scene = Scene::new(mode, |_, _| ())?;
    // Packets sent before the routes exist may be lost, and not all clients retransmit.
    let peers = echo_peers(&scene);
    Some((scene, peers))
}

fn echo_peers(scene: &Scene) -> [Running; 2] {
    [scene.lab.v4.peer, scene.lab.v6.peer].map(|ip| echo_peer(&scene.lab, ip))
}

/// So many packets to peers, and to clients, went through the kernel: a part of all, since on a
/// busy machine the first hundreds may go before there are routes.
#[track_caller]
fn assert_by_kernel(scene: &Scene, to_peers: u64, to_clients: u64) {
    let told = |part: &str| scene.traffic(part);
    wait_until(
        || format!("the kernel relays: {:#}, and not {:#}", told("by_kernel"), told("by_sockets")),
        || {
            let told = told("by_kernel");
            let packets = |leg: &str| told[leg]["packets"].as_u64();
            packets("to_peers") >= Some(to_peers) && packets("to_clients") >= Some(to_clients)
        },
    );
}

#[track_caller]
fn coturn_echoes(mode: &str) {
    let Some((scene, _peers)) = scene(mode) else { return };
    let (v4, v6) = (scene.lab.v4, scene.lab.v6);
    let ways = [
        (v4.listen, v4.peer, "-X"),
        (v4.listen, v6.peer, "-x"),
        (v6.listen, v4.peer, "-X"),
        (v6.listen, v6.peer, "-x"),
    ];
    std::thread::scope(|scope| {
        for (listen, peer, family) in ways {
            let scene = &scene;
            scope.spawn(move || {
                let out = Tool::run(
                    scene
                        .lab
                        .command(Host::Client, "turnutils_uclient")
                        .args(["-u", "alice", "-w", "correct-horse-battery", "-p", "3478"])
                        .args(["-e", &peer.to_string(), "-r", "3480", family, "-c", "-z", "5"])
                        .args(["-n", "100", "-m", "2", "-l", "171", &listen.to_string()]),
                    PATIENCE,
                );
                let all_came = out.ok
                    && out.output.contains("tot_recv_msgs=200")
                    && out.output.contains("Total lost packets 0");
                assert!(all_came, "{listen} to {peer} by {mode}:\n{}", out.output);
            });
        }
    });
    assert_by_kernel(&scene, 300, 300);
}

#[test]
fn coturn_echoes_by_xdp() {
    coturn_echoes("xdp");
}

#[test]
fn coturn_echoes_by_tc() {
    coturn_echoes("tc");
}

#[test]
fn coturn_echoes_by_generic_xdp() {
    coturn_echoes("xdp-generic");
}

#[test]
fn pion_echoes() {
    let Some(client) = require(pion()) else { return };
    by_xdp_and_tc(|mode| {
        let Some((scene, _peers)) = scene(mode) else { return };
        let out =
            Tool::run(&mut pion_run(&scene.lab, &client, &scene.config, (2000, "udp")), PATIENCE);
        assert!(out.ok && out.output.contains("echoed 2000 datagrams"), "{mode}:\n{}", out.output);
        // It pads its ChannelData to four bytes.
        assert_by_kernel(&scene, 200, 200);
    });
}

/// Data of peers for clients with connections is delivered through the ring.
#[test]
fn pion_echoes_over_connections() {
    let Some(client) = require(pion()) else { return };
    by_xdp_and_tc(|mode| {
        let mut certificates = None;
        let secure = |lab: &Lab, config: &mut Config| {
            let certificates = certificates.insert(Certificates::new(lab));
            config.tables.push_str(&certificates.simple());
        };
        let Some(scene) = Scene::new(mode, secure) else { return };
        let _peers = echo_peers(&scene);
        let handed_over = || scene.traffic("by_kernel")["from_peers"]["packets"].as_u64();
        let mut least = 0;
        for transport in ["tcp", "tls", "dtls"] {
            let out = Tool::run(
                &mut pion_run(&scene.lab, &client, &scene.config, (2000, transport)),
                PATIENCE,
            );
            let all_came = out.ok && out.output.contains("echoed 2000 datagrams");
            assert!(all_came, "{mode}, {transport}:\n{}", out.output);
            // The first hundred or more come before the channel is there and proven, and some are
            // shown to the system.
            least += 200;
            wait_until(
                || {
                    format!(
                        "{transport} by {mode}: {:?}, {:#}",
                        handed_over(),
                        scene.traffic("passed")
                    )
                },
                || handed_over() >= Some(least),
            );
        }
    });
}

#[test]
fn aioice_agents_connect_and_exchange() {
    let Some(script) = require(aioice()) else { return };
    by_xdp_and_tc(|mode| {
        let Some(scene) = Scene::new(mode, |_, _| ()) else { return };
        let out = Tool::run(
            scene.lab.command(Host::Client, "/usr/bin/python3").arg(&script).args([
                &scene.lab.v4.listen.to_string(),
                "3478",
                "alice",
                "correct-horse-battery",
                "200",
            ]),
            PATIENCE,
        );
        let all_came = out.ok && out.output.contains("exchanged 200 of 200 both ways");
        assert!(all_came, "{mode}:\n{}", out.output);
        // Both agents are clients, so each message is one to a peer and one to a client.
        assert_by_kernel(&scene, 300, 300);
    });
}
