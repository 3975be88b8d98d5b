//! Interfaces change under a running server.

use std::time::Duration;

use e2e::{Host, Lab};
use turn_types::IpFamily::V4;

use crate::{Call, Scene, by_xdp_and_tc, wait_until};

/// Sends to the peer and back until both come: neighbours may have to be found first.
#[track_caller]
fn wait_for_answers(call: &Call) {
    wait_until(
        || "datagrams come through".to_owned(),
        || call.to_peer(b"ping") && call.to_client(b"pong"),
    );
}

#[test]
fn an_interface_that_goes_down_and_up() {
    by_xdp_and_tc(|mode| {
        let Some(scene) = Scene::new(mode, |_, _| ()) else { return };
        let call = scene.call(V4, V4);
        scene.wait_for_kernel(&call);
        let end = Lab::end_towards(Host::Peer);
        scene.lab.run(Host::Server, "ip", &["link", "set", &end, "down"]);
        call.caller.send(call.channel, b"to nowhere");
        assert_eq!(call.receive_at_peer(Duration::from_millis(200)), None);
        scene.lab.run(Host::Server, "ip", &["link", "set", &end, "up"]);
        wait_for_answers(&call);
        scene.wait_for_kernel(&call);
    });
}

#[test]
fn packets_that_are_longer_than_a_link_takes() {
    for mode in ["off", "xdp", "tc"] {
        let Some(scene) = Scene::new(mode, |_, _| ()) else { return };
        let call = scene.call(V4, V4);
        let set_mtu = |end: Host, mtu: &str| {
            let end = Lab::end_towards(end);
            scene.lab.run(Host::Server, "ip", &["link", "set", &end, "mtu", mtu]);
        };
        wait_for_answers(&call);
        set_mtu(Host::Peer, "600");
        assert!(call.to_peer(&[1; 1000]), "{mode}");
        assert!(call.to_peer(&[2; 500]) && call.to_client(&[3; 500]), "{mode}");
        set_mtu(Host::Peer, "1500");
        set_mtu(Host::Client, "600");
        assert!(call.to_client(&[4; 1000]), "{mode}");
        assert!(call.to_client(&[5; 500]) && call.to_peer(&[6; 500]), "{mode}");
        set_mtu(Host::Client, "1500");
        if mode != "off" {
            scene.wait_for_kernel(&call);
        }
    }
}

#[test]
fn an_interface_that_is_made_again() {
    by_xdp_and_tc(|mode| {
        let Some(scene) = Scene::new(mode, |_, _| ()) else { return };
        let call = scene.call(V4, V4);
        scene.wait_for_kernel(&call);
        let end = Lab::end_towards(Host::Peer);
        scene.lab.run(Host::Server, "ip", &["link", "delete", &end]);
        scene.lab.link_to_peer().expect("it could be made before");
        scene.lab.behave_as_cards().expect("it could before");
        wait_for_answers(&call);
        // The server looks every few seconds.
        scene.wait_for_kernel(&call);
        scene.assert_attached(mode);
    });
}
