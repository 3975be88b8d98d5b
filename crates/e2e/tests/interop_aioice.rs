//! aioice, a Python ICE agent, restricted to relayed candidates.

use std::time::Duration;

use e2e::{Config, Host, Lab, Server, Tool, aioice, require};

#[test]
fn two_relay_only_agents_connect_and_exchange() {
    let Some(script) = require(aioice()) else { return };
    let Some(lab) = require(Lab::new()) else { return };
    let config = Config { top: String::new(), ..Config::for_lab(&lab) };
    let _server = Server::start(&lab, &config);
    let out = Tool::run(
        lab.command(Host::Client, "/usr/bin/python3").arg(script).args([
            &lab.v4.listen.to_string(),
            "3478",
            config.accounts[0].name,
            config.accounts[0].password,
            "200",
        ]),
        Duration::from_secs(60),
    );
    assert!(out.ok && out.output.contains("exchanged 200 of 200 both ways"), "{}", out.output);
    assert!(out.output.contains(&format!("relayed address {}", lab.v4.relay)), "{}", out.output);
}
