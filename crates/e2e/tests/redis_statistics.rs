//! The life of sessions in a real Redis, as subscribers of coturn's `redis-statsdb` hear of it.

use std::process::Stdio;
use std::time::{Duration, Instant};

use e2e::{Config, Host, Lab, Running, Server, Tool, coturn, echo_peer, require};
use test_support::{DatabaseKind, DatabaseServer, eventually};

const PATIENCE: Duration = Duration::from_secs(60);

struct Scene {
    lab: Lab,
    redis: DatabaseServer,
    _server: Server,
    _peer: Running,
}

impl Scene {
    fn new() -> Option<Self> {
        require(coturn())?;
        let lab = require(Lab::new())?;
        let namespace = lab.namespace(Host::Server);
        let through = ["ip", "netns", "exec", &*namespace];
        let redis = require(DatabaseServer::start_through(DatabaseKind::Redis, &through))?;
        // One that coturn left behind stays: this server deletes none but its own.
        redis.run("SET turn/realm/x/user/y/allocation/1/status old");
        let mut config = Config::for_lab(&lab);
        config.tables =
            format!("[accounting]\nredis = \"{}\"\ninterim = \"1 s\"\n", redis.tcp_url());
        let server = Server::start(&lab, &config);
        let peer = echo_peer(&lab, lab.v4.peer);
        Some(Self { lab, redis, _server: server, _peer: peer })
    }

    /// Hears of all that is published about alice.
    fn subscriber(&self) -> Running {
        let url = self.redis.tcp_url();
        let mut command = self.lab.command(Host::Server, "redis-cli");
        command.args(["-u", &url, "PSUBSCRIBE", "turn/realm/turn.test/user/alice/allocation/*"]);
        let mut subscriber = Running::start(command.stdin(Stdio::null()));
        subscriber.wait_for("psubscribe", PATIENCE);
        subscriber
    }

    fn call(&self, more: &[&str]) {
        let peer = self.lab.v4.peer.to_string();
        let mut command = self.lab.command(Host::Client, "turnutils_uclient");
        command.args(["-u", "alice", "-w", "correct-horse-battery", "-e", &peer, "-r", "3480"]);
        command.args(["-l", "100", "-m", "1", "-c", "-n", "30", "-z", "100"]).args(more);
        let called = Tool::run(command.arg(self.lab.v4.listen.to_string()), PATIENCE);
        assert!(called.ok, "{}", called.output);
    }
}

/// Channel and message of what was published, by allocation and in order.
fn published(output: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = output.lines().map(|line| line.trim().trim_matches('"')).collect();
    let starts = lines.iter().enumerate().filter(|(_, line)| **line == "pmessage");
    starts
        .filter_map(|(at, _)| {
            Some(((*lines.get(at + 2)?).to_owned(), (*lines.get(at + 3)?).to_owned()))
        })
        .collect()
}

#[test]
fn subscribers_hear_of_a_session_from_its_beginning_to_its_end() {
    let Some(scene) = Scene::new() else { return };
    let subscriber = scene.subscriber();
    scene.call(&[]);
    // The allocation whose traffic was deleted with it.
    let mut heard = Vec::new();
    eventually("the end of a session with traffic is published", || {
        let all = published(&subscriber.output());
        let Some((channel, _)) = all.iter().find(|(channel, message)| {
            channel.ends_with("/total_traffic") && message.starts_with("rcvp=30, ")
        }) else {
            return false;
        };
        let session = channel.strip_suffix("/total_traffic").unwrap_or_default().to_owned();
        heard = all
            .into_iter()
            .filter_map(|(channel, message)| {
                Some((channel.strip_prefix(&*session)?.to_owned(), message))
            })
            .collect();
        heard.iter().any(|(channel, _)| channel == "/total_traffic/peer")
    });
    let (channel, message) = &heard[0];
    assert_eq!(channel, "/status", "{heard:?}");
    assert!(
        message.starts_with("new lifetime=") && message.contains(", type=UDP, local="),
        "{message}"
    );
    assert!(message.ends_with(", ssl=NONE, cipher=NONE"), "{message}");
    let ends: Vec<&str> =
        heard[heard.len() - 3..].iter().map(|(channel, _)| channel.as_str()).collect();
    assert_eq!(ends, ["/status", "/total_traffic", "/total_traffic/peer"]);
    assert_eq!(heard[heard.len() - 3].1, "deleted");
    let sum: u64 = heard
        .iter()
        .filter(|(channel, _)| channel == "/traffic")
        .filter_map(|(_, message)| {
            message.strip_prefix("rcvp=")?.split(',').next()?.parse::<u64>().ok()
        })
        .sum();
    assert_eq!(sum, 30, "the reports add up: {heard:?}");
    let keys = scene.redis.run("KEYS turn/realm/x/*");
    assert!(keys.contains("allocation/1/status"), "{keys}");
}

#[test]
fn refreshes_are_published_and_keys_expire() {
    let Some(mut scene) = Scene::new() else { return };
    let subscriber = scene.subscriber();
    // uclient refreshes its allocations by itself.
    scene.call(&[]);
    eventually("a refresh is published", || {
        let all = published(&subscriber.output());
        all.iter().any(|(channel, message)| {
            channel.ends_with("/status") && message.starts_with("refreshed lifetime=")
        })
    });
    let keys = scene.redis.run("KEYS turn/realm/turn.test/*");
    let key = keys.lines().find(|line| line.ends_with("/status")).expect("one that uclient left");
    let left: i64 =
        scene.redis.run(&format!("TTL {}", key.trim_matches('"'))).trim().parse().expect("seconds");
    assert!((1..=3700).contains(&left), "{left}");

    // Redis goes and comes back: what comes then is published, and the server has relayed
    // meanwhile.
    scene.redis.stop();
    scene.call(&[]);
    scene.redis.start_again();
    let subscriber = scene.subscriber();
    // The server asks again after a pause of up to ten seconds.
    let until = Instant::now() + PATIENCE;
    while !published(&subscriber.output()).iter().any(|(_, message)| message.starts_with("new ")) {
        assert!(Instant::now() < until, "no session is published: {}", subscriber.output());
        scene.call(&[]);
    }
}
