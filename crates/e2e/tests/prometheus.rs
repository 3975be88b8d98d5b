//! Prometheus, its rules and the dashboard, with a server under load.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use e2e::{Certificates, Config, Host, Lab, Running, Server, Tool};
use e2e::{coturn, echo_peer, prometheus, repository, require};
use serde_json::Value;
use test_support::eventually;

/// Longest time for a rate to be seen: several scrapes under other people's load.
const PATIENCE: Duration = Duration::from_secs(60);

const METRICS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9641);
const PROMETHEUS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

/// The range of rates in a test, longer than it lasts; Grafana puts its own in this place.
const RANGE: &str = "2m";

fn promtool(arguments: &[&str]) -> Tool {
    Tool::run(Command::new("promtool").args(arguments), PATIENCE)
}

fn rules() -> String {
    repository().join("dist/prometheus/turnpike.rules.yml").display().to_string()
}

#[test]
fn each_fault_raises_its_alert_and_a_healthy_server_none() {
    let Some(()) = require(prometheus()) else { return };
    let checked = promtool(&["check", "rules", &rules()]);
    assert!(checked.ok && checked.output.contains("SUCCESS"), "{}", checked.output);
    let cases = repository().join("crates/e2e/clients/prometheus/rules.test.yml");
    let tested = promtool(&["test", "rules", &cases.display().to_string()]);
    assert!(tested.ok, "{}", tested.output);
    let file = |path: PathBuf| std::fs::read_to_string(path).expect("a file");
    let cases = file(cases);
    for line in file(rules().into()).lines() {
        if let Some(alert) = line.trim().strip_prefix("- alert: ") {
            assert!(cases.contains(&format!("alertname=\"{alert}\"")), "{alert} has no test");
        }
    }
}

/// A server with calls over UDP and TLS, and Prometheus beside it.
struct Scene {
    lab: Lab,
    server: Server,
    directory: PathBuf,
    _certificates: Certificates,
    _others: Vec<Running>,
}

impl Scene {
    fn new() -> Option<Self> {
        require(prometheus())?;
        require(coturn())?;
        let lab = require(Lab::new())?;
        let certificates = Certificates::new(&lab);
        let mut config = Config::for_lab(&lab);
        config.tables = certificates.simple() + &format!("[http]\nlisten = [\"{METRICS}\"]\n");
        let server = Server::start(&lab, &config);
        let echo = echo_peer(&lab, lab.v4.peer);
        let collector = collector(&lab);
        let directory = directory(&lab);
        let mut others = vec![echo, collector];
        let mut scene =
            Self { lab, server, directory, _certificates: certificates, _others: Vec::new() };
        // Of the calls, too, there is a sample from before them.
        scene.wait_for("turnpike_workers", 0.0);
        for transport in [&[][..], &["-t", "-S"], &["-S"]] {
            let mut calls = scene.caller();
            let kind = ["-m", "2", "-n", "100000", "-z", "5", &scene.lab.v4.listen.to_string()];
            others.push(Running::start(calls.args(transport).args(kind)));
        }
        scene._others = others;
        Some(scene)
    }

    /// coturn's client, as `alice`.
    fn caller(&self) -> Command {
        let mut command = self.lab.command(Host::Client, "turnutils_uclient");
        let peer = self.lab.v4.peer.to_string();
        command.args([
            "-u",
            "alice",
            "-w",
            "correct-horse-battery",
            "-c",
            "-e",
            &peer,
            "-r",
            "3480",
        ]);
        command
    }

    /// The body of an answer from a host's own address.
    fn get(&self, at: SocketAddr, path: &str) -> String {
        let mut stream = self.lab.connect(Host::Server, at);
        // Of version 1.0, so that the end of the body is that of the connection.
        let request = format!("GET {path} HTTP/1.0\r\nhost: {at}\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (_head, body) = answer.split_once("\r\n\r\n").expect("a head");
        body.to_owned()
    }

    fn ask(&self, path: &str) -> Value {
        let body = self.get(PROMETHEUS, path);
        let answer: Value =
            serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"));
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].clone()
    }

    /// The samples of a query, as of now.
    fn query(&self, query: &str) -> Vec<f64> {
        let data = self.ask(&format!("/api/v1/query?query={}", encoded(query)));
        let samples = data["result"].as_array().cloned().unwrap_or_default();
        let value = |sample: &Value| sample["value"][1].as_str().and_then(|text| text.parse().ok());
        samples.iter().map(|sample| value(sample).expect("a number")).collect()
    }

    /// Waits until a query has one value and it is above a bound.
    #[track_caller]
    fn wait_for(&self, query: &str, above: f64) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let values = self.query(query);
            if values.len() == 1 && values[0] > above {
                return;
            }
            assert!(Instant::now() < deadline, "{query}: {values:?} in {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

fn directory(lab: &Lab) -> PathBuf {
    std::env::temp_dir().join(format!("{}-prometheus", lab.namespace(Host::Server)))
}

/// Prometheus with the alert rules, as docs/operate/monitoring.md sets it up, but with more
/// scrapes.
fn collector(lab: &Lab) -> Running {
    let directory = directory(lab);
    std::fs::create_dir_all(&directory).expect("a directory");
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
         rule_files: [{}]\n\
         scrape_configs:\n\
         - job_name: turnpike\n  static_configs: [{{targets: [\"{METRICS}\"]}}]\n",
        rules()
    );
    let file = directory.join("prometheus.yml");
    std::fs::write(&file, config).expect("a file");
    let mut collector = Running::start(
        lab.command(Host::Server, "prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg(format!("--web.listen-address={PROMETHEUS}")),
    );
    collector.wait_for("Server is ready to receive web requests", PATIENCE);
    collector
}

/// Text as a value in a URL.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Titles and queries of the dashboard's panels, with its variables and intervals filled in.
fn dashboard() -> Vec<(String, String)> {
    let path = repository().join("dist/grafana/turnpike.json");
    let text = std::fs::read_to_string(path).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let filled = |query: &str| {
        let query = query.replace("$__rate_interval", RANGE);
        query.replace("$job", ".+").replace("$instance", ".+")
    };
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        let title = panel["title"].as_str().expect("a title");
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push((title.to_owned(), filled(target["expr"].as_str().expect("a query"))));
        }
    }
    queries
}

#[test]
fn a_server_under_load_fills_every_panel() {
    let Some(scene) = Scene::new() else { return };
    // Six calls send 200 packets a second each, which the peer echoes.
    let rate = |leg| format!("sum(rate(turnpike_packets_total{{leg=\"{leg}\"}}[{RANGE}]))");
    scene.wait_for(&rate("to_peers"), 50.0);
    scene.wait_for(&rate("to_clients"), 50.0);
    scene.wait_for("sum(turnpike_allocations{transport=\"tls\"})", 1.0);

    let to = scene.lab.v4.listen.to_string();
    eventually("a wrong password is refused", || {
        let refused = Tool::run(scene.caller().args(["-w", "wrong", "-n", "1", &to]), PATIENCE);
        assert!(!refused.ok, "{}", refused.output);
        scene.server.json(&["status"])["refusals"]["wrong_password"].is_u64()
    });
    let ended = Tool::run(scene.caller().args(["-n", "1", &to]), PATIENCE);
    assert!(ended.ok, "{}", ended.output);
    scene.wait_for(&format!("sum(increase(turnpike_session_bytes_count[{RANGE}]))"), 0.0);
    scene.wait_for(&format!("sum(increase(turnpike_dtls_handshake_seconds_count[{RANGE}]))"), 0.0);
    scene.wait_for("sum(turnpike_refusals_total{reason=\"wrong_password\",code=\"401\"})", 0.0);

    let queries = dashboard();
    assert!(queries.len() > 50, "{} queries", queries.len());
    for (title, query) in queries {
        let values = scene.query(&query);
        assert!(!values.is_empty(), "{title}: no data: {query}");
        assert!(values.iter().all(|value| value.is_finite()), "{title}: {values:?}: {query}");
    }
    let names = scene.ask("/api/v1/label/__name__/values");
    let names: BTreeSet<_> =
        names.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for family in ["turnpike_build_info", "turnpike_drops_total", "process_max_fds"] {
        assert!(names.contains(family), "{family} is not among {names:?}");
    }
    alerts_are_evaluated(&scene);
    every_listener_is_asked(&scene);
    text_is_as_prometheus_wants_it(&scene);
    let status = scene.server.ask(&["status"]);
    assert!(status.ok, "{}", status.output);
}

fn alerts_are_evaluated(scene: &Scene) {
    let groups = scene.ask("/api/v1/rules");
    let rules = groups["groups"][0]["rules"].as_array().expect("rules");
    for rule in rules {
        assert_eq!(rule["health"], "ok", "{rule}");
        assert_eq!(rule["state"], "inactive", "{rule}");
    }
}

fn every_listener_is_asked(scene: &Scene) {
    let health: Value = serde_json::from_str(&scene.get(METRICS, "/healthz")).expect("JSON");
    assert_eq!(health["healthy"], true, "{health:#}");
    let listeners = health["listeners"].as_array().cloned().unwrap_or_default();
    let transports: Vec<_> = listeners.iter().filter_map(|one| one["transport"].as_str()).collect();
    assert_eq!(transports, ["tcp", "udp", "tcp", "udp", "tls", "tls"], "{health:#}");
}

fn text_is_as_prometheus_wants_it(scene: &Scene) {
    let text = scene.get(METRICS, "/metrics");
    let mut linter = Running::listening(Command::new("promtool").args(["check", "metrics"]));
    linter.say(&text);
    linter.end_input();
    assert!(linter.wait(PATIENCE), "{}", linter.output());
    assert_eq!(linter.output(), "");
}
