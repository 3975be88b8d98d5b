//! Interfaces above others, where both have the program: packets come by both, and leave by both.

use std::time::Duration;

use e2e::{Host, Lab};
use turn_types::IpFamily::V4;

use super::rules::ip;
use super::{Scene, wait_until};

/// Puts an interface of a kind over the link to the peer, with its addresses; reports a skip if it
/// cannot.
fn put_over_link(lab: &Lab, kind: &str) -> Option<()> {
    let made =
        lab.command(Host::Server, "ip").args(["link", "add", "above", "type", kind]).output();
    let made = made.expect("ip runs");
    let reason = || format!("no {kind}: {}", String::from_utf8_lossy(&made.stderr).trim());
    e2e::require(made.status.success().then_some(()).ok_or_else(reason))?;
    let commands = "link set to-peer down
        link set to-peer master above
        addr flush dev to-peer
        link set to-peer up
        link set above up
        addr add 10.77.2.1/24 dev above
        addr add fd77:2::1/64 dev above nodad";
    commands.lines().for_each(|command| ip(lab, command.trim()));
    Some(())
}

/// The kernel relays both ways, and each datagram arrives once and is counted once.
fn both_have_the_program(kind: &str) {
    let mut is_made = None;
    let Some(scene) = Scene::new("tc", |lab, config| {
        is_made = put_over_link(lab, kind);
        if is_made.is_some() {
            config.tables.push_str("interfaces = [\"to-client\", \"to-peer\", \"above\"]\n");
        }
    }) else {
        return;
    };
    let Some(()) = is_made else { return };
    let call = scene.call(V4, V4);
    scene.wait_for_kernel(&call);
    let counted = || {
        let session = scene.session(&call.caller);
        ["to_peers", "to_client"].map(|way| session[way]["packets"].as_u64().expect("packets"))
    };
    let before = counted();
    for n in 0..200_u64 {
        let payload = n.to_be_bytes();
        // A second copy would come before the next one.
        assert!(call.to_peer(&payload) && call.to_client(&payload), "{kind}: {n}");
    }
    assert_eq!(call.receive_at_peer(Duration::from_millis(100)), None, "{kind}");
    assert_eq!(call.caller.receive(Duration::from_millis(100)), None, "{kind}");
    let what = || format!("{kind}: 200 each way: {:?} after {before:?}", counted());
    wait_until(what, || counted() == before.map(|packets| packets + 200));
    // As a container there.
    let end = Lab::end_towards(Host::Server);
    scene.lab.run(Host::Peer, "ethtool", &["-K", &end, "tx", "on"]);
    scene.wait_for_kernel(&call);
    // On a busy machine the sockets relay many of them.
    let partial = || scene.traffic("partial_checksums");
    let what = || format!("{kind}: {} partial checksums by the kernel", partial());
    wait_until(what, || {
        for n in 0..50_u64 {
            let payload = n.to_be_bytes();
            assert!(call.to_peer(&payload) && call.to_client(&payload), "{kind}: {n}");
        }
        partial().as_u64() > Some(100)
    });
}

#[test]
fn a_bridge_and_its_port() {
    both_have_the_program("bridge");
}

#[test]
fn a_bond_and_its_port() {
    both_have_the_program("bond");
}
