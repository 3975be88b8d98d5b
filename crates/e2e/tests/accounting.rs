//! Records of sessions, written by the confined server.

use std::time::{Duration, Instant};

use e2e::{Config, Host, Lab, Running, Server, Tool, coturn, echo_peer, require};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

struct Scene {
    lab: Lab,
    server: Server,
    _peer: Running,
}

impl Scene {
    fn new(accounting: &str) -> Option<Self> {
        require(coturn())?;
        let lab = require(Lab::new())?;
        let mut config = Config::for_lab(&lab);
        config.tables = format!("[accounting]\n{accounting}\n");
        let server = Server::start(&lab, &config);
        let peer = echo_peer(&lab, lab.v4.peer);
        Some(Self { lab, server, _peer: peer })
    }

    /// Lets coturn's client send some messages of 100 bytes each way.
    fn call(&self, messages: u32) {
        let peer = self.lab.v4.peer.to_string();
        let mut command = self.lab.command(Host::Client, "turnutils_uclient");
        command.args(["-u", "alice", "-w", "correct-horse-battery", "-e", &peer, "-r", "3480"]);
        command.args(["-l", "100", "-m", "1", "-c", "-n", &messages.to_string()]);
        let called = Tool::run(command.arg(self.lab.v4.listen.to_string()), PATIENCE);
        assert!(called.ok, "{}", called.output);
    }

    /// Waits until there is a record that is wanted.
    #[track_caller]
    fn record(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let text = self.server.file("sessions.jsonl");
            let mut records = text.lines().map(|line| {
                serde_json::from_str::<Value>(line)
                    .unwrap_or_else(|error| panic!("{error}: {line}"))
            });
            if let Some(found) = records.find(&wanted) {
                return found;
            }
            assert!(Instant::now() < until, "{text}\n{}", self.server.process.output());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_session_that_ends_leaves_a_record_with_its_traffic() {
    let Some(mut scene) = Scene::new("file = \"sessions.jsonl\"") else { return };
    scene.call(20);
    // The client leaves some allocations behind, whose end is that of the server.
    assert!(scene.server.stop());
    let carried = |record: &Value| record["to_peers"]["packets"].as_u64() >= Some(20);
    let record = scene.record(carried);
    assert_eq!((&record["event"], &record["user"]), (&"end".into(), &"alice".into()), "{record}");
    assert_eq!(record["to_peers"]["bytes"], record["to_client"]["bytes"], "{record}");
    assert!(record["reason"].is_string() && record["transport"] == "udp", "{record}");
    let (started, time, seconds) = (&record["started"], &record["time"], &record["seconds"]);
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    assert!(number(started) > 1_700_000_000, "{record}");
    assert!(number(time).abs_diff(number(started) + number(seconds)) <= 1, "{record}");
}

#[test]
fn a_session_that_goes_on_is_recorded_at_each_interval() {
    let Some(scene) = Scene::new("file = \"sessions.jsonl\"\ninterim = \"1 s\"") else { return };
    let mut client = scene.lab.command(Host::Client, "turnutils_uclient");
    let (peer, server) = (scene.lab.v4.peer.to_string(), scene.lab.v4.listen.to_string());
    client.args(["-u", "alice", "-w", "correct-horse-battery", "-e", &peer, "-r", "3480"]);
    let _call = Running::start(client.args(["-m", "1", "-c", "-n", "100000", "-z", "20", &server]));
    let packets = |record: &Value| record["to_peers"]["packets"].as_u64().unwrap_or_default();
    // The client has an allocation that it does not use, too.
    let record = scene.record(|record| record["event"] == "interim" && packets(record) > 0);
    assert_eq!(record["user"], "alice", "{record}");
    assert!(record["reason"].is_null(), "{record}");
    let id = record["id"].clone();
    let later = scene.record(|other| other["id"] == id && packets(other) > packets(&record));
    assert!(later["seconds"].as_u64() > record["seconds"].as_u64(), "{later}");
}

#[test]
fn full_files_are_put_aside_by_the_confined_server() {
    let small = "file = \"sessions.jsonl\"\nrotate_at = \"64 KiB\"\nfiles = 1\ninterim = \"1 s\"";
    let Some(scene) = Scene::new(small) else { return };
    let confinement = &scene.server.json(&["status"])["confinement"];
    assert_eq!(
        (&confinement["landlock"]["on"], &confinement["seccomp"]["on"]),
        (&true.into(), &true.into())
    );
    let until = Instant::now() + PATIENCE;
    while !std::fs::exists(scene.server.config_file().with_file_name("sessions.jsonl.1"))
        .unwrap_or(false)
    {
        assert!(Instant::now() < until, "{}", scene.server.process.output());
        scene.call(1);
        // Some hundred bytes each: many allocations are needed.
        let peer = scene.lab.v4.peer.to_string();
        let mut command = scene.lab.command(Host::Client, "turnutils_uclient");
        command.args(["-u", "alice", "-w", "correct-horse-battery", "-e", &peer, "-r", "3480"]);
        command.args(["-m", "40", "-c", "-n", "1", &scene.lab.v4.listen.to_string()]);
        drop(Tool::run(&mut command, PATIENCE));
    }
    assert!(!scene.server.file("sessions.jsonl.1").is_empty());
}
