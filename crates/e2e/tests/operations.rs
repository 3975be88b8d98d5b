//! Operations on a running server while calls go through it.

use std::time::{Duration, Instant};

use e2e::{Config, Host, Lab, Running, Server, echo_peer, require};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20);

/// A server with two calls going on through it.
struct Scene {
    lab: Lab,
    config: Config,
    server: Server,
    calls: Running,
    _peer: Running,
}

impl Scene {
    fn new(change: impl FnOnce(&mut Config)) -> Option<Self> {
        let lab = require(Lab::new())?;
        let mut config = Config::for_lab(&lab);
        change(&mut config);
        let server = Server::start(&lab, &config);
        let peer = lab.v4.peer.to_string();
        let echo = echo_peer(&lab, lab.v4.peer);
        let calls = Running::start(
            lab.command(Host::Client, "turnutils_uclient")
                .args(["-u", "alice", "-w", "correct-horse-battery", "-e", &peer, "-r", "3480"])
                .args(["-c", "-m", "2", "-n", "100000", "-z", "5", &lab.v4.listen.to_string()]),
        );
        let scene = Self { lab, config, server, calls, _peer: echo };
        scene.wait_until("two calls flow both ways", |sessions| {
            sessions.len() == 2 && sessions.iter().all(|session| packets(session, "to_client") > 0)
        });
        Some(scene)
    }

    /// The two calls: uclient has further allocations, which it does not use.
    fn calls(&self) -> Vec<Value> {
        let is_call =
            |session: &Value| session["channels"] != 0 || packets(session, "to_client") > 0;
        self.sessions().into_iter().filter(is_call).collect()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        self.server.json(arguments)
    }

    fn sessions(&self) -> Vec<Value> {
        self.json(&["sessions"])["sessions"].as_array().cloned().expect("a list of sessions")
    }

    #[track_caller]
    fn wait_until(&self, what: &str, reached: impl Fn(&[Value]) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let sessions = self.calls();
            if reached(&sessions) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "not in {PATIENCE:?}: {what}; {sessions:#?}\n{}",
                self.calls.output()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn packets(session: &Value, direction: &str) -> u64 {
    session[direction]["packets"].as_u64().unwrap_or_else(|| panic!("{direction} of {session}"))
}

#[test]
fn a_session_is_shown_and_can_be_ended() {
    let Some(mut scene) =
        Scene::new(|config| config.tables = "[log]\nformat = \"json\"\n".to_owned())
    else {
        return;
    };
    let sessions = scene.calls();
    assert_eq!(sessions[0]["user"], "alice");
    assert_eq!(scene.json(&["sessions", "--user", "nobody"])["sessions"], Value::Array(vec![]));
    let table = scene.server.ask(&["sessions"]);
    assert!(table.ok && table.output.contains("alice"), "{}", table.output);

    let id = sessions[0]["id"].as_str().expect("an id").to_owned();
    let ended = scene.server.ask(&["session", "end", &id]);
    assert!(ended.ok, "{}", ended.output);
    scene.wait_until("only the other call is left", |left| {
        left.len() == 1 && left[0]["id"] != id.as_str()
    });
    scene.server.process.wait_for("ended_by_operator", PATIENCE);
    let line = log_line(&scene.server, "ended_by_operator");
    assert!(line.contains("alice") && line.contains(&id), "{line}");
    let again = scene.server.ask(&["session", "end", &id]);
    assert!(!again.ok && again.output.contains("there is no live session"), "{}", again.output);
}

/// The one log line that contains `text`.
#[track_caller]
fn log_line(server: &Server, text: &str) -> String {
    let output = server.process.output();
    let mut lines = output.lines().filter(|line| line.contains(text));
    let line = lines.next().unwrap_or_else(|| panic!("no line with {text}:\n{output}"));
    assert_eq!(lines.next(), None, "one line for one allocation");
    line.to_owned()
}

#[test]
fn a_reload_acts_on_live_calls() {
    let Some(mut scene) = Scene::new(|_| ()) else { return };
    scene.config.allow.clear();
    scene.server.rewrite(&scene.config);
    let report = scene.json(&["reload"]);
    assert_eq!(report["applied"][0]["key"], "peers.allow", "{report}");
    assert_eq!(report["refused"], Value::Null, "{report}");

    // Every worker had acknowledged when the report was made: from here on nothing is relayed.
    let before: Vec<u64> =
        scene.calls().iter().map(|session| packets(session, "to_peers")).collect();
    let dropped: u64 =
        scene.calls().iter().filter_map(|session| session["dropped_packets"].as_u64()).sum();
    scene.wait_until("the calls go on sending", |sessions| {
        sessions.iter().filter_map(|session| session["dropped_packets"].as_u64()).sum::<u64>()
            > dropped + 100
    });
    let after: Vec<u64> =
        scene.calls().iter().map(|session| packets(session, "to_peers")).collect();
    assert_eq!(before, after, "a peer that is no longer allowed is sent nothing");
}

#[test]
fn a_broken_configuration_changes_nothing() {
    let Some(mut scene) = Scene::new(|_| ()) else { return };
    scene.config.top = "lifetime = 600\n".to_owned();
    scene.server.rewrite(&scene.config);
    let out = scene.server.ask(&["reload"]);
    assert!(
        !out.ok && out.output.contains("lifetime") && out.output.contains("turnpike.toml:3"),
        "{}",
        out.output
    );
    let relayed: u64 = scene.calls().iter().map(|session| packets(session, "to_client")).sum();
    scene.wait_until("the calls go on", |sessions| {
        sessions.iter().map(|session| packets(session, "to_client")).sum::<u64>() > relayed + 100
    });
}

#[test]
fn sighup_reloads_and_logs_the_changes() {
    let Some(mut scene) = Scene::new(|_| ()) else { return };
    scene.config.tables = "[quotas]\nallocations_per_user = 7\n".to_owned();
    scene.server.rewrite(&scene.config);
    scene.server.process.signal("HUP");
    scene.server.process.wait_for("reload: quotas.allocations_per_user is in force", PATIENCE);
}

#[test]
fn sigterm_drains_and_ends_when_the_last_call_has() {
    let Some(mut scene) =
        Scene::new(|config| config.tables = "[shutdown]\ndrain = \"10 min\"\n".to_owned())
    else {
        return;
    };
    scene.server.process.signal("TERM");
    let deadline = Instant::now() + PATIENCE;
    while scene.json(&["status"])["draining"] != true {
        assert!(Instant::now() < deadline, "it does not drain:\n{}", scene.server.process.output());
    }
    let relayed: u64 = scene.calls().iter().map(|session| packets(session, "to_client")).sum();
    scene.wait_until("the calls go on", |sessions| {
        sessions.iter().map(|session| packets(session, "to_client")).sum::<u64>() > relayed + 100
    });
    let newcomer = e2e::Tool::run(
        scene
            .lab
            .command(Host::Client, "turnutils_uclient")
            .args([
                "-u",
                "alice",
                "-w",
                "correct-horse-battery",
                "-e",
                &scene.lab.v4.peer.to_string(),
            ])
            .args(["-c", "-n", "1", &scene.lab.v4.listen.to_string()]),
        PATIENCE,
    );
    assert!(!newcomer.ok, "a draining server takes nobody new:\n{}", newcomer.output);
    let refusals = &scene.json(&["status"])["refusals"];
    assert!(refusals["draining"].as_u64() > Some(0), "{refusals:#}\n{}", newcomer.output);
    for session in scene.sessions() {
        let ended = scene.server.ask(&["session", "end", session["id"].as_str().expect("an id")]);
        assert!(ended.ok, "{}", ended.output);
    }
    assert!(
        scene.server.process.wait(PATIENCE),
        "it ends well:\n{}",
        scene.server.process.output()
    );
}

#[test]
fn an_address_that_the_host_gets_later_is_no_peer() {
    let network = |config: &mut Config| config.allow = vec!["10.77.2.0/24".to_owned()];
    let Some(mut scene) = Scene::new(network) else { return };
    let server = scene.lab.namespace(Host::Server);
    let added = std::process::Command::new("ip")
        .args(["-n", &server, "addr", "add", "10.77.2.9/24", "dev", "to-peer"])
        .status();
    assert!(added.is_ok_and(|status| status.success()));
    // In the log line about added addresses.
    scene.server.process.wait_for("10.77.2.9", PATIENCE);
    let out = e2e::Tool::run(
        scene
            .lab
            .command(Host::Client, "turnutils_uclient")
            .args(["-u", "alice", "-w", "correct-horse-battery", "-e", "10.77.2.9"])
            .args(["-c", "-n", "1", &scene.lab.v4.listen.to_string()]),
        PATIENCE,
    );
    assert!(!out.ok && out.output.contains("403"), "{}", out.output);
}
