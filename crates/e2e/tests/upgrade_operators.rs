//! Changes by operators during upgrades: confirmed changes hold afterwards.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use e2e::{Call, Caller, Config, Host, Lab, Operator, Server, Stop, require, said};
use test_support::eventually;
use turn_client::Families;
use turn_types::IpFamily;

/// Number of upgrades; `E2E_LONG=1` makes more.
fn upgrades() -> usize {
    if std::env::var_os("E2E_LONG").is_some() { 30 } else { 4 }
}

/// Starts a server without a kernel path, for short starts.
fn server(lab: &Lab) -> (Config, Server) {
    let tables = "[offload]\nmode = \"off\"\n".to_owned();
    let config = Config { tables, ..Config::for_lab(lab) };
    let server = Server::start(lab, &config);
    (config, server)
}

/// Revokes one name after another until `is_over`. Returns and counts the confirmed names.
fn revoke(operator: &Operator, is_over: &AtomicBool, count: &AtomicUsize) -> BTreeSet<String> {
    let mut confirmed = BTreeSet::new();
    let names = (0..).map(|number| format!("user{number}"));
    for name in names.take_while(|_| !is_over.load(Ordering::Relaxed)) {
        if operator.ask(&["user", "revoke", &name]).ok {
            confirmed.insert(name);
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
    confirmed
}

#[track_caller]
fn revoked(server: &Server) -> BTreeSet<String> {
    let list = server.json(&["user", "revoked"]);
    let all = list["revocations"].as_array().expect("a list");
    all.iter().map(|one| one["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn revocations_during_upgrades_are_kept() {
    let Some(lab) = require(Lab::new()) else { return };
    let (_config, mut server) = server(&lab);
    let (operator, is_over) = (server.operator(), AtomicBool::new(false));
    let count = AtomicUsize::new(0);
    let confirmed = thread::scope(|scope| {
        let confirmed = scope.spawn(|| revoke(&operator, &is_over, &count));
        {
            // Also if an upgrade fails.
            let _stop = Stop::at_end(&is_over);
            for _ in 0..upgrades() {
                let before = count.load(Ordering::Relaxed);
                server.upgrade_times(1);
                eventually("one more", || count.load(Ordering::Relaxed) > before);
            }
        }
        confirmed.join().expect("revoked")
    });
    assert!(confirmed.len() >= upgrades(), "{confirmed:?}");
    let missing = |server: &Server| -> Vec<String> {
        confirmed.difference(&revoked(server)).cloned().collect()
    };
    assert_eq!(missing(&server), [""; 0], "in force");
    server.upgrade_times(1);
    assert_eq!(missing(&server), [""; 0], "stored");
}

/// No ended session returns.
#[test]
fn sessions_that_were_ended_during_upgrades_stay_ended() {
    let Some(lab) = require(Lab::new()) else { return };
    let (config, mut server) = server(&lab);
    let at = (lab.v4.listen, 3478).into();
    for _ in 0..upgrades() {
        let socket = || lab.socket(Host::Client, (lab.v4.client, 0));
        let ask = |_| Caller::ask(socket(), at, config.accounts[0], Families::V4).expect("a call");
        let callers: Vec<Caller> = (0..10).map(ask).collect();
        let sessions = server.json(&["sessions"]);
        let sessions = sessions["sessions"].as_array().expect("a list");
        let ids: Vec<String> =
            sessions.iter().map(|one| one["id"].as_str().expect("an id").to_owned()).collect();
        assert_eq!(ids.len(), callers.len());
        let operator = &server.operator();
        let ended: Vec<String> = thread::scope(|scope| {
            let end = move |id: &String| operator.ask(&["session", "end", "--yes", id]).ok;
            let ended = scope.spawn(move || ids.into_iter().filter(end).collect());
            server.upgrade_times(1);
            ended.join().expect("ended")
        });
        assert!(!ended.is_empty());
        let live = server.json(&["sessions"]).to_string();
        assert!(!ended.iter().any(|id| live.contains(id)), "{ended:?}: {live}");
        let rest = server.ask(&["session", "end", "--yes", "--user", config.accounts[0].name]);
        assert!(rest.ok || ended.len() == callers.len(), "{}", rest.output);
    }
}

/// A process that is about to take over, and does not get ready.
fn hangs_in_preparation(server: &Server) -> UnixStream {
    let path = server.config_file().with_file_name("control.next");
    let mut stream = UnixStream::connect(path).expect("the server takes upgrades");
    stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a time");
    stream.write_all(&said::hello(said::VERSION)).expect("said");
    let mut bytes = [0; 4096];
    while stream.read(&mut bytes).is_ok_and(|len| len > 0) {}
    stream
}

/// A change does not wait for ever for a process that hangs.
#[test]
fn a_change_ends_the_wait_for_a_process_that_does_not_get_ready() {
    let Some(lab) = require(Lab::new()) else { return };
    let (_config, mut server) = server(&lab);
    let hangs = hangs_in_preparation(&server);
    let out = server.ask(&["user", "revoke", "alice"]);
    assert!(out.ok, "{}", out.output);
    assert_eq!(revoked(&server), BTreeSet::from(["alice".to_owned()]));
    let why = "a command of an operator has waited for it too long";
    assert!(server.process.output().contains(why), "{}", server.process.output());
    drop(hangs);
    server.upgrade_times(1);
    assert_eq!(revoked(&server), BTreeSet::from(["alice".to_owned()]));
}

/// A successor prepares and fails.
#[test]
fn changes_wait_until_a_process_that_prepares_itself_has_failed() {
    let Some(lab) = require(Lab::new()) else { return };
    let (_config, server) = server(&lab);
    let stream = hangs_in_preparation(&server);
    let operator = server.operator();
    thread::scope(|scope| {
        let revoked = scope.spawn(|| operator.ask(&["user", "revoke", "alice"]));
        let reloaded = scope.spawn(|| operator.ask(&["reload"]));
        server.process.signal("HUP");
        thread::sleep(Duration::from_millis(300));
        let log = server.process.output();
        assert!(log.contains("Reload waits: another process is about to take over"), "{log}");
        assert!(!revoked.is_finished() && !reloaded.is_finished(), "{}", server.process.output());
        // Queries do not wait.
        assert!(server.ask(&["status"]).ok && server.ask(&["user", "revoked"]).ok);
        drop(stream);
        let (revoked, reloaded) = (revoked.join(), reloaded.join());
        assert!(revoked.is_ok_and(|out| out.ok) && reloaded.is_ok_and(|out| out.ok));
    });
    assert_eq!(revoked(&server), BTreeSet::from(["alice".to_owned()]));
    // The reload of the command and of the signal.
    let reloads = || server.process.output().matches("reloaded").count();
    eventually("the signal is obeyed", || reloads() == 2);
}

#[test]
fn a_drain_and_traces_go_on_in_the_next_process() {
    let Some(lab) = require(Lab::new()) else { return };
    let (config, mut server) = server(&lab);
    let _call = Call::new(&lab, &config, IpFamily::V4);
    assert!(server.ask(&["drain", "--deadline", "1h"]).ok);
    assert!(server.ask(&["log-level", "debug", "--user", "alice"]).ok);
    server.upgrade_times(2);
    let left = server.json(&["status"])["drain_seconds_left"].as_u64();
    let left = left.unwrap_or_else(|| panic!("{}", server.json(&["status"])));
    assert!((3000..=3600).contains(&left), "{left}");
    let traces = server.json(&["log-level"]);
    assert_eq!(traces["traces"][0]["user"], "alice", "{traces}");
    let at = (lab.v4.listen, 3478).into();
    let refused = || {
        let socket = lab.socket(Host::Client, (lab.v4.client, 0));
        Caller::ask(socket, at, config.accounts[0], Families::V4).err()
    };
    assert!(refused().is_some());
    assert!(server.ask(&["drain", "--cancel"]).ok);
    eventually("allocations are made again", || refused().is_none());
}
