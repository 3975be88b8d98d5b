//! The server with small tables, and the networks around it.

use std::fs::File;
use std::io::Read as _;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};

use e2e::certificates::ECDSA;
use e2e::{Certificates, Config, Host, Lab, Operator, Server, binary};

use crate::services::Services;
use crate::stun::Login;

/// Realm of honest users.
pub(crate) const REALM: &str = "turn.test";

/// Realm of the attackers with credentials.
pub(crate) const HOSTILE: &str = "hostile.test";

/// Secret of the time-limited credentials of [`HOSTILE`].
pub(crate) const SECRET: &str = "a secret of the hostile realm";

/// Password of every user of the database.
const PASSWORD: &str = "correct-horse-battery";

/// Ports of the monitoring and of the interface for operators.
const HTTP: u16 = 9641;
const API: u16 = 9642;

/// A peer that discards everything: its link-layer address belongs to no interface.
const SILENT_PEER: &str = "10.77.2.99";

/// Addresses of the server and its peers, with credentials of honest users.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    v4: IpAddr,
    v6: IpAddr,
    /// Address of the peer that accepts connections and receives datagrams.
    pub(crate) peer: IpAddr,
    /// A peer that does not answer.
    pub(crate) silent_peer: IpAddr,
    /// A token of the interface for operators.
    pub(crate) token: String,
    /// Commands of the operator.
    pub(crate) operator: Operator,
}

impl Places {
    /// The TURN port of the server, in the family of a client.
    pub(crate) const fn turn(&self, client: IpAddr) -> SocketAddr {
        self.at(client, 3478)
    }

    /// The monitoring port.
    pub(crate) const fn http(&self, client: IpAddr) -> SocketAddr {
        self.at(client, HTTP)
    }

    /// The port of the interface for operators.
    pub(crate) const fn api(&self, client: IpAddr) -> SocketAddr {
        self.at(client, API)
    }

    const fn at(&self, client: IpAddr, port: u16) -> SocketAddr {
        match client {
            IpAddr::V4(_) => SocketAddr::new(self.v4, port),
            IpAddr::V6(_) => SocketAddr::new(self.v6, port),
        }
    }
}

/// Credentials of an honest user of the database.
pub(crate) fn user(number: usize) -> Login {
    Login::new(&format!("user{number}"), REALM, PASSWORD)
}

/// Credentials of the hostile user of the database.
pub(crate) fn mallory() -> Login {
    Login::new("mallory", HOSTILE, PASSWORD)
}

/// A lab with a server.
pub(crate) struct Scene {
    pub(crate) lab: Lab,
    pub(crate) places: Places,
    pub(crate) server: Server,
    through: Vec<String>,
    _certificates: Certificates,
    _services: Option<Services>,
}

impl Scene {
    /// Starts a server on one processor, with `users` honest users, and `with_services` that take
    /// time for look-ups and decisions.
    ///
    /// # Errors
    /// The lab cannot be built here, or programs are missing.
    pub(crate) fn new(users: usize, with_services: bool) -> Result<Self, String> {
        let lab = Lab::new()?;
        lab.behave_as_cards()?;
        join_networks(&lab);
        let certificates = Certificates::new(&lab);
        certificates.make("turn", "turn.example.org", ECDSA, "90");
        // Other processes of the machine do not delay a thread with a real-time priority.
        let through = ["chrt", "-f", "1", "taskset", "-c", "0"].map(str::to_owned).to_vec();
        let mut config = Config { through: through.clone(), ..Config::for_lab(&lab) };
        config.accounts.clear();
        config.allow.push(SILENT_PEER.to_owned());
        config.relay_keys = "ports = \"50000-51023\"".to_owned();
        config.tables = tables(&lab, &certificates);
        let services = if with_services {
            Some(Services::start(&lab, namespace(&lab, Host::Server))?)
        } else {
            None
        };
        config.tables += &services.as_ref().map(Services::tables).unwrap_or_default();
        let server = Server::start(&lab, &config);
        add_users(&server, REALM, (0..users).map(|number| format!("user{number}")));
        add_users(&server, HOSTILE, ["mallory".to_owned()].into_iter());
        services.as_ref().inspect(|services| services.slow_down());
        let added = server.json(&["token", "add", "reader", "--role", "read"]);
        let places = Places {
            v4: lab.v4.listen,
            v6: lab.v6.listen,
            peer: lab.v4.peer,
            silent_peer: SILENT_PEER.parse().expect("an address"),
            token: added["token"].as_str().unwrap_or_default().to_owned(),
            operator: server.operator(),
        };
        Ok(Self { lab, places, server, through, _certificates: certificates, _services: services })
    }

    /// Starts the server again, without any state but its database.
    pub(crate) fn restart(&mut self) {
        self.server.stop();
        self.server.start_again(&self.lab, &self.through);
    }

    /// The metrics, fetched at the server's host.
    pub(crate) fn metrics(&self) -> String {
        let at = SocketAddr::from(([127, 0, 0, 1], HTTP));
        let mut stream = self.lab.connect(Host::Server, at);
        let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let mut text = String::new();
        drop(stream.write_all(request).and_then(|()| stream.read_to_string(&mut text)));
        text
    }

    /// The namespace of a host, for a thread to enter.
    pub(crate) fn namespace(&self, host: Host) -> File {
        namespace(&self.lab, host)
    }
}

fn namespace(lab: &Lab, host: Host) -> File {
    let path = format!("/run/netns/{}", lab.namespace(host));
    File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Tables small enough to be filled by rates that leave processors idle.
fn tables(lab: &Lab, certificates: &Certificates) -> String {
    let (v4, v6) = (lab.v4.listen, lab.v6.listen);
    format!(
        "[tls]\ncertificates = [{}]\nlisten = []\n\
         [tcp]\nconnections = 4096\nrelaying = true\n\
         [dtls]\nsessions = 1024\n\
         [quotas]\nunauthenticated_responses_per_second = 200\n\
         [offload]\nmode = \"tc\"\nflows = 1024\n\
         [http]\nlisten = [\"127.0.0.1:{HTTP}\", \"{v4}:{HTTP}\", \"[{v6}]:{HTTP}\"]\n\
         [api]\nlisten = [\"{v4}:{API}\", \"[{v6}]:{API}\"]\n\
         [[realms]]\nname = \"{HOSTILE}\"\n\
         secrets = [{{ name = \"hostile\", secret = \"{SECRET}\" }}]\n\
         [realms.peers]\nallow = [\"{SILENT_PEER}\"]\n",
        certificates.entry("turn"),
    )
}

/// Assigns every address of the clients' networks to the client's host.
fn join_networks(lab: &Lab) {
    let [client, server, peer] = [Host::Client, Host::Server, Host::Peer];
    let ip = |host, line: &str| {
        lab.run(host, "ip", &line.split(' ').collect::<Vec<_>>());
    };
    for key in ["net.ipv4.ip_nonlocal_bind", "net.ipv6.ip_nonlocal_bind"] {
        lab.run(client, "sysctl", &["-qw", &format!("{key}=1")]);
    }
    // Clients: 203.0.0.0/8 and 2a02::/16. Attackers: the others.
    for network in ["203.0.0.0/8", "198.51.100.0/24", "16.0.0.0/4", "32.0.0.0/3"] {
        ip(client, &format!("route add local {network} dev lo"));
    }
    for network in ["2a02::/16", "2001:db8::/32"] {
        ip(client, &format!("-6 route add local {network} dev lo"));
    }
    ip(server, &format!("route add default via {}", lab.v4.client));
    ip(server, &format!("-6 route add default via {}", lab.v6.client));
    let towards_peer = Lab::end_towards(peer);
    ip(server, &format!("neigh add {SILENT_PEER} lladdr 02:00:00:00:00:99 dev {towards_peer}"));
}

fn add_users(server: &Server, realm: &str, names: impl Iterator<Item = String>) {
    let mut command = Command::new(binary());
    command.args(["user", "add", "--stdin", "--realm", realm, "--config"]);
    command.arg(server.config_file());
    let data = server.config_file();
    command.arg("--data").arg(data.parent().expect("a directory"));
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("the server's program");
    let lines: String = names.map(|name| format!("{name}:{PASSWORD}\n")).collect();
    let mut input = child.stdin.take().expect("its input");
    input.write_all(lines.as_bytes()).expect("users");
    drop(input);
    assert!(child.wait().expect("its end").success(), "users of {realm}");
}
