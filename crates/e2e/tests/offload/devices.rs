//! Interfaces change under a running server.

use std::time::Duration;

use e2e::{Config, Host, Lab, Server, require};
use turn_types::IpFamily::V4;

use super::{Call, Scene, by_xdp_and_tc, wait_until};

/// State of each interface, by name.
fn shown(scene: &Scene) -> Vec<(String, String)> {
    let status = scene.server.json(&["status"])["offload"]["interfaces"].take();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or("none").to_owned();
    let interfaces = status.as_array().into_iter().flatten();
    interfaces.map(|one| (text(&one["name"]), text(&one["hook"]))).collect()
}

/// Waits for this state of the interfaces.
#[track_caller]
fn wait_until_shown(scene: &Scene, wanted: &[(&str, &str)]) {
    let is_so = || {
        let shown = shown(scene);
        let shown: Vec<_> = shown.iter().map(|(name, hook)| (&**name, &**hook)).collect();
        shown == wanted
    };
    wait_until(|| format!("{wanted:?}, not {:?}", shown(scene)), is_so);
}

/// Sends to the peer and back until both arrive: neighbours may have to be resolved first.
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

/// A link whose far end accepts no whole frames has no queue for them. What is lost is counted,
/// until the server looks at the interfaces again: each minute, or when the kernel tells of some
/// other change, which may be at once.
#[test]
fn an_interface_that_takes_no_frames_of_xdp_any_more() {
    let Some(scene) = Scene::new("xdp", |_, _| ()) else { return };
    /// Packets in a row that are not sent by XDP any more: it shows one to the sockets now and
    /// then.
    const NOTICED: u8 = 20;
    let call = scene.call(V4, V4);
    scene.wait_for_kernel(&call);
    let lost = || scene.server.json(&["status"])["offload"]["redirects_lost"].as_u64();
    let before = lost().expect("they can be seen");
    let end = Lab::end_towards(Host::Server);
    scene.lab.run(Host::Peer, "ethtool", &["-K", &end, "gro", "off"]);
    wait_until(
        || format!("frames are lost: {:?}, {before} before", lost()),
        || {
            let has_noticed = (0..NOTICED).all(|number| call.to_peer(&[number; 100]));
            has_noticed || lost() > Some(before)
        },
    );
    if lost() > Some(before) {
        let text = scene.server.ask(&["status"]).output;
        assert!(text.contains("lost by XDP"), "{text}");
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
        scene.wait_for_kernel(&call);
        scene.assert_attached(mode);
    });
}

#[test]
fn an_interface_that_is_down_at_the_start() {
    let Some(lab) = require(Lab::new()) else { return };
    let (client, peer) = (Lab::end_towards(Host::Client), Lab::end_towards(Host::Peer));
    for end in [&client, &peer] {
        lab.run(Host::Server, "ip", &["link", "set", end, "down"]);
    }
    let mut config = Config::for_lab(&lab);
    config.listen.truncate(1);
    config.relay.truncate(1);
    let server = Server::start(&lab, &config);
    let scene = Scene { lab, config, server };
    wait_until_shown(&scene, &[(&client, "none"), (&peer, "none")]);
    let status = scene.server.json(&["status"]);
    assert!(status["offload"]["off_because"].is_string(), "{status:#}");
    for end in [&client, &peer] {
        scene.lab.run(Host::Server, "ip", &["link", "set", end, "up"]);
    }
    if require(scene.lab.behave_as_cards()).is_none() {
        return;
    }
    wait_until_shown(&scene, &[(&client, "tc"), (&peer, "tc")]);
    let status = scene.server.json(&["status"]);
    assert!(status["offload"]["off_because"].is_null(), "{status:#}");
    let call = scene.call(V4, V4);
    scene.wait_for_kernel(&call);
}

#[test]
fn an_interface_that_is_renamed() {
    by_xdp_and_tc(|mode| {
        let Some(scene) = Scene::new(mode, |_, _| ()) else { return };
        let call = scene.call(V4, V4);
        scene.wait_for_kernel(&call);
        let (client, peer) = (Lab::end_towards(Host::Client), Lab::end_towards(Host::Peer));
        let link = |arguments: &[&str]| {
            scene.lab.run(Host::Server, "ip", &[&["link", "set"], arguments].concat());
        };
        link(&[&peer, "down"]);
        link(&[&peer, "name", "uplink"]);
        link(&["uplink", "up"]);
        wait_until_shown(&scene, &[(&client, mode), ("uplink", mode)]);
        scene.wait_for_kernel(&call);
    });
}

#[test]
fn a_setting_reset_by_another_program() {
    let Some(scene) = Scene::new("tc", |_, _| ()) else { return };
    let call = scene.call(V4, V4);
    scene.wait_for_kernel(&call);
    let status = scene.server.json(&["status"]);
    assert_eq!(status["offload"]["settings"][0], "net.ipv4.conf.lo.forwarding");
    scene.lab.run(Host::Server, "sysctl", &["-w", "net.ipv4.conf.lo.forwarding=0"]);
    scene.wait_for_kernel(&call);
    let log = scene.server.process.output();
    assert!(log.contains("net.ipv4.conf.lo.forwarding to 0"), "{log}");
}
