//! Sockets of one interface.

use std::time::Duration;

use e2e::{Config, Host, Lab, Server, Tool, coturn, echo_peer, require};

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

#[test]
fn clients_and_peers_are_served_by_the_named_interfaces_alone() {
    if require(coturn()).is_none() {
        return;
    }
    let Some(lab) = require(Lab::new()) else { return };
    let clients = interface_of(&lab, &lab.v4.listen.to_string());
    let peers = interface_of(&lab, &lab.v4.relay.to_string());
    let start = |listen: &str, relay: &str| {
        let mut config = Config::for_lab(&lab);
        config.tables = format!(
            "[sockets]\nlisten_device = \"{listen}\"\nrelay_device = \"{relay}\"\n[offload]\nmode = \"off\"\n"
        );
        Server::start(&lab, &config)
    };
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
