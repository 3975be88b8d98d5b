//! Relayed addresses of prefixes: by each hook, and by sockets.

use std::net::IpAddr;

use e2e::{Config, Host, Lab};
use turn_types::IpFamily;

use super::scene::{ON_ITS_WAY, Scene, local, wait_until};

const FAMILIES: [IpFamily; 2] = [IpFamily::V4, IpFamily::V6];

/// Networks that the peer's host sends to the server, which delivers them to itself.
fn routed(lab: &Lab, config: &mut Config) {
    for (network, next_hop) in [("10.77.8.0/24", lab.v4.relay), ("fd77:8::/64", lab.v6.relay)] {
        lab.run(Host::Server, "ip", &["route", "add", "local", network, "dev", "lo"]);
        let next_hop = next_hop.to_string();
        lab.run(Host::Peer, "ip", &["route", "add", network, "via", &next_hop]);
    }
    config.relay_keys =
        "prefixes = [\"10.77.8.0/24\", \"fd77:8::/64\"]\nports = \"50000-50999\"".to_owned();
    config.tables += "[workers]\ncount = 2\n";
}

fn is_of_prefix(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.octets()[..3] == [10, 77, 8],
        IpAddr::V6(v6) => v6.segments()[..4] == [0xfd77, 8, 0, 0],
    }
}

#[test]
fn calls_with_addresses_of_prefixes_go_by_every_way() {
    for mode in ["off", "tc", "xdp"] {
        let Some(scene) = Scene::new(mode, routed) else { return };
        for family in FAMILIES {
            let calls: Vec<_> = (0..4).map(|_| scene.call(IpFamily::V4, family)).collect();
            for (number, call) in (0_u8..).zip(&calls) {
                assert!(is_of_prefix(call.caller.relayed().ip()), "{}", call.caller.relayed());
                if mode == "off" {
                    // A new link has no address of its own at first that it could ask for
                    // neighbours from.
                    wait_until(|| format!("{family} to the peer"), || call.to_peer(&[number]));
                    assert!(call.to_client(&[number, number]), "{family} {number} to the client");
                } else {
                    scene.wait_for_kernel(call);
                }
            }
        }
    }
}

#[test]
fn clients_with_addresses_of_a_prefix_reach_each_other() {
    for mode in ["off", "tc", "xdp"] {
        let Some(scene) = Scene::new(mode, routed) else { return };
        for family in FAMILIES {
            let server = (scene.lab.v4.listen, 3478).into();
            let caller = || scene.caller(scene.lab.v4.client, server, family);
            let (mut one, mut other) = (caller(), caller());
            let (there, back) = (one.bind(other.relayed()), other.bind(one.relayed()));
            for number in 0..20 {
                one.send(there, &[number, 1]);
                assert_eq!(other.receive(ON_ITS_WAY), Some(vec![number, 1]));
                other.send(back, &[number, 2]);
                assert_eq!(one.receive(ON_ITS_WAY), Some(vec![number, 2]));
            }
        }
    }
}

#[test]
fn an_allocation_of_a_prefix_takes_no_descriptor() {
    let Some(scene) = Scene::new("off", routed) else { return };
    let descriptors = || {
        let directory = format!("/proc/{}/fd", scene.server.process.pid());
        std::fs::read_dir(directory).expect("descriptors of the server").count()
    };
    let server = (scene.lab.v4.listen, 3478).into();
    let caller = |family| scene.caller(scene.lab.v4.client, server, family);
    // Both workers have their sockets then.
    let _first: Vec<_> = (0..20).map(|_| FAMILIES.map(caller)).collect();
    let before = descriptors();
    let _more: Vec<_> = (0..20).map(|_| FAMILIES.map(caller)).collect();
    assert!(descriptors() <= before + 2, "{before} and then {}", descriptors());
    let prefixes = scene.server.json(&["status"])["relay_prefixes"].take();
    let used: u64 = (0..2).filter_map(|index| prefixes[index]["used"].as_u64()).sum();
    assert_eq!(used, 80, "{prefixes:#}");
}

/// The kernel would let both have the port, and give each a part of the other's packets.
#[test]
fn a_second_server_with_the_same_ports_does_not_start() {
    let Some(scene) = Scene::new("off", routed) else { return };
    let mut config = scene.config.clone();
    config.listen = vec![format!("{}:3479", scene.lab.v4.listen)];
    config.top += "control.socket = \"second.sock\"\n";
    let file = scene.server.config_file().with_extension("second.toml");
    std::fs::write(&file, config.text()).expect("a file");
    let data = file.with_extension("data");
    std::fs::create_dir_all(&data).expect("a directory");
    let mut command = scene.lab.command(Host::Server, e2e::binary());
    command.arg("run").arg("--config").arg(&file).arg("--data").arg(&data);
    let second = e2e::Tool::run(&mut command, std::time::Duration::from_secs(20));
    assert!(!second.ok, "{}", second.output);
    assert!(second.output.contains("at UDP port 50000 of all addresses"), "{}", second.output);
}

/// A service of the server's host that listens at all addresses listens at those of the prefix as
/// well.
#[test]
fn no_service_of_the_host_is_reached_by_an_address_of_a_prefix() {
    let Some(scene) = Scene::new("off", routed) else { return };
    for family in FAMILIES {
        let any = match family {
            IpFamily::V4 => IpAddr::from([0; 4]),
            IpFamily::V6 => IpAddr::from([0; 16]),
        };
        let service = scene.lab.socket(Host::Server, (any, 0));
        service.set_nonblocking(true).expect("a mode");
        let server = (scene.lab.v4.listen, 3478).into();
        let caller = || scene.caller(scene.lab.v4.client, server, family);
        let (mut one, mut other) = (caller(), caller());
        let target = std::net::SocketAddr::new(other.relayed().ip(), local(&service).port());
        assert_eq!(one.try_bind(target), Err(403), "{target}");
        // The address itself is a peer.
        let (there, _back) = (one.bind(other.relayed()), other.bind(one.relayed()));
        one.send(there, b"to the other");
        assert!(other.receive(ON_ITS_WAY).is_some());
        // There is a permission for its other ports now.
        one.indicate(target, b"to the service");
        one.send(there, b"behind it");
        assert_eq!(other.receive(ON_ITS_WAY).as_deref(), Some(&b"behind it"[..]));
        assert!(service.recv(&mut [0; 16]).is_err(), "nothing came");
        assert_eq!(scene.session(&one)["dropped_packets"], 1, "{:#}", scene.session(&one));
        // The service hears others.
        let own = scene.lab.socket(Host::Server, (any, 0));
        own.send_to(b"from the host", target).expect("sent");
        wait_until(|| format!("{target} is heard"), || service.recv(&mut [0; 16]).is_ok());
    }
}
