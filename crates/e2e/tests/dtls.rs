//! DTLS with other people's clients: coturn's, and OpenSSL's.

use std::ops::Deref;
use std::time::Duration;

use e2e::certificates::ECDSA;
use e2e::{Host, Running, SecureScene, Tool, coturn, echo_peer, require};
use test_support::eventually;

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

    /// Starts OpenSSL's client with these options, for at most `seconds`, and waits for the end of
    /// its handshake, or its own.
    fn start_s_client(&self, options: &[&str], seconds: &str) -> Running {
        let to = format!("{}:3478", self.lab.v4.listen);
        let mut command = self.lab.command(Host::Client, "timeout");
        command.args([seconds, "openssl", "s_client", "-connect", &to]);
        command.args(options.iter().flat_map(|option| option.split(' ')));
        // Its input must not end before the handshake has.
        let mut client = Running::listening(&mut command);
        let _ended = client.says("Verify return code", PATIENCE);
        client
    }

    /// Output of OpenSSL's client for a session with these options.
    fn s_client(&self, options: &[&str]) -> String {
        output(self.start_s_client(options, "10"))
    }

    /// Output of OpenSSL's client with these options, which the server does not answer.
    fn s_client_in_vain(&self, options: &[&str]) -> String {
        output(self.start_s_client(options, "3"))
    }

    fn associations(&self) -> serde_json::Value {
        self.server.json(&["status"])["associations"].clone()
    }
}

/// Ends a client, and returns its output.
fn output(mut client: Running) -> String {
    client.end_input();
    client.wait(PATIENCE);
    client.output()
}

#[track_caller]
fn assert_has(output: &str, wanted: &str) {
    assert!(output.contains(wanted), "no {wanted:?} in\n{output}");
}

#[test]
fn versions_kinds_of_keys_names_and_protocols_are_those_of_tls() {
    // 7350-3-01, 7443-2-01, 7443-2-02, 7443-2-03
    let Some(scene) = Scene::new() else { return };
    let named = "-servername turn.example.org";
    let out = scene.s_client(&["-dtls1_2", named, "-alpn stun.turn"]);
    assert_has(&out, "Protocol  : DTLSv1.2");
    assert_has(&out, "ALPN protocol: stun.turn");
    assert_has(&out, "subject=CN = turn\n");
    // RSA for clients that cannot verify the other kind.
    let rsa = ["-dtls1_2", named, "-sigalgs RSA-PSS+SHA256:RSA+SHA256"];
    assert_has(&scene.s_client(&rsa), "subject=CN = turn-rsa\n");
    let out = scene.s_client(&["-dtls1_2", "-servername a.other.example.org"]);
    assert_has(&out, "subject=CN = other\n");
    let out = scene.s_client(&["-dtls1_2", "-noservername", "-alpn stun.nat-discovery"]);
    assert_has(&out, "subject=CN = turn\n");
    assert_has(&out, "ALPN protocol: stun.nat-discovery");
    assert_has(&scene.s_client(&["-dtls1_2", "-alpn h2"]), "no application protocol");
    for suite in ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"] {
        let out = scene.s_client(&["-dtls1_2", "-cipher", suite]);
        assert_has(&out, &format!("Cipher is {suite}"));
    }
    for suite in ["AES128-GCM-SHA256", "AES128-SHA", "ECDHE-RSA-AES128-SHA"] {
        let out = scene.s_client(&["-dtls1_2", "-cipher", suite]);
        assert_has(&out, "Cipher is (NONE)");
        assert_has(&out, "alert handshake failure");
    }
    let out = scene.s_client(&["-dtls1", "-cipher DEFAULT@SECLEVEL=0"]);
    assert_has(&out, "alert protocol version");
    let associations = scene.associations();
    assert_eq!(associations["hellos_answered"]["version"], 1, "{associations:#}");
    assert_eq!(associations["half_open"], 0, "{associations:#}");
}

/// RFC 6347 §4.2.3: with its cookie the hello has more than a packet.
#[test]
fn clients_with_small_packets_send_their_hello_in_pieces() {
    let Some(scene) = Scene::new() else { return };
    let out = scene.s_client(&["-dtls1_2", "-mtu 256", "-servername turn.example.org"]);
    assert_has(&out, "subject=CN = turn\n");
    assert_has(&out, "Cipher is ECDHE");
}

#[test]
fn a_second_handshake_within_an_association_is_refused() {
    let Some(scene) = Scene::new() else { return };
    // A line with an R has the client begin one.
    let mut client = scene.start_s_client(&["-dtls1_2"], "10");
    client.say("R\n");
    client.wait_for("RENEGOTIATING", PATIENCE);
    eventually("the association ends", || !scene.associations()["ended"].is_null());
    let out = output(client);
    let ended = &scene.associations()["ended"];
    assert_eq!(ended["broken"], 1, "{ended:#}\n{out}");
}

#[test]
fn new_certificates_are_for_new_associations() {
    let Some(scene) = Scene::new() else { return };
    let options = ["-dtls1_2", "-servername turn.example.org"];
    let before = scene.s_client(&options);
    assert_has(&before, "subject=CN = turn\n");
    scene.files.make("turn", "new.example.org turn.example.org", ECDSA, "4");
    let reload = scene.server.ask(&["reload"]);
    assert!(reload.ok, "{}", reload.output);
    let certificate = |out: &str| out.split("-----").nth(2).expect("a certificate").to_owned();
    assert_ne!(certificate(&before), certificate(&scene.s_client(&options)));
}

#[test]
fn uclient_relays_over_dtls() {
    // 7350-3-01, 7350-3-03
    if require(coturn()).is_none() {
        return;
    }
    let Some(scene) = Scene::new() else { return };
    let mut all = 0;
    for ends in [scene.lab.v4, scene.lab.v6] {
        let peer = ends.peer.to_string();
        let _peer = echo_peer(&scene.lab, ends.peer);
        let uclient = |options: &[&str]| {
            let identity =
                ["-u", "alice", "-w", "correct-horse-battery", "-e", &peer, "-r", "3480"];
            let mut command = scene.lab.command(Host::Client, "turnutils_uclient");
            command.args(identity).args(["-S", "-c", "-z", "5"]).args(options);
            if ends.peer.is_ipv6() {
                command.arg("-x");
            }
            Tool::run(command.arg(ends.listen.to_string()), PATIENCE)
        };
        let mut assert_relayed = |options: &[&str], messages: u64| {
            let out = uclient(options);
            assert!(out.ok, "{}", out.output);
            assert_has(&out.output, &format!("tot_send_msgs={messages}, tot_recv_msgs={messages}"));
            all += messages;
            let status = scene.server.json(&["status"]);
            assert_eq!(status["fates"]["to_client"], all, "{status:#}\n{}", out.output);
        };
        assert_relayed(&["-p", "3478", "-n", "50", "-m", "4", "-l", "171"], 200);
        assert_relayed(&["-p", "3478", "-s", "-n", "50", "-l", "1000"], 50);
        // By the port that is for it.
        assert_relayed(&["-p", "5349", "-n", "20"], 20);
    }
    let associations = scene.associations();
    assert_eq!(associations["half_open"], 0, "{associations:#}");
    assert!(associations["established"].as_u64().is_some_and(|n| n >= 12), "{associations:#}");
}

#[test]
fn clients_whose_certificates_are_asked_for_do_not_get_past_that_over_dtls() {
    let Some(scene) = Scene::with("client_authorities = \"DIR/turn.pem\"") else { return };
    let out = scene.s_client_in_vain(&["-dtls1_2"]);
    assert!(!out.contains("Protocol  : DTLSv1.2\n    Cipher    : ECDHE"), "{out}");
    let status = scene.server.json(&["status"]);
    assert_eq!(status["associations"]["begun"], 0, "{status:#}");
    assert!(status["drops"]["not_stun"].as_u64() >= Some(1), "its hellos came: {status:#}");
}

#[test]
fn it_can_be_switched_off() {
    let Some(scene) = Scene::with("[dtls]\nenabled = false") else { return };
    scene.s_client_in_vain(&["-dtls1_2"]);
    let status = scene.server.json(&["status"]);
    assert_eq!(status["associations"]["begun"], 0, "{status:#}");
    assert!(status["drops"]["not_stun"].as_u64() >= Some(1), "{status:#}");
}
