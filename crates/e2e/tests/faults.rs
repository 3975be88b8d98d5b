//! The table of faults in `docs/operate/debugging.md`: each fault is seeded, then the command of
//! its row has to print the line of its row.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use e2e::certificates::ECDSA;
use e2e::{
    Account, Caller, Certificates, Config, Host, Lab, Server, Tool, binary, repository, require,
};
use turn_types::IpFamily;

const PATIENCE: Duration = Duration::from_secs(60);

const ALICE: Account = Account { name: "alice", password: "correct-horse-battery" };
const SECRET: &str = "north-of-the-wall";

/// Extensions of the server's certificate.
const OWN: &str = "basicConstraints=critical,CA:FALSE\nsubjectAltName=DNS:turn.example.org\n";

/// Faults of the table, in its order; each has a test below.
const FAULTS: [&str; 10] = [
    "wrong password",
    "another secret",
    "expired credential",
    "forbidden peer",
    "quota",
    "no free port",
    "expired certificate",
    "missing intermediate",
    "blocked UDP",
    "PROXY sender not listed",
];

/// One row of the table.
struct Row {
    fault: String,
    command: String,
    /// Line of the output; `…` stands for any text.
    prints: String,
}

/// The table below the heading "Ten faults".
fn table() -> Vec<Row> {
    let page = repository().join("docs/operate/debugging.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let (_, section) = page.split_once("\n## Ten faults\n").expect("the section");
    let rows = section.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    rows.take_while(|line| line.starts_with('|')).map(row).collect()
}

fn row(line: &str) -> Row {
    let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
    let [fault, _, command, prints] = cells[..] else { panic!("four cells: {line}") };
    // A code span with back quotes in it begins and ends with two.
    let code = |cell: &str| cell.trim_matches('`').trim().to_owned();
    Row { fault: fault.to_owned(), command: code(command), prints: code(prints) }
}

fn find(fault: &str) -> Row {
    let row = table().into_iter().find(|row| row.fault == fault);
    row.unwrap_or_else(|| panic!("no row for {fault:?}"))
}

/// Parts of the wildcard pattern in their order, in a text whose blanks and line breaks do not
/// matter.
fn matches(text: &str, pattern: &str) -> bool {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut rest = text.as_str();
    pattern.split('…').all(|part| {
        let Some((_, after)) = rest.split_once(part.trim()) else { return false };
        rest = after;
        true
    })
}

/// A server in a lab, with a user, a shared secret and a certificate.
struct Scene {
    lab: Lab,
    server: Server,
    files: Certificates,
}

impl Scene {
    /// `None` where there can be no lab, after a report of the skip.
    fn new(change: impl FnOnce(&Lab, &mut Config)) -> Option<Self> {
        let lab = require(Lab::new())?;
        let files = Certificates::new(&lab);
        files.make("root", "root.test", ECDSA, "90");
        files.sign("intermediate", "root", "basicConstraints=critical,CA:TRUE\n", "90");
        files.sign("own", "intermediate", OWN, "90");
        files.chain("turn", &["own", "intermediate"]);
        let mut config = Config::for_lab(&lab);
        // The probe is its own peer.
        config.relay = vec![lab.v4.listen];
        config.allow = vec![lab.v4.client.to_string()];
        let (chain, key) = (files.path("turn.pem"), files.path("own.key"));
        config.tables = format!(
            "[auth]\nsecret = \"{SECRET}\"\n\
             [tls]\ncertificates = [{{ chain = {chain:?}, key = {key:?} }}]\n"
        );
        change(&lab, &mut config);
        let server = Server::start(&lab, &config);
        Some(Self { lab, server, files })
    }

    /// Runs the probe as a client of the service.
    fn client(&self, arguments: &[&str]) -> Tool {
        let uri = format!("turn:{}", self.lab.v4.listen);
        let mut command = self.lab.command(Host::Client, binary());
        Tool::run(command.args(["probe", &uri]).args(arguments), PATIENCE)
    }

    fn alice(&self) -> Tool {
        self.client(&["--username", ALICE.name, "--password", ALICE.password])
    }

    /// An allocation of a user, which lives until its end.
    fn caller(&self, user: Account) -> Caller {
        let socket = self.lab.socket(Host::Client, (self.lab.v4.client, 0));
        Caller::allocate(socket, (self.lab.v4.listen, 3478).into(), user, IpFamily::V4)
    }

    /// A text of the table with the addresses of the lab. Its hosts trust the lab's authority, and
    /// know no names.
    fn here(&self, text: &str) -> String {
        let text = text.replace("CLIENT", &self.lab.v4.client.to_string());
        text.replace("turn:turn.example.org", &format!("turn:{}", self.lab.v4.listen))
    }

    /// Output of a row's command: the probe's on the client's host, that of others on the server's.
    fn run(&self, row: &Row) -> String {
        let line = self.here(&row.command);
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["turnpike", command, arguments @ ..] = &words[..] else { panic!("{line}") };
        let host = if *command == "probe" { Host::Client } else { Host::Server };
        let trust = format!("SSL_CERT_FILE={}", self.files.path("root.pem").display());
        let config = self.server.config_file();
        let data = config.parent().expect("its directory");
        let tool = Tool::run(
            (self.lab.command(host, "env").arg(trust).arg(binary()).arg(command).args(arguments))
                .arg("--config")
                .arg(&config)
                .arg("--data")
                .arg(data),
            PATIENCE,
        );
        tool.output
    }

    /// The command of the row does not print its line before the fault, and does afterwards.
    fn diagnoses(&self, fault: &str, seed: impl FnOnce()) {
        let row = find(fault);
        let before = self.run(&row);
        assert!(
            !matches(&before, &self.here(&row.prints)),
            "{fault}, before it is seeded:\n{before}"
        );
        seed();
        self.prints(&row);
    }

    fn prints(&self, row: &Row) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let output = self.run(row);
            if matches(&output, &self.here(&row.prints)) {
                return;
            }
            let Row { fault, command, prints } = row;
            assert!(
                Instant::now() < deadline,
                "{fault}: {command} does not print\n{prints}\nbut\n{output}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn every_row_has_a_test() {
    let rows: Vec<String> = table().into_iter().map(|row| row.fault).collect();
    assert_eq!(rows, FAULTS);
}

#[test]
fn wrong_password() {
    let Some(scene) = Scene::new(|_, _| ()) else { return };
    assert!(scene.alice().ok, "the right one works");
    scene.diagnoses("wrong password", || {
        assert!(!scene.client(&["--username", "alice", "--password", "wrong"]).ok);
    });
}

#[test]
fn another_secret() {
    let Some(scene) = Scene::new(|_, _| ()) else { return };
    assert!(scene.client(&["--username", "bob", "--secret", SECRET]).ok, "the right one works");
    scene.diagnoses("another secret", || {
        assert!(!scene.client(&["--username", "bob", "--secret", "south-of-the-wall"]).ok);
    });
}

/// The clock of the application is an hour late, and its credentials are for half an hour.
#[test]
fn expired_credential() {
    let Some(scene) = Scene::new(|_, _| ()) else { return };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let username = format!("{}:bob", now - 1800);
    let password = stun_wire::time_limited_password(SECRET.as_bytes(), &username);
    scene.diagnoses("expired credential", || {
        assert!(!scene.client(&["--username", &username, "--password", &password]).ok);
    });
}

#[test]
fn forbidden_peer() {
    let Some(scene) = Scene::new(|_, config| config.allow.clear()) else { return };
    scene.diagnoses("forbidden peer", || {
        let said = scene.alice().output;
        assert!(said.contains("403"), "{said}");
    });
}

#[test]
fn quota() {
    let limit = |_: &Lab, config: &mut Config| {
        config.tables.push_str("[quotas]\nallocations_per_user = 1\n");
    };
    let Some(scene) = Scene::new(limit) else { return };
    let _call = scene.caller(ALICE);
    scene.diagnoses("quota", || assert!(!scene.alice().ok));
}

#[test]
fn no_free_port() {
    let narrow = |_: &Lab, config: &mut Config| {
        config.relay_keys = "ports = \"50000-50001\"".to_owned();
    };
    let Some(scene) = Scene::new(narrow) else { return };
    let _calls = [scene.caller(ALICE), scene.caller(ALICE)];
    scene.diagnoses("no free port", || assert!(!scene.alice().ok));
}

#[test]
fn expired_certificate() {
    let Some(scene) = Scene::new(|_, _| ()) else { return };
    scene.diagnoses("expired certificate", || {
        scene.files.sign("own", "intermediate", OWN, "-1");
        scene.files.chain("turn", &["own", "intermediate"]);
    });
}

#[test]
fn missing_intermediate() {
    let Some(scene) = Scene::new(|_, _| ()) else { return };
    scene.diagnoses("missing intermediate", || scene.files.chain("turn", &["own"]));
}

#[test]
fn blocked_udp() {
    let Some(scene) = Scene::new(|_, _| ()) else { return };
    scene.diagnoses("blocked UDP", || {
        for rule in [
            &["add", "table", "inet", "test"][..],
            &["add", "chain", "inet", "test", "in", "{ type filter hook input priority 0; }"],
            &["add", "rule", "inet", "test", "in", "meta", "l4proto", "udp", "drop"],
        ] {
            scene.lab.run(Host::Server, "nft", rule);
        }
    });
}

#[test]
fn proxy_sender_not_listed() {
    let listed = |_: &Lab, config: &mut Config| {
        config.tables.push_str("[tcp]\nproxy_protocol = [\"192.0.2.0/24\"]\n");
    };
    let Some(scene) = Scene::new(listed) else { return };
    scene.diagnoses("PROXY sender not listed", || {
        let server = (scene.lab.v4.listen, 3478).into();
        let mut balancer = scene.lab.connect(Host::Client, server);
        balancer.write_all(b"PROXY TCP4 198.51.100.9 203.0.113.7 5000 3478\r\n").expect("sent");
        assert_eq!(balancer.read(&mut [0; 100]).unwrap_or(0), 0, "it is refused");
    });
}
