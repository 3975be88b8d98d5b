//! Certificates of an ACME authority: pebble, with a name server of its own.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use e2e::certificates::ECDSA;
use e2e::{
    Certificates, Config, Host, Lab, Running, Server, Tool, coturn, echo_peer, pebble, require,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// The authority's own name.
const AUTHORITY: &str = "acme.test";

const NAME: &str = "turn.example.org";

/// Lifetime of certificates in seconds: long enough for a call while one is renewed.
const LIFETIME: u32 = 15;

/// The server's resolver settings, as `ip netns exec` shows them to it.
struct Resolver(PathBuf);

impl Resolver {
    fn new(lab: &Lab) -> Self {
        let directory = PathBuf::from("/etc/netns").join(lab.namespace(Host::Server));
        fs::create_dir_all(&directory).expect("a directory");
        let name_server = format!("nameserver {}\n", lab.v4.client);
        fs::write(directory.join("resolv.conf"), name_server).expect("written");
        Self(directory)
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// An authority at the client's host, to which every name but its own leads to the server.
struct Authority {
    lab: Lab,
    files: Certificates,
    _resolver: Resolver,
    _names: Running,
    _pebble: Running,
}

impl Authority {
    fn new() -> Option<Self> {
        require(pebble())?;
        let lab = require(Lab::new())?;
        let files = Certificates::new(&lab);
        let of_a_server = ["-addext", "basicConstraints=critical,CA:FALSE"];
        files.make("acme", AUTHORITY, &[ECDSA, &of_a_server].concat(), "90");

        let nothing = ["-http01", "", "-https01", "", "-tlsalpn01", "", "-defaultIPv6", ""];
        let mut names = Running::start(
            lab.command(Host::Client, "pebble-challtestsrv")
                .args(["-dns01", ":53", "-defaultIPv4", &lab.v4.listen.to_string()])
                .args(nothing),
        );
        names.wait_for("Starting management server", PATIENCE);
        let config = files.path("pebble.json");
        fs::write(&config, pebble_config(&lab, &files)).expect("written");
        let mut pebble = Running::start(
            lab.command(Host::Client, "env")
                .args(["PEBBLE_VA_NOSLEEP=1", "PEBBLE_AUTHZREUSE=0", "pebble", "-config"])
                .arg(&config)
                .args(["-dnsserver", &format!("{}:53", lab.v4.client)]),
        );
        pebble.wait_for("ACME directory available", PATIENCE);
        let resolver = Resolver::new(&lab);
        let authority = Self { lab, files, _resolver: resolver, _names: names, _pebble: pebble };
        authority.lead(AUTHORITY);
        Some(authority)
    }

    /// Has a name lead to the authority's own host.
    fn lead(&self, name: &str) {
        let client = self.lab.v4.client;
        let body = format!("{{\"host\":\"{name}\",\"addresses\":[\"{client}\"]}}");
        let mut management = self.lab.connect(Host::Client, SocketAddr::new(client, 8055));
        write!(
            management,
            "POST /add-a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("sent");
        let mut answer = String::new();
        management.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    /// A server that orders a certificate for a name, with these lines of configuration.
    fn server(&self, name: &str, port: u16, tls: &str) -> Server {
        let mut config = Config::for_lab(&self.lab);
        let listen = self.lab.v4.listen;
        config.listen.retain(|at| !at.starts_with('['));
        config.tables = format!(
            "[tls]\nlisten = [\"{listen}:{port}\"]\n{tls}\n[acme]\nnames = [\"{name}\"]\n\
             directory = \"https://{AUTHORITY}:14000/dir\"\nauthorities = \"{}\"\n",
            self.files.path("acme.pem").display(),
        );
        Server::start(&self.lab, &config)
    }

    /// The certificate that a client gets at a port, and its issuer.
    fn shown(&self, port: u16) -> String {
        let to = format!("{}:{port}", self.lab.v4.listen);
        let line = format!(
            "openssl s_client -connect {to} -servername {NAME} </dev/null 2>&1 | \
                     openssl x509 -noout -serial -issuer -ext subjectAltName 2>&1"
        );
        Tool::run(self.lab.command(Host::Client, "sh").args(["-c", &line]), PATIENCE).output
    }

    /// Waits for a certificate that is another than `before`.
    fn wait_for_another(&self, server: &Server, port: u16, before: &str) -> String {
        let begun = Instant::now();
        loop {
            let shown = self.shown(port);
            if shown.contains("serial=") && shown != before {
                assert!(shown.contains("issuer=CN = Pebble Intermediate"), "{shown}");
                assert!(shown.contains(&format!("DNS:{NAME}")), "{shown}");
                return shown;
            }
            let output = server.process.output();
            assert!(begun.elapsed() < PATIENCE, "no other certificate: {shown}\n{output}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

fn pebble_config(lab: &Lab, files: &Certificates) -> String {
    let client = lab.v4.client;
    let [certificate, key] = ["acme.pem", "acme.key"].map(|file| files.path(file));
    format!(
        "{{\"pebble\": {{\"listenAddress\": \"{client}:14000\", \"managementListenAddress\": \"{client}:15000\", \
         \"certificate\": \"{}\", \"privateKey\": \"{}\", \"httpPort\": 80, \"tlsPort\": 443, \
         \"ocspResponderURL\": \"\", \"externalAccountBindingRequired\": false, \
         \"certificateValidityPeriod\": {LIFETIME}}}}}",
        certificate.display(),
        key.display()
    )
}

/// A call over TLS goes on while the certificate is renewed; the account and the certificate are
/// stored.
#[test]
fn a_certificate_is_ordered_by_tls_and_renewed_during_a_call() {
    if require(coturn()).is_none() {
        return;
    }
    let Some(authority) = Authority::new() else { return };
    let server = authority.server(NAME, 443, "");
    let first = authority.wait_for_another(&server, 443, "");

    let lab = &authority.lab;
    let _peer = echo_peer(lab, lab.v4.peer);
    let call = Tool::run(
        lab.command(Host::Client, "turnutils_uclient")
            .args(["-S", "-t", "-c", "-u", "alice", "-w", "correct-horse-battery", "-p", "443"])
            .args(["-n", "400", "-z", "50", "-e", &lab.v4.peer.to_string(), "-r", "3480"])
            .arg(lab.v4.listen.to_string()),
        PATIENCE,
    );
    assert!(call.ok && call.output.contains("tot_send_msgs=400, "), "{}", call.output);
    let status = server.json(&["status"]);
    assert_eq!(status["fates"]["to_client"], 400, "{status:#}\n{}", call.output);
    let output = server.process.output();
    let issued = output.matches("was issued").count();
    assert!(issued >= 2, "renewed during the call:\n{output}");
    authority.wait_for_another(&server, 443, &first);
    // One account: the authority counts orders by it.
    assert!(server.file("acme-account.json").contains("acme.test"));
    // The certificate of a challenge is for all who ask, but in an order alone; here the next one
    // may be under way.
    let line = format!(
        "openssl s_client -connect {}:443 -alpn acme-tls/1 -servername {NAME} </dev/null 2>&1",
        lab.v4.listen
    );
    test_support::eventually("no certificate of a challenge is shown between orders", || {
        let out = Tool::run(lab.command(Host::Client, "sh").args(["-c", &line]), PATIENCE);
        out.output.contains("no peer certificate available")
    });
}

#[test]
fn a_certificate_is_ordered_by_http() {
    let Some(authority) = Authority::new() else { return };
    let server = authority.server(NAME, 80, "");
    authority.wait_for_another(&server, 80, "");
    assert!(server.process.output().contains("verified by http-01"));
}

#[test]
fn a_name_that_leads_elsewhere_is_explained() {
    let Some(authority) = Authority::new() else { return };
    authority.lead("elsewhere.example.org");
    let mut server = authority.server("elsewhere.example.org", 443, "");
    server.process.wait_for("could not verify elsewhere.example.org by tls-alpn-01", PATIENCE);
    let output = server.process.output();
    for part in
        ["the next attempt is in 5 min", "connection", "has to lead to this host in public DNS"]
    {
        assert!(output.contains(part), "no {part:?} in\n{output}");
    }
}
