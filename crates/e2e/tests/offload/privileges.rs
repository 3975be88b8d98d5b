//! Without privileges the server reports the missing ones, and relays by sockets.

use turn_types::IpFamily::V4;

use super::Scene;

#[test]
fn without_capabilities_sockets_relay_and_status_explains() {
    let all_but = ["setpriv", "--bounding-set", "-bpf,-sys_admin,-perfmon", "--inh-caps", "-all"];
    let Some(scene) = Scene::new("off", |_, config| {
        config.tables = "[offload]\nmode = \"auto\"\n".to_owned();
        config.through = all_but.map(str::to_owned).to_vec();
    }) else {
        return;
    };
    let offload = scene.server.json(&["status"])["offload"].take();
    let why = offload["off_because"].as_str().unwrap_or_default();
    assert!(why.contains("CAP_BPF") && !why.contains("CAP_NET_ADMIN"), "{offload:#}");
    let call = scene.call(V4, V4);
    assert!(call.to_peer(b"to the peer") && call.to_client(b"to the client"));
    let session = scene.session(&call.caller);
    assert_eq!(session["offload"]["by"], "sockets", "{session:#}");
    assert_eq!(session["offload"]["reason"], "off", "{session:#}");
}
