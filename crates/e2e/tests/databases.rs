//! The confined server with users in databases that it shares with coturn.

use std::time::Duration;

use e2e::{Config, Host, Lab, Server, Tool, require};
use test_support::{DatabaseKind, DatabaseServer, eventually};

const PATIENCE: Duration = Duration::from_secs(60);

/// A call of coturn's client, in which every message comes back.
fn calls(lab: &Lab, name: &str, password: &str) -> bool {
    let mut client = lab.command(Host::Client, "turnutils_uclient");
    client.args(["-y", "-c", "-m", "1", "-n", "2", "-r", "3480", "-u", name, "-w", password]);
    let out = Tool::run(client.arg(lab.v4.listen.to_string()), PATIENCE);
    out.output.contains("Total lost packets 0")
}

fn works_with(kind: DatabaseKind) {
    let Some(lab) = require(Lab::new()) else { return };
    let Some(mut database) = require(DatabaseServer::start(kind)) else { return };
    let mut config = Config::for_lab(&lab);
    config.accounts.clear();
    config.allow.push(lab.v4.relay.to_string());
    config.tables = format!("[users]\ndatabase = \"{}\"\n", database.url());
    let server = Server::start(&lab, &config);
    let status = server.json(&["status"]);
    assert_eq!(status["confinement"]["landlock"]["on"], true, "{status}");
    assert_eq!(status["confinement"]["seccomp"]["on"], true, "{status}");

    assert!(!calls(&lab, "alice", "battery-staple"));
    database.turnadmin(&["-a", "-u", "alice", "-r", "turn.test", "-p", "battery-staple"]);
    eventually("a user of turnadmin relays", || calls(&lab, "alice", "battery-staple"));
    let file = server.config_file().display().to_string();
    let command = |words: &[&str]| server.ask(&[&["user"], words, &["--config", &file]].concat());
    let added = command(&["add", "bob", "--password", "correct-horse"]);
    assert!(added.ok, "{}", added.output);
    assert!(database.turnadmin(&["-l", "-r", "turn.test"]).contains("bob"));
    eventually("a user of turnpike relays", || calls(&lab, "bob", "correct-horse"));

    database.pause();
    assert!(calls(&lab, "alice", "battery-staple"), "she was known before");
    database.resume();
    database.stop();
    assert!(calls(&lab, "alice", "battery-staple"), "she was known before");
    let refused = command(&["list"]);
    assert!(!refused.ok, "{}", refused.output);
    assert!(!refused.output.contains("turn-password"), "{}", refused.output);
    database.start_again();
    database.turnadmin(&["-a", "-u", "carol", "-r", "turn.test", "-p", "battery-staple"]);
    eventually("a new user relays", || calls(&lab, "carol", "battery-staple"));
    assert!(!server.process.output().contains("turn-password"));
}

#[test]
fn users_of_postgresql_relay() {
    works_with(DatabaseKind::Postgres);
}

#[test]
fn users_of_mariadb_relay() {
    works_with(DatabaseKind::Mariadb);
}

#[test]
fn users_of_redis_relay() {
    works_with(DatabaseKind::Redis);
}
