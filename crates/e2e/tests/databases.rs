//! The confined server with users in databases that it shares with coturn.

use std::net::SocketAddr;
use std::time::Duration;

use e2e::{Account, Caller, Config, Host, Lab, Running, Server, Tool, require};
use test_support::{DatabaseKind, DatabaseServer, eventually};
use turn_client::Families;

const PATIENCE: Duration = Duration::from_secs(60);

/// Longest time for a datagram that no rule stops.
const ON_THE_WAY: Duration = Duration::from_secs(5);

const TURNPIKE: u16 = 3478;
const COTURN: u16 = 3488;

/// Two clients of one account call each other at Turnpike's port.
fn calls(lab: &Lab, name: &'static str, password: &'static str) -> bool {
    calls_at(lab, TURNPIKE, name, password)
}

/// Two clients of one account call each other. Returns false if the server refuses one of them.
fn calls_at(lab: &Lab, port: u16, name: &'static str, password: &'static str) -> bool {
    let server = SocketAddr::new(lab.v4.listen, port);
    let account = Account { name, password };
    let ask = || {
        let socket = lab.socket(Host::Client, (lab.v4.client, 0));
        Caller::ask(socket, server, account, Families::Unsaid)
    };
    let (Ok(mut first), Ok(mut second)) = (ask(), ask()) else { return false };
    let (one, other) = (first.relayed(), second.relayed());
    // A new rule may refuse any request.
    let Ok(_) = first.try_bind(other) else { return false };
    let Ok(channel) = second.try_bind(one) else { return false };
    second.send(channel, b"hello");
    let Some(heard) = first.data(ON_THE_WAY) else { return false };
    first.release();
    second.release();
    (heard.peer, &*heard.payload) == (other, b"hello")
}

/// A call of coturn's client, in which every message comes back.
fn calls_with(lab: &Lab, options: &[&str]) -> bool {
    let mut client = lab.command(Host::Client, "turnutils_uclient");
    client.args(["-y", "-c", "-m", "1", "-n", "2", "-r", "3480"]).args(options);
    let out = Tool::run(client.arg(lab.v4.listen.to_string()), PATIENCE);
    out.output.contains("Total lost packets 0")
}

/// Requests that the server has refused for a reason.
fn refusals(server: &Server, reason: &str) -> u64 {
    server.json(&["status"])["refusals"][reason].as_u64().unwrap_or_default()
}

/// True if a call fails, and for this reason.
fn is_refused(server: &Server, reason: &str, call: impl Fn() -> bool) -> bool {
    let before = refusals(server, reason);
    !call() && refusals(server, reason) > before
}

/// A database in the server's host.
fn database_in(lab: &Lab, kind: DatabaseKind) -> Option<DatabaseServer> {
    let namespace = lab.namespace(Host::Server);
    require(DatabaseServer::start_through(kind, &["ip", "netns", "exec", &namespace]))
}

/// Coturn's server at the same addresses, at a port of its own.
fn coturn_beside(lab: &Lab, database: &DatabaseServer) -> Running {
    let mut command = lab.command(Host::Server, "turnserver");
    command.args(["-n", "--no-cli", "--lt-cred-mech", "--realm=turn.test", "--log-file=stdout"]);
    command.args(["--simple-log", "--no-tls", "--no-dtls", "--allow-loopback-peers"]);
    command.args(["--listening-port", &COTURN.to_string(), "--min-port=20000", "--max-port=20999"]);
    command.arg(format!("--listening-ip={}", lab.v4.listen));
    command.arg(format!("--relay-ip={}", lab.v4.relay));
    Running::start(command.arg("--pidfile=/dev/null").arg(database.coturn_option()))
}

/// Coturn and Turnpike serve at the same time, and each user is of both, whichever program writes.
fn is_shared_with_coturn(kind: DatabaseKind) {
    let Some(lab) = require(Lab::new()) else { return };
    let Some(database) = database_in(&lab, kind) else { return };
    let mut config = Config::for_lab(&lab);
    config.accounts.clear();
    config.allow.push(lab.v4.relay.to_string());
    config.tables = format!("[users]\ndatabase = \"{}\"\n", database.url());
    let server = Server::start(&lab, &config);
    let _coturn = coturn_beside(&lab, &database);

    let file = server.config_file().display().to_string();
    let add = |name: &str, password: &str| {
        let words = ["user", "add", name, "--password", password, "--config", &file];
        let added = server.ask(&words);
        assert!(added.ok, "{}", added.output);
    };
    for name in ["ours", "theirs"] {
        let call = || calls(&lab, name, "battery-staple");
        assert!(is_refused(&server, "unknown_user", call), "{name} is known not to be there");
    }
    add("ours", "battery-staple");
    database.turnadmin(&["-a", "-u", "theirs", "-r", "turn.test", "-p", "battery-staple"]);
    // The bound of a second is of two times, which a test of user-db states.
    for name in ["ours", "theirs"] {
        for port in [TURNPIKE, COTURN] {
            let call = || calls_at(&lab, port, name, "battery-staple");
            eventually(&format!("{name} relays at {port}"), call);
            assert!(call(), "{name} relays again at {port}");
        }
    }
    let deleted = server.ask(&["user", "delete", "theirs", "--config", &file]);
    assert!(deleted.ok, "{}", deleted.output);
    database.turnadmin(&["-d", "-u", "ours", "-r", "turn.test"]);
    for name in ["ours", "theirs"] {
        let call = || calls(&lab, name, "battery-staple");
        eventually(&format!("{name} is gone"), || is_refused(&server, "unknown_user", call));
    }
    eventually("theirs is gone at coturn's server", || {
        !calls_at(&lab, COTURN, "theirs", "battery-staple")
    });
}

#[test]
fn coturn_and_turnpike_share_one_postgresql() {
    is_shared_with_coturn(DatabaseKind::Postgres);
}

#[test]
fn coturn_and_turnpike_share_one_mariadb() {
    is_shared_with_coturn(DatabaseKind::Mariadb);
}

#[test]
fn coturn_and_turnpike_share_one_redis() {
    is_shared_with_coturn(DatabaseKind::Redis);
}

const SECRET: &str = "a-secret-of-the-database";
/// Time-limited user name, with its expiry.
const MALLORY: &str = "4102444800:mallory";
const PAGE: &str = "https://meet.tenant.test";

/// Adds or deletes an address that no client may reach; `turnadmin` has no word for it.
fn deny(database: &DatabaseServer, kind: DatabaseKind, ip: &str, is_denied: bool) {
    let text = match (kind, is_denied) {
        (DatabaseKind::Redis, true) => format!("SADD turn/realm//denied-peer-ip {ip}"),
        (DatabaseKind::Redis, false) => format!("SREM turn/realm//denied-peer-ip {ip}"),
        (_, true) => format!("INSERT INTO denied_peer_ip (realm, ip_range) VALUES ('', '{ip}')"),
        (_, false) => format!("DELETE FROM denied_peer_ip WHERE ip_range = '{ip}'"),
    };
    database.run(&text);
}

/// Secrets, realms and their limits of `turnadmin`, and rules for peers, count in a server that
/// runs.
fn rules_are_live(kind: DatabaseKind) {
    let denied = "peer_forbidden";
    let Some(lab) = require(Lab::new()) else { return };
    let Some(database) = database_in(&lab, kind) else { return };
    let mut config = Config::for_lab(&lab);
    config.accounts.clear();
    let relay = lab.v4.relay.to_string();
    config.allow.push(relay.clone());
    config.tables = format!(
        "[users]\ndatabase = \"{}\"\ndatabase_tables = [\"realms\", \"peers\", \"secrets\"]\n",
        database.url()
    );
    let mut server = Server::start(&lab, &config);

    let password = stun_wire::time_limited_password(SECRET.as_bytes(), MALLORY).leak();
    let by_secret = || calls(&lab, MALLORY, password);
    assert!(is_refused(&server, "unknown_user", by_secret));
    database.turnadmin(&["-s", SECRET, "-r", "turn.test"]);
    eventually("a secret of turnadmin is taken", by_secret);

    let tenant = ["-u", "alice", "-w", "battery-staple", "-o", PAGE];
    database.turnadmin(&["-a", "-u", "alice", "-r", "tenant.test", "-p", "battery-staple"]);
    database.turnadmin(&["-O", "-o", PAGE, "-r", "tenant.test"]);
    eventually("an origin chooses its realm", || calls_with(&lab, &tenant));
    let elsewhere = || calls(&lab, "alice", "battery-staple");
    assert!(is_refused(&server, "unknown_user", elsewhere), "she is of the other realm");

    // Two clients that call each other have an allocation each.
    database.turnadmin(&["-g", "-r", "tenant.test", "--user-quota=1"]);
    eventually("a limit of turnadmin counts", || {
        is_refused(&server, "user_quota", || calls_with(&lab, &tenant))
    });
    if kind == DatabaseKind::Sqlite {
        // Of this file turnadmin 4.6 deletes no limit.
        database.run("DELETE FROM turn_realm_option");
    } else {
        database.turnadmin(&["-g", "-r", "tenant.test", "--user-quota=0"]);
    }
    eventually("it is gone", || calls_with(&lab, &tenant));

    deny(&database, kind, &relay, true);
    eventually("a peer is denied", || is_refused(&server, denied, by_secret));
    database.pause();
    assert!(is_refused(&server, denied, by_secret), "the last known rules stay in force");
    server.upgrade_times(1);
    eventually("also in the next process", || is_refused(&server, denied, by_secret));
    database.resume();
    deny(&database, kind, &relay, false);
    eventually("the peer is allowed again", by_secret);

    database.turnadmin(&["-X", SECRET, "-r", "turn.test"]);
    eventually("a deleted secret is of no use", || is_refused(&server, "unknown_user", by_secret));
    let log = server.process.output();
    assert!(log.contains("the rules of the database are in force"), "{log}");
    assert!(!log.contains(SECRET), "{log}");
}

#[test]
fn rules_of_postgresql_are_live() {
    rules_are_live(DatabaseKind::Postgres);
}

#[test]
fn rules_of_mariadb_are_live() {
    rules_are_live(DatabaseKind::Mariadb);
}

#[test]
fn rules_of_redis_are_live() {
    rules_are_live(DatabaseKind::Redis);
}

#[test]
fn coturn_and_turnpike_share_one_file_of_sqlite() {
    is_shared_with_coturn(DatabaseKind::Sqlite);
}

#[test]
fn rules_of_a_file_of_sqlite_are_live() {
    rules_are_live(DatabaseKind::Sqlite);
}

fn is_logged(server: &Server, line: &str) {
    eventually(line, || server.process.output().contains(line));
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

    let alice = || calls(&lab, "alice", "battery-staple");
    assert!(is_refused(&server, "unknown_user", alice));
    database.turnadmin(&["-a", "-u", "alice", "-r", "turn.test", "-p", "battery-staple"]);
    eventually("a user of turnadmin relays", || calls(&lab, "alice", "battery-staple"));
    let file = server.config_file().display().to_string();
    let command = |words: &[&str]| server.ask(&[&["user"], words, &["--config", &file]].concat());
    let added = command(&["add", "bob", "--password", "correct-horse"]);
    assert!(added.ok, "{}", added.output);
    assert!(database.turnadmin(&["-l", "-r", "turn.test"]).contains("bob"));
    eventually("a user of turnpike relays", || calls(&lab, "bob", "correct-horse"));

    database.pause();
    // The server queries the database again once a confirmation is some seconds old.
    eventually("the server gives the database up", || {
        assert!(calls(&lab, "alice", "battery-staple"), "she was known before");
        let line = "users whom it has confirmed within the last hour log in, others cannot";
        server.process.output().contains(line)
    });
    database.resume();
    database.stop();
    assert!(calls(&lab, "alice", "battery-staple"), "she was known before");
    let refused = command(&["list"]);
    assert!(!refused.ok, "{}", refused.output);
    assert!(!refused.output.contains("turn-password"), "{}", refused.output);
    is_logged(&server, "their last known rules stay in force");
    database.start_again();
    database.turnadmin(&["-a", "-u", "carol", "-r", "turn.test", "-p", "battery-staple"]);
    eventually("a new user relays", || calls(&lab, "carol", "battery-staple"));
    let log = server.process.output();
    assert!(!log.contains("turn-password"));
    for line in
        ["the user database is read again", "the tables of the user database are read again"]
    {
        is_logged(&server, line);
    }
}

/// A command changes a user right before an outage: the old password is good for nothing until the
/// database has confirmed it, also in the next process.
#[test]
fn a_changed_user_is_unconfirmed_in_the_next_process_too() {
    let Some(lab) = require(Lab::new()) else { return };
    let Some(database) = database_in(&lab, DatabaseKind::Redis) else { return };
    let mut config = Config::for_lab(&lab);
    config.accounts.clear();
    config.tables = format!("[users]\ndatabase = \"{}\"\n", database.url());
    let mut server = Server::start(&lab, &config);
    let file = server.config_file();
    let command = |words: &[&str]| {
        let mut command = lab.command(Host::Server, e2e::binary());
        command.arg("user").args(words).arg("--config").arg(&file);
        let done = Tool::run(command.arg("--data").args(file.parent()), PATIENCE);
        assert!(done.ok, "{}", done.output);
    };
    for name in ["alice", "bob"] {
        command(&["add", name, "--password", "battery-staple"]);
    }
    let at = SocketAddr::new(lab.v4.listen, TURNPIKE);
    let [mut first, mut second, mut bob] = ["alice", "alice", "bob"].map(|name| {
        let account = Account { name, password: "battery-staple" };
        let socket = lab.socket(Host::Client, (lab.v4.client, 0));
        Caller::ask(socket, at, account, Families::Unsaid).expect("an allocation")
    });
    command(&["password", "alice", "--password", "another-password"]);
    database.pause();
    for alice in [&mut first, &mut second] {
        let reason = "user_database_unavailable";
        let before = refusals(&server, reason);
        alice.request_refresh();
        eventually("the old password is refused", || refusals(&server, reason) > before);
        bob.refresh();
        server.upgrade_times(1);
    }
    database.resume();
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

/// The confined server opens no file of the host's authorities when it connects.
fn is_reached_by_tls(kind: DatabaseKind) {
    let Some(lab) = require(Lab::new()) else { return };
    let Some(mut database) = database_in(&lab, kind) else { return };
    database.turnadmin(&["-a", "-u", "alice", "-r", "turn.test", "-p", "battery-staple"]);
    let [authority, _] = database.encrypt();
    let authority = authority.display().to_string().replace('/', "%2F");
    let (url, option) = (database.tcp_url(), format!("sslrootcert={authority}"));
    let url = if matches!(kind, DatabaseKind::Redis) {
        format!("{}?{option}", url.replace("redis://", "rediss://"))
    } else {
        format!("{url}?sslmode=verify-full&{option}")
    };
    let mut config = Config::for_lab(&lab);
    config.accounts.clear();
    config.allow.push(lab.v4.relay.to_string());
    config.tables = format!("[users]\ndatabase = \"{url}\"\n");
    let server = Server::start(&lab, &config);
    let status = server.json(&["status"]);
    assert_eq!(status["confinement"]["landlock"]["on"], true, "{status}");
    eventually("the user of the database relays", || calls(&lab, "alice", "battery-staple"));
}

#[test]
fn an_encrypted_postgresql_is_reached_by_a_confined_server() {
    is_reached_by_tls(DatabaseKind::Postgres);
}

#[test]
fn an_encrypted_mariadb_is_reached_by_a_confined_server() {
    is_reached_by_tls(DatabaseKind::Mariadb);
}

#[test]
fn an_encrypted_redis_is_reached_by_a_confined_server() {
    is_reached_by_tls(DatabaseKind::Redis);
}
