//! Realms of one server, with coturn's client and OpenSSL: each lets in its own users to its own
//! peers.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use e2e::certificates::ECDSA;
use e2e::{Certificates, Config, Host, Lab, Running, Server, Tool, coturn, echo_peer, require};

const PATIENCE: Duration = Duration::from_secs(60);

const METRICS: &str = "127.0.0.1:9641";

const PAGE: &str = "https://meet.tenant.test";

/// An Allocate without credentials.
const ALLOCATE: &str =
    r"\000\003\000\010\041\022\244\102abcdefghijkl\000\031\000\004\021\000\000\000";

struct Scene {
    lab: Lab,
    config: Config,
    files: Certificates,
    server: Server,
    _peers: [Running; 2],
}

impl Scene {
    fn new() -> Option<Self> {
        require(coturn())?;
        let lab = require(Lab::new())?;
        let files = Certificates::new(&lab);
        files.make("turn", "turn.test", ECDSA, "90");
        files.make("tenant", "turn.tenant.test", ECDSA, "90");
        let mut config = Config::for_lab(&lab);
        config.listen.push(format!("{}:7000", lab.v4.listen));
        config.tables = tenant(&lab, &files, &format!("[http]\nlisten = [\"{METRICS}\"]\n"));
        let server = Server::start(&lab, &config);
        let peers = [lab.v4.peer, lab.v6.peer].map(|ip| echo_peer(&lab, ip));
        Some(Self { lab, config, files, server, _peers: peers })
    }

    /// Runs uclient through a permission for the peer to which it sends ten messages.
    fn uclient(&self, (name, password): (&str, &str), options: &[&str]) -> Tool {
        let peer = self.lab.v4.peer.to_string();
        let mut command = self.lab.command(Host::Client, "turnutils_uclient");
        command.args(["-u", name, "-w", password, "-e", &peer, "-r", "3480", "-n", "10", "-c"]);
        command.args(options).arg(self.lab.v4.listen.to_string());
        Tool::run(&mut command, PATIENCE)
    }

    /// The answer to an Allocate over TLS, or DTLS with `-dtls1_2`, from a client that asks for
    /// this server name.
    fn challenge(&self, protocol: &str, server_name: &str) -> String {
        let to = format!("{}:3478", self.lab.v4.listen);
        let script = format!(
            "(sleep 1; printf '{ALLOCATE}'; sleep 2) | timeout 5 openssl s_client -quiet {protocol} -servername \
             {server_name} -connect {to} | tr -cd '[:print:]'"
        );
        let mut command = self.lab.command(Host::Client, "sh");
        Tool::run(command.args(["-c", &script]), PATIENCE).output
    }

    /// The metrics of the server.
    fn metrics(&self) -> String {
        let mut stream = self.lab.connect(Host::Server, METRICS.parse().expect("an address"));
        // Of version 1.0, so that the end of the body is that of the connection.
        let request = format!("GET /metrics HTTP/1.0\r\nhost: {METRICS}\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// Number of requests refused because their user is unknown.
    fn unknown_users(&self) -> u64 {
        self.server.json(&["status"])["refusals"]["unknown_user"].as_u64().unwrap_or_default()
    }

    fn reload(&mut self, more: &str) {
        self.config.tables = tenant(&self.lab, &self.files, more);
        self.server.rewrite(&self.config);
        let reloaded = self.server.ask(&["reload"]);
        assert!(reloaded.ok, "{}", reloaded.output);
    }
}

/// The tables of a server with certificates for two names and one tenant.
fn tenant(lab: &Lab, files: &Certificates, more: &str) -> String {
    format!(
        "[tls]\ncertificates = [{}, {}]\n\
         [[realms]]\nname = \"tenant.test\"\norigins = [\"{PAGE}\"]\n\
         server_names = [\"turn.tenant.test\"]\nlisten = [\"{}:7000\"]\n{more}\n",
        files.entry("turn"),
        files.entry("tenant"),
        lab.v4.listen
    )
}

fn is_relayed(tool: &Tool) -> bool {
    tool.ok && tool.output.contains("tot_recv_msgs=10")
}

#[test]
fn a_realm_lets_in_its_own_users_by_page_and_by_listener() {
    let Some(scene) = Scene::new() else { return };
    let tenant = ("bob", "builder-of-tenants");
    let add = ["user", "add", tenant.0, "--password", tenant.1, "--realm", "tenant.test"];
    assert!(scene.server.ask(&add).ok);

    let by_page = scene.uclient(tenant, &["-p", "3478", "-o", PAGE]);
    assert!(is_relayed(&by_page), "{}", by_page.output);
    let by_listener = scene.uclient(tenant, &["-p", "7000"]);
    assert!(is_relayed(&by_listener), "{}", by_listener.output);
    let elsewhere = scene.uclient(tenant, &["-p", "3478"]);
    assert!(!is_relayed(&elsewhere), "the server's own realm has no bob:\n{}", elsewhere.output);
    let refused = scene.unknown_users();
    assert!(refused > 0, "{}", elsewhere.output);

    let alice = ("alice", "correct-horse-battery");
    let own = scene.uclient(alice, &["-p", "3478"]);
    assert!(is_relayed(&own), "{}", own.output);
    let in_tenant = scene.uclient(alice, &["-p", "3478", "-o", PAGE]);
    assert!(!is_relayed(&in_tenant), "the tenant has no alice:\n{}", in_tenant.output);
    assert!(scene.unknown_users() > refused, "{}", in_tenant.output);

    // Each has what its own users relayed, by uclient's allocations that ended: ten messages a run.
    let is = |metrics: &str, name: &str, labels: &str, value: u64| {
        metrics.contains(&format!("\nturnpike_realm_{name}_total{{{labels}}} {value}\n"))
    };
    test_support::eventually("the ended allocations are counted by realm", || {
        let metrics = scene.metrics();
        [("tenant.test", 2), ("turn.test", 1)].into_iter().all(|(realm, runs)| {
            let realm = format!("realm=\"{realm}\"");
            let packets = format!("{realm},direction=\"to_peers\"");
            is(&metrics, "allocations_ended", &realm, runs)
                && is(&metrics, "relayed_packets", &packets, 10 * runs)
        })
    });
}

#[test]
fn a_server_name_chooses_the_realm_over_tls_and_dtls() {
    let Some(scene) = Scene::new() else { return };
    for protocol in ["-tls1_3", "-tls1_2", "-dtls1_2"] {
        let tenant = scene.challenge(protocol, "turn.tenant.test");
        assert!(tenant.contains("tenant.test") && !tenant.contains("turn.test"), "{tenant}");
        let own = scene.challenge(protocol, "turn.test");
        assert!(own.contains("turn.test") && !own.contains("tenant.test"), "{protocol}: {own}");
    }
}

#[test]
fn a_reload_changes_the_rules_of_one_realm() {
    let Some(mut scene) = Scene::new() else { return };
    let tenant = ("bob", "builder-of-tenants");
    let add = ["user", "add", tenant.0, "--password", tenant.1, "--realm", "tenant.test"];
    assert!(scene.server.ask(&add).ok);
    let peer = scene.lab.v4.peer;
    let by_page = ["-p", "3478", "-o", PAGE];
    assert!(is_relayed(&scene.uclient(tenant, &by_page)));

    scene.reload(&format!("peers = {{ deny = [\"{peer}\"] }}"));
    let denied = scene.uclient(tenant, &by_page);
    assert!(!denied.ok && denied.output.contains("403"), "{}", denied.output);
    let why = scene.server.ask(&["why", "bob"]);
    let words = why.output.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(&format!("\"{peer}/32\" at ")), "{}", why.output);
    let alice = ("alice", "correct-horse-battery");
    assert!(is_relayed(&scene.uclient(alice, &["-p", "3478"])), "others keep theirs");

    scene.reload("");
    assert!(is_relayed(&scene.uclient(tenant, &by_page)), "and back");
}
