//! TLS with other people's clients: coturn's, and OpenSSL's.

use std::fs;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use e2e::certificates::ECDSA;
use e2e::{
    Caller, Certificates, Config, Host, Lab, SecureScene, Server, Tool, coturn, echo_peer, require,
};
use test_support::eventually;
use turn_client::Families;

const PATIENCE: Duration = Duration::from_secs(60);

struct Scene(SecureScene);

impl Deref for Scene {
    type Target = SecureScene;

    fn deref(&self) -> &SecureScene {
        &self.0
    }
}

impl Scene {
    fn new() -> Option<Self> {
        Self::with("")
    }

    fn with(more: &str) -> Option<Self> {
        SecureScene::with(more).map(Self)
    }

    /// Waits for a log line: the server writes it a little after the action.
    fn wait_until_said(&self, text: &str) {
        let begun = Instant::now();
        while !self.server.process.output().contains(text) {
            assert!(begun.elapsed() < PATIENCE, "no {text:?} in\n{}", self.server.process.output());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Output of OpenSSL's client for a connection with these options.
    fn s_client(&self, options: &[&str]) -> String {
        let to = format!("{}:3478", self.lab.v4.listen);
        let line = format!("openssl s_client -connect {to} {} </dev/null 2>&1", options.join(" "));
        let out = Tool::run(self.lab.command(Host::Client, "sh").args(["-c", &line]), PATIENCE);
        out.output
    }
}

#[track_caller]
fn assert_has(output: &str, wanted: &str) {
    assert!(output.contains(wanted), "no {wanted:?} in\n{output}");
}

#[test]
fn versions_kinds_of_keys_names_and_protocols_are_those_of_the_rfcs() {
    // 7443-2-01, 7443-2-02, 7443-2-03, 8489-6.2.3-02
    let Some(scene) = Scene::new() else { return };
    for version in ["-tls1_2", "-tls1_3"] {
        let out = scene.s_client(&[version, "-servername turn.example.org", "-alpn stun.turn"]);
        assert_has(&out, "ALPN protocol: stun.turn");
        assert_has(&out, "subject=CN = turn\n");
    }
    // RSA for clients that cannot verify the other kind.
    let rsa = ["-tls1_2", "-servername turn.example.org", "-sigalgs RSA-PSS+SHA256:RSA+SHA256"];
    assert_has(&scene.s_client(&rsa), "subject=CN = turn-rsa\n");
    for name in ["other.example.org", "a.other.example.org"] {
        let out = scene.s_client(&[&format!("-servername {name}")]);
        assert_has(&out, "subject=CN = other\n");
    }
    let out = scene.s_client(&["-servername unknown.example.org"]);
    assert_has(&out, "subject=CN = turn\n");
    assert_has(&scene.s_client(&["-noservername"]), "subject=CN = turn\n");
    assert_has(&scene.s_client(&["-alpn stun.nat-discovery"]), "ALPN protocol: stun.nat-discovery");
    assert_has(&scene.s_client(&["-alpn h2"]), "no application protocol");
    // 8489-6.2.3-01, 8489-6.2.3-03, 8489-6.2.3-04
    for suite in ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"] {
        assert_has(&scene.s_client(&["-tls1_2", "-cipher", suite]), &format!("Cipher is {suite}"));
    }
    for suite in ["AES128-GCM-SHA256", "AES128-SHA", "ECDHE-RSA-AES128-SHA"] {
        let out = scene.s_client(&["-tls1_2", "-cipher", suite]);
        assert_has(&out, "Cipher is (NONE)");
        assert_has(&out, "SSL alert number");
    }
    for version in ["-tls1", "-tls1_1"] {
        let out = scene.s_client(&[version, "-cipher DEFAULT@SECLEVEL=0"]);
        assert_has(&out, "Cipher is (NONE)");
        assert_has(&out, "SSL alert number");
    }
}

#[test]
fn sessions_are_resumed_also_after_new_certificates() {
    let Some(scene) = Scene::new() else { return };
    let session = scene.files.path("session").display().to_string();
    let out = scene.s_client(&["-tls1_2", &format!("-sess_out {session}")]);
    assert_has(&out, "New, TLSv1.2");
    assert_has(&scene.s_client(&["-tls1_2", &format!("-sess_in {session}")]), "Reused, TLSv1.2");

    let serial = || {
        let out = scene.s_client(&["-servername turn.example.org", "-showcerts"]);
        let begin = out.find("-----BEGIN CERTIFICATE-----").unwrap_or_else(|| panic!("{out}"));
        out[begin..].split("-----END").next().map(str::to_owned)
    };
    let before = serial();
    scene.files.make("turn", "turn.example.org", ECDSA, "5");
    let begun = Instant::now();
    while serial() == before {
        assert!(begun.elapsed() < PATIENCE, "the new certificate is never seen");
        std::thread::sleep(Duration::from_millis(200));
    }
    scene.wait_until_said("turn.pem expires in 4 d");
    assert_has(&scene.s_client(&["-tls1_2", &format!("-sess_in {session}")]), "Reused, TLSv1.2");
    // A broken one changes nothing.
    let now = serial();
    fs::write(scene.files.path("turn.pem"), "nonsense").expect("written");
    scene.wait_until_said("cannot be used");
    assert_eq!(serial(), now);
}

#[test]
fn clients_show_certificates_where_they_have_to() {
    let Some(scene) = Scene::with("client_authorities = \"DIR/turn.pem\"") else { return };
    let own = |file: &str| {
        let path = |end: &str| scene.files.path(&format!("{file}.{end}")).display().to_string();
        format!("-cert {} -key {}", path("pem"), path("key"))
    };
    // A self-signed certificate is its own authority. With TLS 1.3 a refused client sees the alert
    // only after its own handshake.
    let out = scene.s_client(&["-tls1_2", &own("turn")]);
    assert_has(&out, "New, TLSv1.2");
    let out = scene.s_client(&["-tls1_2", &own("other")]);
    assert_has(&out, "alert");
    let out = scene.s_client(&["-tls1_2"]);
    assert_has(&out, "alert");
}

#[test]
fn uclient_relays_over_tls() {
    if require(coturn()).is_none() {
        return;
    }
    let Some(scene) = Scene::new() else { return };
    let peer = scene.lab.v4.peer.to_string();
    let _peer = echo_peer(&scene.lab, scene.lab.v4.peer);
    let uclient = |options: &[&str]| {
        let identity = ["-u", "alice", "-w", "correct-horse-battery", "-e", &peer, "-r", "3480"];
        let mut command = scene.lab.command(Host::Client, "turnutils_uclient");
        command.args(identity).args(["-t", "-S", "-c", "-z", "5"]).args(options);
        Tool::run(command.arg(scene.lab.v4.listen.to_string()), PATIENCE)
    };
    // uclient takes one message per read, which may return more when the machine is busy: so the
    // test is that all were sent to it, over connections that lose nothing.
    let mut all = 0;
    let mut assert_relayed = |options: &[&str], messages: u64| {
        let out = uclient(options);
        assert!(out.ok, "{}", out.output);
        assert_has(&out.output, &format!("tot_send_msgs={messages}, "));
        all += messages;
        let status = scene.server.json(&["status"]);
        assert_eq!(status["fates"]["to_client"], all, "{status:#}\n{}", out.output);
        assert_eq!(status["drops"]["stream_backlog"], serde_json::Value::Null, "{status:#}");
    };
    assert_relayed(&["-p", "3478", "-n", "50", "-m", "4", "-l", "171"], 200);
    assert_relayed(&["-p", "3478", "-s", "-n", "50", "-l", "1000"], 50);
    // By the TLS port. (uclient offers random parameters, of which some are refused: it tries
    // again.)
    assert_relayed(&["-p", "5349", "-n", "20"], 20);
}

#[test]
fn an_unusable_certificate_is_reported_before_the_start() {
    let Some(lab) = require(Lab::new()) else { return };
    let files = Certificates::new(&lab);
    files.make("turn", "turn.example.org", ECDSA, "90");
    files.make("other", "turn.example.org", ECDSA, "90");
    let check = |chain: &Path, key: &Path| {
        let text = format!(
            "realm = \"turn.test\"\n[tls]\ncertificates = [{{ chain = {chain:?}, key = {key:?} }}]\n"
        );
        let file = files.path("turnpike.toml");
        fs::write(&file, text).expect("written");
        Tool::run(Command::new(e2e::binary()).arg("check").arg(&file), PATIENCE)
    };
    let path = |name: &str| files.path(name);
    let good = check(&path("turn.pem"), &path("turn.key"));
    assert!(good.ok, "{}", good.output);
    for (chain, key, why) in [
        ("turn.pem", "other.key", "cannot be used"),
        ("turn.key", "turn.key", "no certificate"),
        ("turn.pem", "turn.pem", "key cannot be read"),
        ("missing.pem", "turn.key", "there is no file"),
    ] {
        let out = check(&path(chain), &path(key));
        assert!(!out.ok, "{chain} {key}");
        assert_has(&out.output, why);
        assert_has(&out.output, "tls.certificates");
    }
}

/// A renewal that went wrong stops neither UDP nor a restart.
#[test]
fn a_server_waits_for_a_missing_certificate() {
    let Some(lab) = require(Lab::new()) else { return };
    let files = Certificates::new(&lab);
    files.make("turn", "turn.example.org", ECDSA, "90");
    let away = files.path("turn.away");
    fs::rename(files.path("turn.pem"), &away).expect("moved");
    let mut config = Config::for_lab(&lab);
    config.tables = format!(
        "[tls]\ncertificates = [{}]\n[http]\nlisten = [\"127.0.0.1:9641\"]\n",
        files.entry("turn")
    );
    let server = Server::start(&lab, &config);
    let at = SocketAddr::new(lab.v4.listen, 3478);
    let ask = || {
        let socket = lab.socket(Host::Client, (lab.v4.client, 0));
        Caller::ask(socket, at, config.accounts[0], Families::V4)
    };
    assert!(ask().is_ok(), "{}", server.process.output());
    let missing = "there is no file";
    assert_has(&server.process.output(), missing);
    assert_has(&server.ask(&["status"]).output, missing);
    let page = |path: &str| {
        let url = format!("http://127.0.0.1:9641/{path}");
        lab.run(Host::Server, "curl", &["-s", "-w", "%{http_code}", &url])
    };
    assert_has(&page("metrics"), "turnpike_unread_parts 1\n");
    assert!(page("readyz").ends_with("200"), "UDP and TCP are served");
    let reload = server.ask(&["reload"]).output;
    assert!(reload.contains(missing) && !reload.contains("not in force"), "{reload}");

    fs::rename(&away, files.path("turn.pem")).expect("moved");
    let tls = format!("openssl s_client -connect {at} </dev/null 2>&1");
    eventually("TLS is served", || {
        let out = Tool::run(lab.command(Host::Client, "sh").args(["-c", &tls]), PATIENCE);
        out.output.contains("BEGIN CERTIFICATE")
    });
    eventually("nothing is wrong", || !server.ask(&["status"]).output.contains(missing));
    config.tables = config.tables.replace("[tls]\n", "[tls]\nwhen_unusable = \"refuse\"\n");
    server.rewrite(&config);
    fs::rename(files.path("turn.pem"), &away).expect("moved");
    let again = Tool::run(
        Command::new(e2e::binary()).args(["run", "--config"]).arg(server.config_file()),
        PATIENCE,
    );
    assert!(!again.ok && again.output.contains(missing), "{}", again.output);
}
