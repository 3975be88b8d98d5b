//! Calls survive crashes, with a keeper, and restarts by a service manager.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::sync::atomic::AtomicBool;
use std::thread::{self, sleep};
use std::time::Duration;

use e2e::{
    Call, Config, EchoCall, Host, Lab, Running, SecureScene, Sent, Server, Stop, Tool, echo_peer,
    pion, pion_run, repository, require,
};
use serde_json::Value;
use test_support::eventually;
use turn_types::IpFamily;

use crate::upgrade_prefixes::OverDtls;

const PATIENCE: Duration = Duration::from_secs(60);

/// Time between two packets of a flow, in each direction.
const PACKET_EVERY: Duration = Duration::from_millis(10);

/// Kills of a server, one soon after the other: the keeper lets the calls go at the third.
const KILLS: usize = 2;

/// The oldest packet that a server may have in its hands when it is killed, counted from then: on a
/// busy machine it may have had no processor for a while. Between two kills there are more.
const IN_HANDS: u32 = 50;

/// The word of a server that its keeper has been found.
const FOUND: &str = "a keeper has copies";

fn without_kernel_path(lab: &Lab) -> Config {
    Config { tables: "[offload]\nmode = \"off\"\n".to_owned(), ..Config::for_lab(lab) }
}

/// A server without the kernel path, and its keeper.
fn server_with_keeper() -> Option<(Lab, Config, Server, Running)> {
    let lab = require(Lab::new())?;
    let config = without_kernel_path(&lab);
    let server = Server::start(&lab, &config);
    let keeper = server.keeper(&lab);
    Some((lab, config, server, keeper))
}

/// Waits until the keeper has copies of everything.
#[track_caller]
fn wait_for_copies(server: &mut Server) {
    server.process.wait_for(FOUND, PATIENCE);
    // Several times the interval of copies.
    sleep(Duration::from_secs(1));
}

#[track_caller]
fn kill(server: &mut Server) {
    server.process.signal("KILL");
    server.process.wait(PATIENCE);
}

/// Kills the server, and starts the next one.
#[track_caller]
fn crash(lab: &Lab, server: &mut Server) {
    kill(server);
    server.start_again(lab, &[]);
}

#[track_caller]
fn assert_still_there(call: &Call) {
    call.caller.send(call.channel, b"still there");
    let mut bytes = [0; 100];
    call.peer.set_read_timeout(Some(PATIENCE)).expect("a time");
    let len = call.peer.recv(&mut bytes).expect("relayed");
    assert_eq!(&bytes[..len], b"still there");
}

/// What comes while no server runs waits in the sockets.
#[test]
fn a_crash_loses_what_the_server_had_in_its_hands() {
    let Some((lab, config, mut server, _keeper)) = server_with_keeper() else { return };
    let calls = [IpFamily::V4, IpFamily::V6].map(|family| Call::new(&lab, &config, family));
    wait_for_copies(&mut server);
    let stop = AtomicBool::new(false);
    let all: Vec<Sent> = calls.iter().map(|_| Sent::default()).collect();
    thread::scope(|scope| {
        let mut missing = Vec::new();
        for (call, sent) in calls.iter().zip(&all) {
            scope.spawn(|| call.send(PACKET_EVERY, &stop, sent));
            missing.push([
                scope.spawn(move || call.missing_at_peer(true, sent)),
                scope.spawn(move || call.missing_at_client(true, sent)),
            ]);
        }
        // Also if a start fails.
        let stop = Stop::at_end(&stop);
        let mut deaths: Vec<Vec<u32>> = Vec::new();
        for _ in 0..KILLS {
            kill(&mut server);
            deaths.push(all.iter().map(Sent::so_far).collect());
            server.start_again(&lab, &[]);
            let status = server.json(&["status"]);
            assert_eq!(status["took_over"]["allocations"], 2, "{}", server.process.output());
            wait_for_copies(&mut server);
        }
        all.iter().for_each(|sent| sent.wait_for_more(100));
        drop(stop);
        for (call, missing) in missing.into_iter().enumerate() {
            let deaths: Vec<u32> = deaths.iter().map(|sent| sent[call]).collect();
            let was_in_hands = |number: &u32| {
                deaths.iter().any(|death| number <= death && number + IN_HANDS > *death)
            };
            for missing in missing {
                let missing = missing.join().expect("all that comes is as it was sent");
                assert!(missing.iter().all(was_in_hands), "{missing:?}, killed at {deaths:?}");
                // Of a flow, a server has one batch in its hands.
                let gaps = missing.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count();
                assert!(gaps < KILLS, "{missing:?}, killed at {deaths:?}");
            }
        }
    });
    assert_eq!(server.json(&["status"])["allocations"]["live"], 2);
}

#[test]
fn a_call_that_has_ended_is_not_kept() {
    let Some((lab, config, mut server, _keeper)) = server_with_keeper() else { return };
    let [stays, mut ends] = [IpFamily::V4; 2].map(|family| Call::new(&lab, &config, family));
    wait_for_copies(&mut server);
    ends.caller.release();
    sleep(Duration::from_secs(1));
    crash(&lab, &mut server);
    assert_eq!(server.json(&["status"])["took_over"]["allocations"], 1);
    assert_still_there(&stays);
}

/// The keeper has no copies of the second server yet, or a part of them.
#[test]
fn a_server_that_dies_at_once_after_a_crash_leaves_all_calls() {
    let Some((lab, config, mut server, _keeper)) = server_with_keeper() else { return };
    let calls = [IpFamily::V4, IpFamily::V6].map(|family| Call::new(&lab, &config, family));
    wait_for_copies(&mut server);
    for _ in 0..KILLS {
        crash(&lab, &mut server);
    }
    assert_eq!(server.json(&["status"])["took_over"]["allocations"], 2);
    for call in &calls {
        assert_still_there(call);
    }
}

/// An acknowledged removal by an operator is final.
#[test]
fn a_session_that_an_operator_has_ended_stays_so_after_a_crash() {
    let Some((lab, config, mut server, _keeper)) = server_with_keeper() else { return };
    let calls: Vec<_> = (0..5).map(|_| Call::new(&lab, &config, IpFamily::V4)).collect();
    wait_for_copies(&mut server);
    for left in (1..calls.len()).rev() {
        let sessions = server.json(&["sessions"]);
        let id = sessions["sessions"][0]["id"].as_str().expect("an id").to_owned();
        assert!(server.ask(&["session", "end", &id]).ok);
        // The keeper lets the calls of a third server that dies early go.
        if left % 2 == 1 {
            continue;
        }
        crash(&lab, &mut server);
        assert_eq!(server.json(&["status"])["took_over"]["allocations"], left);
    }
}

/// The keeper has the calls after SIGTERM: the next server continues their records.
#[test]
fn a_call_that_a_keeper_has_is_recorded_once() {
    let Some(lab) = require(Lab::new()) else { return };
    let tables = "[offload]\nmode = \"off\"\n[accounting]\nfile = \"sessions.jsonl\"\n".to_owned();
    let config = Config { tables, ..Config::for_lab(&lab) };
    let mut server = Server::start(&lab, &config);
    let _keeper = server.keeper(&lab);
    let mut call = Call::new(&lab, &config, IpFamily::V4);
    wait_for_copies(&mut server);
    assert_still_there(&call);
    assert!(server.stop());
    server.start_again(&lab, &[]);
    assert_eq!(server.json(&["status"])["took_over"]["allocations"], 1);
    assert_still_there(&call);
    call.caller.release();
    let records = || -> Vec<(String, u64)> {
        let text = server.file("sessions.jsonl");
        let record = |line| serde_json::from_str::<Value>(line).expect("a record");
        let known = |record: Value| {
            let event = record["event"].as_str().expect("an event").to_owned();
            (event, record["to_peers"]["packets"].as_u64().expect("a number"))
        };
        text.lines().map(record).map(known).collect()
    };
    eventually("the record of its end", || records().iter().any(|(event, _)| event == "end"));
    assert_eq!(records(), [("interim".to_owned(), 1), ("end".to_owned(), 2)]);
}

/// Orders of operators are in effect again after a crash.
#[test]
fn a_drain_and_traces_go_on_behind_a_crash() {
    let Some((lab, config, mut server, _keeper)) = server_with_keeper() else { return };
    let _call = Call::new(&lab, &config, IpFamily::V4);
    wait_for_copies(&mut server);
    assert!(server.ask(&["drain", "--deadline", "1h"]).ok);
    assert!(server.ask(&["log-level", "debug", "--user", "alice"]).ok);
    // Several times the interval.
    sleep(Duration::from_secs(3));
    crash(&lab, &mut server);
    assert!(server.json(&["status"])["drain_seconds_left"].is_number());
    assert_eq!(server.json(&["log-level"])["traces"][0]["user"], "alice");
    assert!(server.ask(&["drain", "--cancel"]).ok);
}

/// Two servers that die soon after they have taken the calls over may have died of them.
#[test]
fn calls_that_servers_die_of_end() {
    let Some((lab, config, mut server, _keeper)) = server_with_keeper() else { return };
    let _call = Call::new(&lab, &config, IpFamily::V4);
    for allocations in [Some(1), Some(1), None] {
        wait_for_copies(&mut server);
        crash(&lab, &mut server);
        let took_over = &server.json(&["status"])["took_over"]["allocations"];
        assert_eq!(took_over.as_u64(), allocations, "{}", server.process.output());
    }
}

/// Without a service manager's store: the keeper has the calls, with what has changed last.
#[test]
fn a_server_that_is_told_to_end_leaves_the_newest_state() {
    let Some((lab, config, mut server, _keeper)) = server_with_keeper() else { return };
    let mut calls = vec![Call::new(&lab, &config, IpFamily::V4)];
    wait_for_copies(&mut server);
    // More often than servers may die.
    for number in 1..4 {
        calls.push(Call::new(&lab, &config, IpFamily::V4));
        server.process.signal("TERM");
        assert!(server.process.wait(PATIENCE), "{}", server.process.output());
        server.start_again(&lab, &[]);
        let status = server.json(&["status"]);
        assert_eq!(status["took_over"]["allocations"], number + 1, "{}", server.process.output());
        server.process.wait_for(FOUND, PATIENCE);
    }
}

/// Another number of workers: the first start succeeds, without the calls.
#[test]
fn a_server_that_cannot_go_on_with_the_calls_starts_without_them() {
    let Some((lab, config, mut server, _keeper)) = server_with_keeper() else { return };
    let _call = Call::new(&lab, &config, IpFamily::V4);
    wait_for_copies(&mut server);
    let workers = server.json(&["status"])["workers"].as_u64().expect("a number") + 1;
    let tables = format!("{}[workers]\ncount = {workers}\n", config.tables);
    server.rewrite(&Config { tables, ..config.clone() });
    crash(&lab, &mut server);
    assert!(server.process.output().contains("have ended: it had"), "{}", server.process.output());
    assert_eq!(server.json(&["status"])["allocations"]["live"], 0);
}

/// A keeper that ends is noticed though no call changes, and the next one gets everything.
#[test]
fn a_keeper_that_ends_is_noticed_and_the_next_one_has_the_calls() {
    let Some(lab) = require(Lab::new()) else { return };
    let config = without_kernel_path(&lab);
    let mut server = Server::start(&lab, &config);
    let keeper = server.keeper(&lab);
    let _call = Call::new(&lab, &config, IpFamily::V4);
    wait_for_copies(&mut server);
    drop(keeper);
    eventually("it is noticed", || server.json(&["status"])["keeper"].is_null());
    let _next = server.keeper(&lab);
    eventually("the next one", || server.json(&["status"])["keeper"].is_number());
    sleep(Duration::from_secs(1));
    crash(&lab, &mut server);
    assert_eq!(server.json(&["status"])["took_over"]["allocations"], 1);
}

/// As one of another version does, it ends each talk.
#[test]
fn a_keeper_that_cannot_be_used_is_mentioned_once() {
    let Some(lab) = require(Lab::new()) else { return };
    let server = Server::start(&lab, &without_kernel_path(&lab));
    let path = server.config_file().with_file_name("control.keep");
    let listener = UnixListener::bind(&path).expect("a socket");
    let refusing = thread::spawn(move || listener.incoming().take(3).for_each(drop));
    let shown = || server.json(&["status"])["keeper_unusable"].clone();
    eventually("it is shown", || shown().is_string());
    refusing.join().expect("no panic");
    fs::remove_file(&path).expect("its file");
    let _keeper = server.keeper(&lab);
    eventually("the next one is used", || {
        server.json(&["status"])["keeper"].is_number() && shown().is_null()
    });
    assert_eq!(server.process.output().matches("cannot be used").count(), 1);
}

#[test]
fn a_call_of_chromium_goes_on_behind_crashes() {
    let Some(lab) = require(Lab::new()) else { return };
    let mut config = without_kernel_path(&lab);
    config.allow.push(lab.v4.relay.to_string());
    let mut server = Server::start(&lab, &config);
    let _keeper = server.keeper(&lab);
    let Some(mut call) = EchoCall::begin(&lab, &config, "udp") else { return };
    for _ in 0..KILLS {
        wait_for_copies(&mut server);
        crash(&lab, &mut server);
        let status = server.json(&["status"]);
        assert_eq!(status["took_over"]["allocations"], 2, "{}", server.process.output());
        call.go_on();
        let made = &server.json(&["status"])["allocations"]["total"];
        assert_eq!(*made, 0, "made since the crash");
    }
    call.finish(true, &lab, &server);
}

/// The next process of an upgrade has the calls, and so has the keeper from then on.
#[test]
fn a_keeper_follows_an_upgrade() {
    let Some(lab) = require(Lab::new()) else { return };
    let config = without_kernel_path(&lab);
    let mut server = Server::start(&lab, &config);
    let keeper = server.keeper(&lab);
    let call = Call::new(&lab, &config, IpFamily::V4);
    wait_for_copies(&mut server);
    let upgraded = server.upgrade(&[]);
    assert!(upgraded.ok, "{}", upgraded.output);
    eventually("the farewell", || {
        keeper.output().contains("another process's now")
            && keeper.output().matches("copies of this server's calls").count() == 2
    });
    sleep(Duration::from_secs(1));
    let next = server.serving();
    lab.run(Host::Server, "kill", &["-KILL", &next.to_string()]);
    server.process.wait(PATIENCE);
    server.start_again(&lab, &[]);
    assert_eq!(server.json(&["status"])["took_over"]["allocations"], 1);
    call.peer.set_read_timeout(Some(PATIENCE)).expect("a time");
    call.caller.send(call.channel, b"still there");
    assert_eq!(call.peer.recv(&mut [0; 100]).expect("relayed"), 11);
}

/// A program in Perl, which every Debian has: connects to a socket of the server, and prints how
/// much comes.
const STRANGER: &str = "use Socket; $SIG{PIPE} = 'IGNORE'; socket(S, AF_UNIX, SOCK_STREAM, 0); \
    connect(S, pack_sockaddr_un($ARGV[0])) or die qq($!\\n); syswrite(S, qq(\\0) x 100); \
    my $len = sysread(S, my $bytes, 100) || 0; print qq(got $len bytes\\n);";

/// The files of the sockets are for the owner alone; were they not, the other user would be refused
/// all the same.
#[test]
fn another_users_process_gets_nothing() {
    let Some(lab) = require(Lab::new()) else { return };
    let config = without_kernel_path(&lab);
    let mut server = Server::start(&lab, &config);
    let keeper = server.keeper(&lab);
    let call = Call::new(&lab, &config, IpFamily::V4);
    wait_for_copies(&mut server);
    let file = |name: &str| server.config_file().with_file_name(name);
    let ask = |name: &str| {
        let mut command = lab.command(Host::Server, "setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "perl", "-e"]);
        Tool::run(command.arg(STRANGER).arg(file(name)), PATIENCE)
    };
    for name in ["control.next", "control.keep"] {
        let said = ask(name);
        assert!(!said.ok && said.output.contains("Permission denied"), "{}", said.output);
        let all = fs::Permissions::from_mode(0o666);
        fs::set_permissions(file(name), all).expect("its permissions");
        let said = ask(name);
        assert!(said.output.contains("got 0 bytes"), "{}", said.output);
    }
    eventually("both say so", || {
        let refused = "is of user 65534";
        server.process.output().contains(refused) && keeper.output().contains(refused)
    });
    crash(&lab, &mut server);
    assert_eq!(server.json(&["status"])["took_over"]["allocations"], 1);
    drop(call);
}

/// The session continues with the keys of the keeper's copy. A crash may lose a packet: the client
/// waits for no single one.
#[test]
fn pion_over_dtls_notices_no_crash() {
    let scene = SecureScene::with("[offload]\nmode = \"off\"\n");
    let Some(SecureScene { lab, mut server, files: _files }) = scene else { return };
    let _keeper = server.keeper(&lab);
    let Some(mut client) = OverDtls::new(&lab, &Config::for_lab(&lab)) else { return };
    client.assert_relays("before");
    for number in 0..KILLS {
        wait_for_copies(&mut server);
        crash(&lab, &mut server);
        assert_eq!(server.json(&["status"])["took_over"]["allocations"], 1);
        client.assert_relays(&format!("after crash {number}"));
    }
    let made = &server.json(&["status"])["allocations"]["total"];
    assert_eq!(*made, 0, "made since the crash");
}

/// Restarts by a service manager with a store of descriptors.
#[track_caller]
fn pion_notices_no_restart(transport: &str) {
    let Some(client) = require(pion()) else { return };
    let manager = repository().join("crates/e2e/clients/service_manager.py");
    let through = ["python3".to_owned(), manager.display().to_string()];
    let scene = SecureScene::started_by(&through, "[offload]\nmode = \"off\"\n");
    let Some(SecureScene { lab, server, files: _files }) = scene else { return };
    let _peer = echo_peer(&lab, lab.v4.peer);
    let config = Config::for_lab(&lab);
    let mut program = Running::listening(&mut pion_run(&lab, &client, &config, (1, transport)));
    program.wait_for("relayed address", PATIENCE);
    let took_over = |server: &Server| {
        let out = server.ask(&["status", "--json"]).output;
        let status: Value = serde_json::from_str(&out).unwrap_or_default();
        let took_over = &status["took_over"];
        Some((took_over["process"].as_u64()?, took_over["allocations"].as_u64()?))
    };
    for _ in 0..KILLS {
        let before = took_over(&server);
        server.process.signal("HUP");
        eventually("the next process serves", || {
            let now = took_over(&server);
            now.is_some() && now != before
        });
        assert_eq!(took_over(&server).map(|(_, allocations)| allocations), Some(1));
    }
    assert!(!program.output().contains("echoed"), "{}", program.output());
    program.end_input();
    assert!(program.wait(PATIENCE), "{}", program.output());
    assert!(program.output().contains("echoed"), "{}", program.output());
}

#[test]
fn pion_over_tls_notices_no_restart() {
    pion_notices_no_restart("tls");
}

#[test]
fn pion_over_dtls_notices_no_restart() {
    pion_notices_no_restart("dtls");
}
