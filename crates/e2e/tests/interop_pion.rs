//! pion, the Go client that LiveKit and many others are built on.

use std::time::Duration;

use e2e::{Certificates, Config, Host, Lab, Running, Server, Tool, pion, require};

#[test]
fn echoes_by_send_indications_and_channels() {
    let Some(client) = require(pion()) else { return };
    let Some(lab) = require(Lab::new()) else { return };
    let certificates = Certificates::new(&lab);
    let config =
        Config { top: String::new(), tables: certificates.simple(), ..Config::for_lab(&lab) };
    let _server = Server::start(&lab, &config);
    let _peer = Running::start(lab.command(Host::Peer, "turnutils_peer").args([
        "-p",
        "3480",
        "-L",
        &lab.v4.peer.to_string(),
    ]));
    for transport in ["udp", "tcp", "tls", "dtls"] {
        // pion's client looks its server up in IPv4 only.
        let out = Tool::run(
            lab.command(Host::Client, &client).args([
                &format!("{}:3478", lab.v4.listen),
                config.accounts[0].name,
                config.accounts[0].password,
                "turn.test",
                &format!("{}:3480", lab.v4.peer),
                "300",
                transport,
            ]),
            Duration::from_secs(60),
        );
        assert!(out.ok && out.output.contains("echoed 300 of 300"), "{transport}: {}", out.output);
    }
}
