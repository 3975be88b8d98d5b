//! The compared servers, and their command lines.
//!
//! All get the same: one listener, one relay address, the same ports, the same shared secret for
//! time-limited credentials, as many relaying threads as the server has cores, and no limits on
//! allocations, rates, connections or unauthenticated requests. Transports that are not measured
//! are off where the server has a switch for them; for TLS all have the same certificate. All else
//! is each server's default, logs included, which go to a file of the run.

mod coturn;

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::str::FromStr;

use anyhow::{Context as _, bail, ensure};

use super::certificate::Certificate;
use super::host::{PEER_RANGE, PEERS, RELAYS};
use crate::traffic::Transport;

/// A server on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSpec {
    /// Name in tables.
    pub name: String,
    /// Kind of server.
    pub kind: ServerKind,
}

/// Options of Turnpike beside the terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnpikeOptions {
    /// Its defaults.
    Default,
    /// This `offload.mode`.
    Offload(&'static str),
    /// Sockets, with relayed addresses of a prefix (`relay.prefixes`).
    Prefix,
}

/// Options of coturn beside the terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoturnOptions {
    /// Its defaults.
    Default,
    /// `--multiplex-peer --udp-gso`, its fastest way to relay UDP, which version 4.17 has.
    Fastest,
}

/// Kind of server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// Turnpike: this binary, or the one beside this program or in PATH.
    Turnpike(Option<PathBuf>, TurnpikeOptions),
    /// coturn: this binary, or `turnserver` of `$COTURN`, PATH or the usual directories.
    Coturn(Option<PathBuf>, CoturnOptions),
    /// A kernel forwarder without TURN between the links: an upper bound for all others. (Turnpike
    /// beside it opens the sessions.)
    Bare,
    /// A line of shell with placeholders.
    Command(String),
}

impl FromStr for ServerSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.trim())),
            None => (text, None),
        };
        let valid = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
        if name.is_empty() || !name.chars().all(valid) || value == Some("") {
            return Err(format!(
                "{text:?}: write turnpike, coturn, turnpike=PATH, coturn=PATH or NAME=COMMAND"
            ));
        }
        let path = value.map(PathBuf::from);
        let offload = |mode| ServerKind::Turnpike(path.clone(), TurnpikeOptions::Offload(mode));
        let kind = match (name, value) {
            ("turnpike", _) => ServerKind::Turnpike(path, TurnpikeOptions::Default),
            ("turnpike-sockets", _) => offload("off"),
            ("turnpike-tc", _) => offload("tc"),
            ("turnpike-xdp", _) => offload("xdp"),
            ("turnpike-xdp-generic", _) => offload("xdp-generic"),
            ("turnpike-prefix", _) => ServerKind::Turnpike(path, TurnpikeOptions::Prefix),
            ("coturn", _) => ServerKind::Coturn(path, CoturnOptions::Default),
            ("coturn-fastest", _) => ServerKind::Coturn(path, CoturnOptions::Fastest),
            ("bare", None) => ServerKind::Bare,
            (_, Some(command)) => {
                check(command)?;
                ServerKind::Command(command.to_owned())
            }
            (_, None) => {
                return Err(format!(
                    "{name} is no known server (turnpike, turnpike-sockets, turnpike-tc, turnpike-xdp, \
                     turnpike-xdp-generic, turnpike-prefix, coturn, coturn-fastest, bare): write NAME=COMMAND"
                ));
            }
        };
        Ok(Self { name: name.to_owned(), kind })
    }
}

/// Numbers servers of equal names, from the second on.
pub(crate) fn make_names_unique(servers: &mut [ServerSpec]) {
    for at in 1..servers.len() {
        let name = servers[at].name.clone();
        let mut number = 1;
        while servers[..at].iter().any(|other| other.name == servers[at].name) {
            number += 1;
            servers[at].name = format!("{name}-{number}");
        }
    }
}

/// Conditions that are equal for all servers.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// Listener.
    pub(crate) listen: SocketAddr,
    /// Listener for TLS and DTLS.
    pub(crate) tls_listen: SocketAddr,
    /// Transport of the clients.
    pub(crate) transport: Transport,
    /// Certificate for TLS and DTLS.
    pub(crate) certificate: Option<Certificate>,
    /// Relay address; the port does not matter.
    pub(crate) relay: SocketAddr,
    /// The peer of the first session.
    pub(crate) peer: SocketAddr,
    /// A user, for servers without shared secrets.
    pub(crate) user: String,
    /// Shared secret for time-limited credentials, and the password of the user.
    pub(crate) secret: String,
    /// The realm.
    pub(crate) realm: String,
    /// Ports of relayed addresses, first and last.
    pub(crate) ports: (u16, u16),
    /// Relaying threads.
    pub(crate) workers: usize,
}

impl Terms {
    /// Address for clients of the measured transport.
    pub(crate) const fn clients_connect_to(&self) -> SocketAddr {
        if self.transport.has_certificates() { self.tls_listen } else { self.listen }
    }

    /// The placeholders of command lines and configurations, with their values. Without TLS there
    /// is no certificate.
    fn values(&self) -> [(&'static str, String); 18] {
        let file = |part: fn(&Certificate) -> &PathBuf| {
            self.certificate.as_ref().map(|it| part(it).display().to_string()).unwrap_or_default()
        };
        [
            ("listen", self.listen.to_string()),
            ("listen_ip", self.listen.ip().to_string()),
            ("listen_port", self.listen.port().to_string()),
            ("tls_listen", self.tls_listen.to_string()),
            ("tls_port", self.tls_listen.port().to_string()),
            ("certificate", file(|certificate| &certificate.chain)),
            ("key", file(|certificate| &certificate.key)),
            ("relay", self.relay.ip().to_string()),
            ("peer", self.peer.to_string()),
            ("peers", PEERS.to_owned()),
            ("peer_range", PEER_RANGE.to_owned()),
            ("user", self.user.clone()),
            ("password", self.secret.clone()),
            ("secret", self.secret.clone()),
            ("realm", self.realm.clone()),
            ("min_port", self.ports.0.to_string()),
            ("max_port", self.ports.1.to_string()),
            ("workers", self.workers.to_string()),
        ]
    }

    fn fill(&self, template: &str) -> String {
        let replace = |text: String, (name, value): (&str, String)| {
            text.replace(&format!("{{{name}}}"), &value)
        };
        self.values().into_iter().fold(template.to_owned(), replace)
    }
}

/// Placeholders of command lines, for users.
const PLACEHOLDERS: [&str; 13] = [
    "listen",
    "tls_listen",
    "certificate",
    "key",
    "relay",
    "peer",
    "user",
    "password",
    "secret",
    "realm",
    "min_port",
    "max_port",
    "workers",
];

/// Checks that all placeholders exist, and that clients can log in.
fn check(line: &str) -> Result<(), String> {
    let mut rest = line;
    while let Some((_, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').unwrap_or((after, ""));
        if !PLACEHOLDERS.contains(&name) {
            let known = PLACEHOLDERS.map(|name| format!("{{{name}}}")).join(" ");
            return Err(format!("{{{name}}} is none of {known}"));
        }
        rest = after;
    }
    if !line.contains("{secret}") && !line.contains("{password}") {
        return Err("without {secret}, or {user} and {password}, clients cannot log in".to_owned());
    }
    Ok(())
}

/// A server that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prepared {
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
    /// Text of its configuration file, if it has one.
    pub(crate) configuration: Option<String>,
    /// Version, as the program prints it.
    pub(crate) version: String,
    /// A warning about this version for readers; empty for most.
    pub(crate) warning: Option<String>,
    /// True if it has the shared secret; otherwise it has the user and the password.
    pub(crate) knows_secret: bool,
}

impl ServerSpec {
    /// Writes the server's files into a directory of its own.
    ///
    /// # Errors
    /// The program is not there; the directory cannot be written.
    pub(crate) fn prepare(&self, terms: &Terms, directory: &Path) -> anyhow::Result<Prepared> {
        match &self.kind {
            ServerKind::Turnpike(path, options) => {
                prepare_turnpike(path.as_deref(), *options, terms, directory)
            }
            ServerKind::Bare => {
                let options = TurnpikeOptions::Offload("off");
                let prepared = prepare_turnpike(None, options, terms, directory)?;
                Ok(Prepared { version: "a kernel forwarder".to_owned(), ..prepared })
            }
            ServerKind::Coturn(path, options) => {
                coturn::prepare(path.as_deref(), *options, terms, directory)
            }
            ServerKind::Command(line) => Ok(Prepared {
                // `exec` makes the server the watched process, not the shell.
                command: ["sh", "-c", &format!("exec {}", terms.fill(line))]
                    .map(str::to_owned)
                    .into(),
                configuration: None,
                version: String::new(),
                warning: None,
                knows_secret: line.contains("{secret}"),
            }),
        }
        .with_context(|| format!("preparing the server {}", self.name))
    }
}

impl fmt::Display for ServerSpec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)
    }
}

/// Keys with their names in builds before 22 November 2026.
const RENAMED: [(&str, &str); 2] = [
    ("unauthenticated_responses_per_second", "stranger_answers_per_second"),
    ("sessions = 0\nsessions_per_address", "associations = 0\nassociations_per_address"),
];

fn prepare_turnpike(
    path: Option<&Path>,
    options: TurnpikeOptions,
    terms: &Terms,
    directory: &Path,
) -> anyhow::Result<Prepared> {
    let hint = "build it (cargo build --release), or name it: turnpike=PATH";
    let program = find(path, "turnpike", hint)?;
    let mut configuration = turnpike_toml(terms, options, directory);
    let file = directory.join("turnpike.toml");
    let write =
        |text: &str| fs::write(&file, text).with_context(|| format!("writing {}", file.display()));
    write(&configuration)?;
    let check = || {
        let checked = Command::new(&program).arg("--config").arg(&file).arg("check").output();
        checked.context("checking the configuration")
    };
    // 1 is a valid one with problems, such as a secret that others may read, as in this lab.
    let accepts = |checked: &Output| matches!(checked.status.code(), Some(0 | 1));
    let checked = check()?;
    if !accepts(&checked) {
        configuration =
            RENAMED.iter().fold(configuration, |text, (new, old)| text.replace(new, old));
        write(&configuration)?;
        // Not an older build either: its objection is to the present names.
        let complaint = String::from_utf8_lossy(&checked.stderr);
        let (name, accepted) = (program.display(), accepts(&check()?));
        ensure!(accepted, "{name} refuses its configuration: {}", complaint.trim());
    }
    let (binary, file) = (program.display().to_string(), file.display().to_string());
    let command = vec![binary, "--config".to_owned(), file, "run".to_owned()];
    let version = version(&program);
    Ok(Prepared {
        command,
        configuration: Some(configuration),
        version,
        warning: None,
        knows_secret: true,
    })
}

/// Turnpike's configuration. Default quotas that other servers do not have are off.
fn turnpike_toml(terms: &Terms, options: TurnpikeOptions, directory: &Path) -> String {
    let mut text = terms.fill(
        "realm = '{realm}'\n\
         listen = ['{listen}']\n\
         [relay]\n\
         addresses = ['{relay}']\n\
         ports = '{min_port}-{max_port}'\n\
         [auth]\n\
         secret = '{secret}'\n\
         [peers]\n\
         allow = ['{peers}']\n\
         [quotas]\n\
         allocations_per_user = 0\n\
         allocations_per_address = 0\n\
         new_peers_per_second = 0\n\
         unauthenticated_responses_per_second = 0\n\
         [workers]\n\
         count = {workers}\n",
    );
    text += &format!("[data]\ndirectory = '{}'\n", directory.join("data").display());
    // Only where they are measured: older builds do not have them.
    text += match terms.transport {
        Transport::Udp => "",
        Transport::Tcp | Transport::Tls | Transport::Tls12 => {
            "[tcp]\nconnections = 0\nconnections_per_address = 0\n"
        }
        Transport::Dtls => "[dtls]\nsessions = 0\nsessions_per_address = 0\n",
    };
    if terms.certificate.is_some() {
        text += &terms.fill(
            "[tls]\nlisten = ['{tls_listen}']\n\
             certificates = [{ chain = '{certificate}', key = '{key}' }]\n",
        );
    }
    let offload = |mode| format!("[offload]\nmode = '{mode}'\n");
    match options {
        TurnpikeOptions::Default => text,
        TurnpikeOptions::Offload(mode) => text + &offload(mode),
        TurnpikeOptions::Prefix => {
            let prefixes = format!("[relay]\nprefixes = ['{RELAYS}']\n");
            text.replace("[relay]\n", &prefixes) + &offload("off")
        }
    }
}

/// The program `name`: as given, or beside this one, or in PATH.
fn find(given: Option<&Path>, name: &str, hint: &str) -> anyhow::Result<PathBuf> {
    if let Some(path) = given {
        return path.canonicalize().with_context(|| format!("the program {}", path.display()));
    }
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(name)));
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&paths).map(|directory| directory.join(name));
    match beside.into_iter().chain(in_path).find(|path| path.is_file()) {
        Some(path) => Ok(path),
        None => bail!("there is no program {name}: {hint}"),
    }
}

/// The last line of `--version` on standard output.
fn version(program: &Path) -> String {
    let output = Command::new(program).arg("--version").output();
    let output = output.map(|output| output.stdout).unwrap_or_default();
    let output = String::from_utf8_lossy(&output);
    output.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn terms(transport: Transport) -> Terms {
        let certificate = Certificate { chain: "/run/c.pem".into(), key: "/run/c.key".into() };
        Terms {
            listen: "10.78.1.1:3478".parse().unwrap(),
            tls_listen: "10.78.1.1:5349".parse().unwrap(),
            transport,
            certificate: transport.has_certificates().then_some(certificate),
            relay: "10.78.2.1:0".parse().unwrap(),
            peer: "10.78.2.2:7000".parse().unwrap(),
            user: "bench".into(),
            secret: "0123456789abcdef0123456789abcdef".into(),
            realm: "bench".into(),
            ports: (10_000, 65_535),
            workers: 2,
        }
    }

    #[test]
    fn servers_are_named_by_preset_path_or_command() {
        let kind = |text: &str| text.parse::<ServerSpec>().map(|server| (server.name, server.kind));
        let named = |name: &str, kind| Ok((name.to_owned(), kind));
        let turnpike =
            |path: Option<&str>, options| ServerKind::Turnpike(path.map(Into::into), options);
        let coturn =
            |path: Option<&str>, options| ServerKind::Coturn(path.map(Into::into), options);
        assert_eq!(kind("turnpike"), named("turnpike", turnpike(None, TurnpikeOptions::Default)));
        let tc = named("turnpike-tc", turnpike(Some("/x"), TurnpikeOptions::Offload("tc")));
        assert_eq!(kind("turnpike-tc=/x"), tc);
        let prefix = named("turnpike-prefix", turnpike(None, TurnpikeOptions::Prefix));
        assert_eq!(kind("turnpike-prefix"), prefix);
        let other = named("turnpike", turnpike(Some("/x/y"), TurnpikeOptions::Default));
        assert_eq!(kind("turnpike=/x/y"), other);
        assert_eq!(kind("coturn"), named("coturn", coturn(None, CoturnOptions::Default)));
        let fastest = named("coturn-fastest", coturn(Some("/x"), CoturnOptions::Fastest));
        assert_eq!(kind("coturn-fastest=/x"), fastest);
        assert_eq!(kind("bare"), named("bare", ServerKind::Bare));
        let line = "/bin/turn --listen={listen} --secret {secret}";
        let pion = named("pion", ServerKind::Command(line.into()));
        assert_eq!(kind(&format!("pion={line}")), pion);
        for wrong in ["", "pion", "=x", "pion=", "a b=c", "pion=x {nonsense} {secret}"] {
            assert!(kind(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn equal_names_are_numbered() {
        let mut servers: Vec<ServerSpec> = ["turnpike", "coturn", "turnpike=/a", "turnpike=/b"]
            .map(|text| text.parse().unwrap())
            .into();
        make_names_unique(&mut servers);
        let names: Vec<_> = servers.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["turnpike", "coturn", "turnpike-2", "turnpike-3"]);
    }

    #[test]
    fn programs_are_found_or_missed_with_a_hint() {
        assert!(find(None, "sh", "").unwrap().is_absolute());
        let error = find(None, "no-such-program", "install it").unwrap_err().to_string();
        assert!(error.contains("no-such-program") && error.contains("install it"));
        assert!(find(Some(Path::new("/no/such")), "sh", "").is_err());
    }

    #[test]
    fn every_placeholder_is_filled_and_unknown_ones_are_named() {
        let line = PLACEHOLDERS.map(|name| format!("{{{name}}}")).join(" ");
        check(&line).unwrap();
        assert_eq!(
            terms(Transport::Tls).fill(&line),
            "10.78.1.1:3478 10.78.1.1:5349 /run/c.pem /run/c.key 10.78.2.1 10.78.2.2:7000 bench \
             0123456789abcdef0123456789abcdef 0123456789abcdef0123456789abcdef bench 10000 65535 2"
        );
        assert!(check("x {secret} {sekret}").unwrap_err().contains("{sekret}"));
        assert!(check("x {secret").is_err() && check("x {listen}").is_err());
    }

    #[test]
    fn turnpike_gets_the_terms_without_limits() {
        let lines = |transport, options| -> Vec<String> {
            let text = turnpike_toml(&terms(transport), options, Path::new("/run/bench"));
            text.lines().map(str::to_owned).collect()
        };
        let has = |lines: &[String], wanted: &[&str]| {
            wanted.iter().for_each(|line| assert!(lines.iter().any(|it| it == line), "{line}"));
        };
        let udp = lines(Transport::Udp, TurnpikeOptions::Offload("tc"));
        let network = ["listen = ['10.78.1.1:3478']", "addresses = ['10.78.2.1']"];
        has(&udp, &network);
        has(
            &udp,
            &["ports = '10000-65535'", "allow = ['10.79.0.0/16']", "count = 2", "mode = 'tc'"],
        );
        has(&udp, &["directory = '/run/bench/data'"]);
        assert!(!udp.iter().any(|line| line == "[tcp]" || line == "[tls]"));
        let prefix = lines(Transport::Udp, TurnpikeOptions::Prefix);
        has(&prefix, &["prefixes = ['10.80.0.0/16']", "mode = 'off'"]);
        let certificates = "certificates = [{ chain = '/run/c.pem', key = '/run/c.key' }]";
        let tls = lines(Transport::Tls, TurnpikeOptions::Default);
        has(&tls, &["connections_per_address = 0", "listen = ['10.78.1.1:5349']", certificates]);
        let dtls = lines(Transport::Dtls, TurnpikeOptions::Default);
        has(&dtls, &["sessions_per_address = 0", certificates]);
        assert!(!dtls.iter().any(|line| line == "[tcp]"));
    }
}
