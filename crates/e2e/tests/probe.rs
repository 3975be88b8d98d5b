//! `turnpike probe` against this server and against coturn's.

use std::process::Command;
use std::time::{Duration, Instant};

use e2e::certificates::ECDSA;
use e2e::{
    Certificates, Config, Dependence, Host, INSIDE, Lab, Nat, Running, Server, Tool, binary,
    require,
};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// Output of the probe on the client's host, with `--json`.
fn probe(lab: &Lab, arguments: &[&str]) -> Value {
    let tool = Tool::run(
        lab.command(Host::Client, binary()).args(["probe", "--json"]).args(arguments),
        PATIENCE,
    );
    serde_json::from_str(&tool.output)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}:\n{}", tool.output))
}

/// `name state` of each step.
fn steps(report: &Value) -> Vec<String> {
    let steps = report["steps"].as_array().into_iter().flatten();
    let text = |step: &Value, field: &str| step[field].as_str().unwrap_or_default().to_owned();
    steps.map(|step| format!("{} {}", text(step, "name"), text(step, "state"))).collect()
}

/// Status of a step.
fn what<'a>(report: &'a Value, name: &str) -> &'a str {
    let steps = report["steps"].as_array().into_iter().flatten();
    let mut found = steps.filter(|step| step["name"] == name);
    found.next().and_then(|step| step["what"].as_str()).unwrap_or_default()
}

const ALICE: [&str; 4] = ["--username", "alice", "--password", "correct-horse-battery"];
const RELAYS: [&str; 6] =
    ["resolve ok", "connect ok", "binding ok", "allocate ok", "permission ok", "echo ok"];

/// A server that may relay to the client's own host.
fn relaying(lab: &Lab, tables: String) -> Server {
    let mut config = Config::for_lab(lab);
    config.relay = vec![lab.v4.listen];
    config.allow = vec![lab.v4.client.to_string()];
    config.tables = tables;
    Server::start(lab, &config)
}

#[test]
fn everything_that_works_is_reported() {
    let Some(lab) = require(Lab::new()) else { return };
    let _server = relaying(&lab, String::new());
    let host = lab.v4.listen.to_string();
    for transport in ["udp", "tcp"] {
        let uri = format!("turn:{host}?transport={transport}");
        let report = probe(&lab, &[&[uri.as_str()][..], &ALICE].concat());
        assert_eq!(steps(&report), RELAYS, "{report:#}");
        assert_eq!(report["verdict"], "works", "{report:#}");
        assert!(what(&report, "binding").contains("no NAT"), "{report:#}");
        assert!(what(&report, "allocate").contains(&host), "{report:#}");
    }
}

#[test]
fn a_chain_is_judged_and_named() {
    let Some(lab) = require(Lab::new()) else { return };
    let certificates = Certificates::new(&lab);
    let made = Tool::run(
        Command::new("openssl")
            .args(["req", "-x509", "-nodes", "-days", "5", "-subj", "/CN=the lab"])
            .args(ECDSA)
            .args(["-addext", &format!("subjectAltName=IP:{}", lab.v4.listen)])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .arg("-keyout")
            .arg(certificates.path("turn.key"))
            .arg("-out")
            .arg(certificates.path("turn.pem")),
        PATIENCE,
    );
    assert!(made.ok, "{}", made.output);
    let tables = format!("[tls]\ncertificates = [{}]\n", certificates.entry("turn"));
    let server = relaying(&lab, tables);
    let ca = certificates.path("turn.pem").display().to_string();
    for (transport, step, version) in [("tcp", "tls", "TLSv1.3"), ("udp", "dtls", "DTLS 1.2")] {
        let uri = format!("turns:{}?transport={transport}", lab.v4.listen);
        let report = probe(&lab, &[&[uri.as_str(), "--ca", &ca][..], &ALICE].concat());
        let secure = [&format!("{step} ok"), "chain warning"];
        let expected = [&RELAYS[..2], &secure, &RELAYS[2..]].concat();
        assert_eq!(steps(&report), expected, "it ends soon: {report:#}");
        assert_eq!(what(&report, step), version, "{report:#}");
        let ended = Instant::now();
        while server.json(&["status"])["associations"]["live"] != 0 {
            assert!(ended.elapsed() < PATIENCE, "the probe's association stays");
        }
        assert!(what(&report, "chain").contains("CN=the lab"), "{report:#}");
        let report = probe(&lab, &[&[uri.as_str()][..], &ALICE].concat());
        let failed = format!("{step} failed");
        assert_eq!(steps(&report), ["resolve ok", "connect ok", &failed], "nobody's: {report:#}");
        let uri = format!("turns:[{}]?transport={transport}", lab.v6.listen);
        let report = probe(&lab, &[&uri, "--ca", &ca]);
        assert_eq!(steps(&report), ["resolve ok", "connect ok", &failed], "another's: {report:#}");
    }
}

#[test]
fn a_certificate_of_an_authority_differs_from_a_servers() {
    let Some(lab) = require(Lab::new()) else { return };
    let certificates = Certificates::new(&lab);
    // As `openssl req -x509` makes them by default.
    let _server = relaying(&lab, certificates.simple());
    let ca = certificates.path("turn.pem").display().to_string();
    let report = probe(&lab, &[&format!("turns:{}", lab.v4.listen), "--ca", &ca]);
    assert_eq!(steps(&report), ["resolve ok", "connect ok", "tls failed"], "{report:#}");
    assert!(what(&report, "tls").contains("one of an authority (CA:TRUE)"), "{report:#}");
}

#[test]
fn failures_are_reported_with_their_status() {
    let Some(lab) = require(Lab::new()) else { return };
    let mut server = Server::start(&lab, &Config::for_lab(&lab));
    let uri = format!("turn:{}", lab.v4.listen);
    let status = |arguments: &[&str]| {
        let mut command = lab.command(Host::Client, binary());
        let out = command.arg("probe").args(arguments).output();
        out.map(|out| out.status.code()).unwrap_or_default()
    };
    let wrong = ["--username", "alice", "--password", "wrong"];
    let report = probe(&lab, &[&[uri.as_str()][..], &wrong].concat());
    assert_eq!(steps(&report)[3..], ["allocate failed"], "{report:#}");
    assert_eq!(status(&[&[uri.as_str()][..], &wrong].concat()), Some(2));

    // The client's own host is no peer here.
    let report = probe(&lab, &[&[uri.as_str()][..], &ALICE].concat());
    assert_eq!(steps(&report)[3..], ["allocate ok", "permission warning"], "{report:#}");
    assert_eq!(status(&[&[uri.as_str()][..], &ALICE].concat()), Some(1));

    assert_eq!(status(&[&uri]), Some(0), "without credentials there is nothing to fail");
    assert!(server.stop());
    let report = probe(&lab, &[&uri]);
    assert!(steps(&report).iter().any(|step| step == "binding failed"), "{report:#}");
    let report = probe(&lab, &[&format!("{uri}?transport=tcp")]);
    assert_eq!(steps(&report), ["resolve ok", "connect failed"], "{report:#}");
    let report = probe(&lab, &[&format!("turns:{}?transport=udp", lab.v4.listen)]);
    assert_eq!(steps(&report), ["resolve ok", "connect ok", "dtls failed"], "{report:#}");
    assert!(report.to_string().contains("whether the server listens"), "{report:#}");
}

#[test]
fn flaws_of_a_chain_are_named() {
    let Some(lab) = require(Lab::new()) else { return };
    let files = Certificates::new(&lab);
    files.make("root", "root.test", ECDSA, "90");
    files.sign("intermediate", "root", "basicConstraints=critical,CA:TRUE\n", "90");
    let own = "basicConstraints=critical,CA:FALSE\nsubjectAltName=DNS:turn.test\n";
    files.sign("turn", "intermediate", own, "90");
    files.sign("expired", "intermediate", own, "-1");
    files.chain("turn-chain", &["turn", "intermediate"]);
    files.chain("expired-chain", &["expired", "intermediate"]);
    let entry = |chain: &str, key: &str| {
        let (chain, key) = (files.path(chain), files.path(key));
        format!("[tls]\ncertificates = [{{ chain = {chain:?}, key = {key:?} }}]\n")
    };
    let mut config = Config::for_lab(&lab);
    config.tables = entry("turn.pem", "turn.key");
    let server = Server::start(&lab, &config);
    let ca = files.path("root.pem").display().to_string();
    let uris = ["tcp", "udp"].map(|t| format!("turns:{}?transport={t}", lab.v4.listen));
    let all = |more: &[&str]| {
        uris.each_ref().map(|uri| probe(&lab, &[&[uri.as_str(), "--ca", &ca], more].concat()))
    };
    for report in all(&["--server-name", "turn.test"]) {
        assert_eq!(report["verdict"], "fails", "{report:#}");
        assert!(
            report["reasons"].to_string().contains("intermediate certificate is missing"),
            "{report:#}"
        );
    }
    for report in all(&["--insecure"]) {
        assert!(what(&report, "trust").contains("clients refuse it"), "{report:#}");
        assert!(steps(&report).contains(&"binding ok".to_owned()), "{report:#}");
    }
    config.tables = entry("expired-chain.pem", "expired.key");
    server.rewrite(&config);
    assert!(server.ask(&["reload"]).ok);
    for report in all(&["--server-name", "turn.test"]) {
        assert!(report["reasons"].to_string().contains("expired 1 d ago"), "{report:#}");
    }
    config.tables = entry("turn-chain.pem", "turn.key");
    server.rewrite(&config);
    assert!(server.ask(&["reload"]).ok);
    for report in all(&["--server-name", "turn.test"]) {
        assert!(steps(&report).contains(&"binding ok".to_owned()), "{report:#}");
    }
    for report in all(&[]) {
        assert!(
            report["reasons"].to_string().contains("is for turn.test, and not for"),
            "{report:#}"
        );
    }
}

#[test]
fn blocked_udp_is_told_from_a_server_that_is_gone() {
    let Some(lab) = require(Lab::new()) else { return };
    let _server = relaying(&lab, String::new());
    for rule in [
        &["add", "table", "inet", "test"][..],
        &["add", "chain", "inet", "test", "in", "{ type filter hook input priority 0; }"],
        &["add", "rule", "inet", "test", "in", "meta", "l4proto", "udp", "drop"],
    ] {
        lab.run(Host::Server, "nft", rule);
    }
    let host = lab.v4.listen;
    let report = probe(&lab, &[&[&format!("turn:{host}")[..]][..], &ALICE].concat());
    assert_eq!(report["verdict"], "fails", "{report:#}");
    assert!(what(&report, "udp").starts_with("UDP is blocked"), "{report:#}");
    assert!(
        what(&report, "udp").contains(&format!("turn:{host}:3478?transport=tcp")),
        "{report:#}"
    );
}

/// The server tells clients a public address that leads nowhere from its own host.
#[test]
fn the_own_host_behind_nat_is_no_failure() {
    let Some(lab) = require(Lab::new()) else { return };
    let mut config = Config::for_lab(&lab);
    config.relay = vec![lab.v4.listen];
    config.tables = "[auth]\nsecret = \"north-of-the-wall\"\n".to_owned();
    config.relay_keys = "external = \"203.0.113.7\"".to_owned();
    let server = Server::start(&lab, &config);
    for host in ["203.0.113.7".to_owned(), lab.v4.listen.to_string()] {
        let uri = format!("turn:{host}");
        let report = server.json(&["probe", &uri, "--secret", "north-of-the-wall"]);
        assert_eq!(report["verdict"], "inconclusive", "{report:#}");
        assert!(what(&report, "resolve").contains("which is this host"), "{report:#}");
        let wrong = server.json(&["probe", &uri, "--secret", "south-of-the-wall"]);
        assert!(wrong["reasons"].to_string().contains("has another secret"), "{wrong:#}");
    }
}

#[test]
fn transports_have_switches() {
    let Some(lab) = require(Lab::new()) else { return };
    let files = Certificates::new(&lab);
    files.make("turn", "turn.test", ECDSA, "90");
    let host = lab.v4.listen;
    let works = |uri: &str| {
        let report = probe(&lab, &[uri, "--insecure"]);
        steps(&report).contains(&"binding ok".to_owned())
    };
    let uris = |port: u16| {
        [
            "turn:HOST?transport=udp",
            "turn:HOST?transport=tcp",
            "turns:HOST?transport=tcp",
            "turns:HOST?transport=udp",
        ]
        .map(|uri| uri.replace("HOST", &format!("{host}:{port}")))
    };
    for (tables, answered) in [
        ("", [true, true, true, true]),
        (
            "[udp]\nenabled = false\n[tcp]\nenabled = false\n[dtls]\nenabled = false",
            [false, false, true, false],
        ),
        ("[udp]\nenabled = false\n[tcp]\nenabled = false", [false, false, true, true]),
    ] {
        let mut config = Config::for_lab(&lab);
        config.listen = Vec::new();
        let tls = format!(
            "[tls]\nlisten = [\"{host}:5349\"]\ncertificates = [{}]\n",
            files.entry("turn")
        );
        config.tables = format!("{tables}\n{tls}");
        let _server = Server::start(&lab, &config);
        let found = uris(5349).map(|uri| works(&uri));
        assert_eq!(found, answered, "{tables}");
    }
    let mut config = Config::for_lab(&lab);
    config.relay_keys = "enabled = false".to_owned();
    config.tables = "[auth]\nusers = false\n".to_owned();
    let _server = Server::start(&lab, &config);
    let report = probe(&lab, &[&[&format!("turn:{host}")[..]][..], &ALICE].concat());
    assert_eq!(steps(&report)[2..], ["binding ok", "allocate failed"], "STUN alone: {report:#}");
}

/// The NAT in front of the probe, of every kind.
#[test]
fn a_nat_is_known_by_its_behaviour() {
    for (looks, mapping, filtering) in [
        (Dependence::Nowhere, "endpoint-independent", "endpoint-independent"),
        (Dependence::AtAddress, "address-dependent", "address-dependent"),
        (Dependence::AtPort, "address and port-dependent", "address and port-dependent"),
    ] {
        let Some(lab) = require(Lab::new()) else { return };
        let to_client = Lab::end_towards(Host::Client);
        lab.run(Host::Server, "ip", &["addr", "add", "10.77.1.3/24", "dev", &to_client]);
        let mut config = Config::for_lab(&lab);
        config.tables =
            format!("[discovery]\naddresses = [\"{}\", \"10.77.1.3\"]\n", lab.v4.listen);
        let server = Server::start(&lab, &config);
        let uri = format!("stun:{}", lab.v4.listen);
        assert_eq!(what(&probe(&lab, &[&uri]), "mapping"), "no NAT");
        let Some(_nat) = require(Nat::start(&lab, looks, looks)) else { return };
        // All packets to the server go through the NAT, except the NAT's own.
        let (inside, outside) = (INSIDE.to_string(), lab.v4.client.to_string());
        for rule in [
            &["rule", "add", "pref", "10", "from", &outside, "lookup", "main"][..],
            &["rule", "add", "pref", "20", "to", "10.77.1.0/24", "lookup", "77"],
            &["route", "replace", "default", "dev", "inside", "src", &inside, "table", "77"],
        ] {
            lab.run(Host::Client, "ip", rule);
        }
        let report = probe(&lab, &[&uri]);
        assert!(what(&report, "mapping").starts_with(mapping), "{report:#}");
        assert!(what(&report, "filtering").starts_with(filtering), "{report:#}");
        drop(server);
    }
}

/// coturn's server.
#[test]
fn other_servers_are_probed_as_well() {
    let Some(()) = require(e2e::coturn()) else { return };
    let Some(lab) = require(Lab::new()) else { return };
    let host = lab.v4.listen.to_string();
    let mut coturn = Running::start(
        lab.command(Host::Server, "turnserver")
            .args([
                "-n",
                "--log-file",
                "stdout",
                "--simple-log",
                "--no-cli",
                "--no-tls",
                "--no-dtls",
            ])
            .args(["-L", &host, "-E", &host, "--use-auth-secret", "--realm", "turn.test"])
            .args(["--static-auth-secret", "north-of-the-wall", "--pidfile", "/dev/null"]),
    );
    coturn.wait_for("IO method (admin thread)", Duration::from_secs(20));
    for transport in ["udp", "tcp"] {
        let uri = format!("turn:{host}?transport={transport}");
        let report = probe(&lab, &[&uri, "--secret", "north-of-the-wall"]);
        assert_eq!(steps(&report), RELAYS, "{report:#}");
    }
}
