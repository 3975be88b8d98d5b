//! Certificates of operators in front of the tokens of `[api]`, and metrics over TLS, with curl as
//! the client.

use std::time::Duration;

use e2e::certificates::ECDSA;
use e2e::{Certificates, Config, Host, Lab, Server, Tool, require};

const CLIENT: &str = "extendedKeyUsage = clientAuth\nsubjectAltName = DNS:operator.test\n";

#[test]
fn a_token_counts_only_behind_a_certificate_of_the_operators() {
    let Some(lab) = require(Lab::new()) else { return };
    let files = Certificates::new(&lab);
    files.make("turn", "turn.test", ECDSA, "90");
    for authority in ["operators", "others"] {
        files.make(authority, "authority.test", ECDSA, "90");
    }
    files.sign("operator", "operators", CLIENT, "30");
    files.sign("expired", "operators", CLIENT, "-1");
    files.sign("stranger", "others", CLIENT, "30");
    let mut config = Config::for_lab(&lab);
    config.tables = format!(
        "[tls]\ncertificates = [{}]\n[api]\nlisten = [\"{}:9642\"]\nclient_authorities = {:?}\n",
        files.entry("turn"),
        lab.v4.listen,
        files.path("operators.pem")
    );
    let server = Server::start(&lab, &config);
    let added = server.json(&["token", "add", "reader", "--role", "read"]);
    let token = format!("Authorization: Bearer {}", added["token"].as_str().unwrap_or_default());

    let status = |certificate: Option<&str>, header: &str| -> Tool {
        let path = |name: String| files.path(&name).display().to_string();
        let mut command = lab.command(Host::Client, "curl");
        command.args([
            "--silent",
            "--show-error",
            "--max-time",
            "10",
            "--write-out",
            " %{http_code}",
        ]);
        command.args(["--cacert", &path("turn.pem".to_owned()), "--resolve"]);
        command.arg(format!("turn.test:9642:{}", lab.v4.listen));
        if let Some(name) = certificate {
            command.args(["--cert", &path(format!("{name}.pem"))]);
            command.args(["--key", &path(format!("{name}.key"))]);
        }
        command.args(["--header", header, "https://turn.test:9642/v1/status"]);
        Tool::run(&mut command, Duration::from_secs(20))
    };
    let served = status(Some("operator"), &token);
    assert!(served.ok && served.output.ends_with(" 200"), "{}", served.output);
    let without_token = status(Some("operator"), "Accept: application/json");
    assert!(without_token.output.ends_with(" 401"), "{}", without_token.output);
    for certificate in [None, Some("stranger"), Some("expired")] {
        let refused = status(certificate, &token);
        let before_http = !refused.ok && refused.output.contains("alert");
        assert!(before_http, "{certificate:?}: {}", refused.output);
    }
}

#[test]
fn metrics_are_served_over_tls_at_a_path_of_their_own() {
    let Some(lab) = require(Lab::new()) else { return };
    let files = Certificates::new(&lab);
    files.make("turn", "turn.test", ECDSA, "90");
    let mut config = Config::for_lab(&lab);
    config.tables = format!(
        "[tls]\ncertificates = [{}]\n[http]\nlisten = [\"{}:9641\"]\ntls = true\nmetrics_path = \"/turn/metrics\"\n",
        files.entry("turn"),
        lab.v4.listen,
    );
    let _server = Server::start(&lab, &config);
    let get = |url: &str| -> Tool {
        let mut command = lab.command(Host::Client, "curl");
        command.args(["--silent", "--show-error", "--fail", "--max-time", "10", "--cacert"]);
        command.arg(files.path("turn.pem")).arg("--resolve");
        command.args([&format!("turn.test:9641:{}", lab.v4.listen), url]);
        Tool::run(&mut command, Duration::from_secs(20))
    };
    let metrics = get("https://turn.test:9641/turn/metrics");
    assert!(metrics.ok && metrics.output.contains("turnpike_build_info"), "{}", metrics.output);
    let health = get("https://turn.test:9641/healthz");
    assert!(health.ok && health.output.contains("\"healthy\":true"), "{}", health.output);
    let elsewhere = get("https://turn.test:9641/metrics");
    assert!(!elsewhere.ok && elsewhere.output.contains("404"), "{}", elsewhere.output);
    assert!(!get("http://turn.test:9641/turn/metrics").ok, "not without TLS");
}
