//! Sockets of one interface.

use std::time::Duration;

use e2e::{Config, Host, Lab, Server, Tool, coturn, echo_peer, require};
use test_support::eventually;

const PATIENCE: Duration = Duration::from_secs(30);

/// The interface of the server's host that has an address.
fn interface_of(lab: &Lab, address: &str) -> String {
    let all = lab.run(Host::Server, "ip", &["-o", "-4", "address"]);
    let line = all.lines().find(|line| line.contains(&format!(" {address}/")));
    let name = line.and_then(|line| line.split_whitespace().nth(1));
    name.unwrap_or_else(|| panic!("{address} in:\n{all}"))
        .split('@')
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn call(lab: &Lab, patience: Duration) -> Tool {
    let peer = lab.v4.peer.to_string();
    let mut command = lab.command(Host::Client, "turnutils_uclient");
    command.args(["-u", "alice", "-w", "correct-horse-battery", "-e", &peer, "-r", "3480"]);
    Tool::run(command.args(["-c", "-m", "1", "-n", "5", &lab.v4.listen.to_string()]), patience)
}

/// Configuration of a server at two interfaces.
fn at(lab: &Lab, listen: &str, relay: &str) -> Config {
    let mut config = Config::for_lab(lab);
    config.tables = format!(
        "[sockets]\nlisten_device = \"{listen}\"\nrelay_device = \"{relay}\"\n[offload]\nmode = \"off\"\n"
    );
    config
}

/// Faults that the status tells now.
fn faults(server: &Server) -> String {
    server.json(&["status"])["now"]["problems"].to_string()
}

#[test]
fn clients_and_peers_are_served_by_the_named_interfaces_alone() {
    if require(coturn()).is_none() {
        return;
    }
    let Some(lab) = require(Lab::new()) else { return };
    let clients = interface_of(&lab, &lab.v4.listen.to_string());
    let peers = interface_of(&lab, &lab.v4.relay.to_string());
    let start = |listen: &str, relay: &str| Server::start(&lab, &at(&lab, listen, relay));
    let _peer = echo_peer(&lab, lab.v4.peer);
    let mut server = start(&clients, &peers);
    let served = call(&lab, PATIENCE);
    assert!(served.ok, "{}", served.output);
    let status = server.json(&["status"]);
    assert_ne!(status["traffic"]["from_clients"]["packets"], 0, "{status:#}");
    assert!(server.stop());

    let mut server = start("lo", &peers);
    let unheard = call(&lab, Duration::from_secs(4));
    assert!(!unheard.ok, "{}", unheard.output);
    let status = server.json(&["status"]);
    assert_eq!(status["traffic"]["from_clients"]["packets"], 0, "{status:#}");
    assert!(server.stop());
}

/// The peers' interface appears after the start, is replaced, and is renamed.
#[test]
fn relays_follow_the_name_of_their_interface() {
    if require(coturn()).is_none() {
        return;
    }
    let Some(lab) = require(Lab::new()) else { return };
    let clients = interface_of(&lab, &lab.v4.listen.to_string());
    let peers = interface_of(&lab, &lab.v4.relay.to_string());
    let link = |arguments: &[&str]| lab.run(Host::Server, "ip", &[&["link"], arguments].concat());
    let _peer = echo_peer(&lab, lab.v4.peer);
    let mut server = Server::start(&lab, &at(&lab, &clients, "wan0"));
    assert!(faults(&server).contains("sockets.relay_device: this host has no interface wan0"));
    let unserved = call(&lab, Duration::from_secs(4));
    assert!(!unserved.ok && unserved.output.contains("508"), "{}", unserved.output);

    // Another interface has the name first: it leads to no peer.
    link(&["add", "wan0", "type", "veth", "peer", "name", "wan1"]);
    eventually("the interface", || !faults(&server).contains("wan0"));
    assert!(!call(&lab, Duration::from_secs(4)).ok);
    link(&["delete", "wan0"]);
    eventually("its end", || faults(&server).contains("wan0"));
    link(&["set", &peers, "down"]);
    link(&["set", &peers, "name", "wan0"]);
    link(&["set", "wan0", "up"]);
    eventually("the interface of the peers", || !faults(&server).contains("wan0"));
    let served = call(&lab, PATIENCE);
    assert!(served.ok, "{}", served.output);
    assert!(server.stop());
}

#[test]
fn a_server_waits_for_the_interface_of_its_clients() {
    let Some(lab) = require(Lab::new()) else { return };
    let peers = interface_of(&lab, &lab.v4.relay.to_string());
    let mut server = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(1));
            lab.run(Host::Server, "ip", &["link", "add", "late0", "type", "veth"])
        });
        Server::start(&lab, &at(&lab, "late0", &peers))
    });
    assert_eq!(faults(&server), "[]");
    lab.run(Host::Server, "ip", &["link", "delete", "late0"]);
    eventually("its end", || faults(&server).contains("listen_device: this host has no interface"));
    lab.run(Host::Server, "ip", &["link", "add", "late0", "type", "veth"]);
    eventually("another one", || faults(&server).contains("not heard until a restart"));
    assert!(server.stop());
}
