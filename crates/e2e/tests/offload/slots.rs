//! Slots of the kernel path are for channels with traffic.

use std::net::SocketAddr;

use turn_types::IpFamily;

use super::scene::{Scene, wait_until};

#[test]
fn channels_without_data_take_no_slot() {
    let Some(scene) = Scene::new("tc", |_, _| {}) else { return };
    let addresses = scene.lab.v4;
    let server = SocketAddr::new(addresses.listen, 3478);
    let mut caller = scene.caller(addresses.client, server, IpFamily::V4);
    let peer = |port| SocketAddr::new(addresses.peer, port);
    let channels: Vec<_> = (5000..5020).map(|port| caller.bind(peer(port))).collect();
    let session = scene.session(&caller);
    assert_eq!(session["channels"], 20, "{session:#}");
    assert_eq!(session["offload"]["reason"], "silent", "{session:#}");

    caller.send(channels[3], b"first");
    let what = || format!("one channel has a slot: {:#}", scene.session(&caller));
    wait_until(what, || scene.session(&caller)["offload"]["channels"] == 1);
}
