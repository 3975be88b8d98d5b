//! Calls that the kernel relays, while another process takes the place of the server.

use std::thread::sleep;
use std::time::Duration;

use e2e::{repository, said};
use serde_json::Value;
use turn_types::IpFamily::V4;
use xdp_relay::limits::LEASE;

use super::{Call, Scene, by_xdp_and_tc, wait_until};

/// One second, with the delay of a busy machine.
const A_SECOND: Duration = Duration::from_secs(3);

/// Longest time for a start, or for an end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A little more than the time after which a keeper takes a death for one of another cause.
const EARLY_DEATH: Duration = Duration::from_secs(11);

/// Attempts, of which one may fail: now and then the sockets get a packet of each direction, and
/// later packets wait for it.
const ATTEMPTS: usize = 3;

/// Datagrams of an attempt.
const DATAGRAMS: u64 = 20;

/// Sends datagrams both ways; returns how many arrived at the peer, and at the client.
fn exchange(call: &Call) -> [u64; 2] {
    const STEP: Duration = Duration::from_millis(20);
    let mut arrived = [0; 2];
    for number in 0..DATAGRAMS {
        call.caller.send(call.channel, &number.to_be_bytes());
        drop(call.peer.send(&number.to_be_bytes()));
        arrived[0] += u64::from(call.receive_at_peer(STEP).is_some());
        arrived[1] += u64::from(call.caller.receive(STEP).is_some());
    }
    arrived
}

/// Checks that most datagrams arrive, in all attempts but one.
#[track_caller]
fn mostly(mode: &str, mut attempt: impl FnMut() -> [u64; 2]) {
    let (mut all, mut enough) = (Vec::new(), 0);
    while enough < ATTEMPTS - 1 {
        assert!(all.len() < ATTEMPTS, "{mode}: {all:?} to the peer, and to the client");
        let arrived = attempt();
        enough += usize::from(arrived.iter().all(|arrived| *arrived >= DATAGRAMS * 3 / 4));
        all.push(arrived);
    }
}

#[test]
fn the_kernel_relays_while_no_process_serves() {
    by_xdp_and_tc(|mode| {
        let Some(mut scene) = Scene::new(mode, |_, _| ()) else { return };
        let call = scene.call(V4, V4);
        let counted = |scene: &Scene| {
            let session = scene.session(&call.caller);
            session["to_peers"]["packets"].as_u64().expect("packets")
        };
        mostly(mode, || {
            scene.wait_for_kernel(&call);
            let before = counted(&scene);
            let process = said::hang(&scene.server);
            let arrived = exchange(&call);
            drop(process);
            // The server has taken everything back.
            scene.wait_for_kernel(&call);
            assert!(counted(&scene) > before + arrived[0], "{mode}: {before}, {arrived:?}");
            arrived
        });
        let before = counted(&scene);
        let upgraded = scene.server.upgrade(&[]);
        assert!(upgraded.ok, "{}", upgraded.output);
        scene.assert_attached(mode);
        scene.wait_for_kernel(&call);
        assert!(counted(&scene) > before, "{mode}: {before}");
    });
}

/// Ends the server; its manager keeps the store.
fn end(scene: &mut Scene, manager: &str) {
    let ends = |scene: &Scene| scene.server.process.output().matches("descriptors wait").count();
    let before = ends(scene);
    scene.server.process.signal(manager);
    wait_until(|| scene.server.process.output(), || ends(scene) > before);
}

/// Lets the manager start the next one, which goes on with so many allocations.
fn start_next(scene: &Scene, allocations: u64) {
    scene.server.process.signal("HUP");
    wait_until(
        || scene.server.process.output(),
        || {
            let status = scene.server.ask(&["status", "--json"]);
            let status: Value = serde_json::from_str(&status.output).unwrap_or_default();
            status["took_over"]["allocations"] == allocations
        },
    );
}

#[test]
fn the_kernel_relays_while_the_server_restarts() {
    by_xdp_and_tc(|mode| {
        let manager = repository().join("crates/e2e/clients/service_manager.py");
        let through = vec!["python3".to_owned(), manager.display().to_string()];
        let Some(mut scene) = Scene::new(mode, |_, config| config.through = through) else {
            return;
        };
        let call = scene.call(V4, V4);
        mostly(mode, || {
            scene.wait_for_kernel(&call);
            end(&mut scene, "USR1");
            let arrived = exchange(&call);
            start_next(&scene, 1);
            scene.wait_for_kernel(&call);
            scene.assert_attached(mode);
            arrived
        });

        // Not for ever: routes that no server looks after end.
        end(&mut scene, "USR1");
        let open = call.still_open();
        println!("without a server, {mode}: open for {open:?} (to the peer, to the client)");
        assert!(open.iter().all(|open| *open < LEASE + A_SECOND), "{mode}: {open:?}");
        start_next(&scene, 1);

        // Not what the next one refuses.
        scene.wait_for_kernel(&call);
        end(&mut scene, "USR1");
        scene.config.allow.clear();
        scene.server.rewrite(&scene.config);
        start_next(&scene, 1);
        call.drain();
        assert_eq!(exchange(&call), [0, 0], "{mode}: {}", scene.server.process.output());
    });
}

#[test]
fn the_kernel_relays_while_the_server_is_dead() {
    by_xdp_and_tc(|mode| {
        let Some(mut scene) = Scene::new(mode, |_, _| ()) else { return };
        let _keeper = scene.server.keeper(&scene.lab);
        let call = scene.call(V4, V4);
        scene.server.process.wait_for("a keeper has copies", PATIENCE);
        let mut has_died = false;
        mostly(mode, || {
            // A server that dies soon after it has taken the calls over may have died of them.
            if std::mem::replace(&mut has_died, true) {
                sleep(EARLY_DEATH);
            }
            scene.wait_for_kernel(&call);
            // Several times the interval of copies.
            sleep(Duration::from_secs(1));
            scene.wait_for_kernel(&call);
            scene.server.process.signal("KILL");
            scene.server.process.wait(PATIENCE);
            let arrived = exchange(&call);
            scene.server.start_again(&scene.lab, &[]);
            let took_over = scene.server.json(&["status"])["took_over"]["allocations"].take();
            assert_eq!(took_over, 1, "{mode}: {}", scene.server.process.output());
            scene.server.process.wait_for("a keeper has copies", PATIENCE);
            scene.wait_for_kernel(&call);
            scene.assert_attached(mode);
            arrived
        });
        let upgraded = scene.server.upgrade(&[]);
        assert!(upgraded.ok, "{}", upgraded.output);
        scene.wait_for_kernel(&call);
        scene.assert_attached(mode);
    });
}
