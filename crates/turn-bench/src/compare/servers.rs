//! The servers that can be compared, and how each is started.
//!
//! All are given the same: one listener, one relay address, the same ports, the same shared secret
//! for time-limited credentials, as many relaying threads as there are cores for the server, and
//! no limits on allocations, rates, connections or requests of strangers. Transports that clients are
//! not measured over are off where the server has a switch for them; for TLS all have the same
//! certificate. All else is as each server has it by default, logs included, which go
//! to a file of the run.

mod coturn;
mod custom;
mod turnpike;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, bail};

use super::certificate::Certificate;
use crate::traffic::Transport;

/// A server as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSpec {
    /// What tables call it.
    pub name: String,
    /// Which it is.
    pub kind: ServerKind,
}

/// What is known of how to start a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// Turnpike: this binary, or the one beside this program, or the one in PATH; by this path, of
    /// those of its setting `offload.mode`, or by the one that it chooses.
    Turnpike(Option<PathBuf>, Option<&'static str>),
    /// coturn: this binary, or `turnserver` in PATH.
    Coturn(Option<PathBuf>),
    /// None: a kernel forwarder that knows nothing of TURN takes what is relayed from link to link. It is
    /// what all others could be at most. (Turnpike beside it opens the sessions.)
    Bare,
    /// A line of shell with places to be filled in.
    Command(String),
}

impl FromStr for ServerSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, what) = match text.split_once('=') {
            Some((name, what)) => (name, Some(what.trim())),
            None => (text, None),
        };
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
        if name.is_empty() || !name.chars().all(fine) || what == Some("") {
            return Err(format!(
                "{text:?}: write turnpike, coturn, turnpike=PATH, coturn=PATH or NAME=COMMAND"
            ));
        }
        let path = what.map(PathBuf::from);
        let kind = match (name, what) {
            ("turnpike", _) => ServerKind::Turnpike(path, None),
            ("turnpike-sockets", _) => ServerKind::Turnpike(path, Some("off")),
            ("turnpike-tc", _) => ServerKind::Turnpike(path, Some("tc")),
            ("turnpike-xdp", _) => ServerKind::Turnpike(path, Some("xdp")),
            ("turnpike-xdp-generic", _) => ServerKind::Turnpike(path, Some("xdp-generic")),
            ("coturn", _) => ServerKind::Coturn(path),
            ("bare", None) => ServerKind::Bare,
            (_, Some(command)) => {
                custom::check(command)?;
                ServerKind::Command(command.to_owned())
            }
            (_, None) => {
                return Err(format!(
                    "{name} is not a server that is known here (turnpike, turnpike-sockets, \
                     turnpike-tc, turnpike-xdp, turnpike-xdp-generic, coturn and bare are): write \
                     NAME=COMMAND"
                ));
            }
        };
        Ok(Self { name: name.to_owned(), kind })
    }
}

/// Gives servers of one name numbers, from the second on.
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

/// What every server is given.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// Where it listens.
    pub(crate) listen: SocketAddr,
    /// Where it listens for TLS.
    pub(crate) tls_listen: SocketAddr,
    /// What clients are connected by.
    pub(crate) transport: Transport,
    /// For TLS.
    pub(crate) certificate: Option<Certificate>,
    /// Where it relays, but for the port.
    pub(crate) relay: SocketAddr,
    /// Whom clients want to reach.
    pub(crate) peer: SocketAddr,
    /// A user, for servers that know no shared secrets.
    pub(crate) user: String,
    /// The user's password.
    pub(crate) password: String,
    /// For time-limited credentials.
    pub(crate) secret: String,
    /// The realm.
    pub(crate) realm: String,
    /// Ports of relayed addresses, first and last.
    pub(crate) ports: (u16, u16),
    /// Threads that relay.
    pub(crate) workers: usize,
}

impl Terms {
    /// Where clients of the measured transport go.
    pub(crate) const fn clients_connect_to(&self) -> SocketAddr {
        match self.transport {
            Transport::Udp | Transport::Tcp => self.listen,
            Transport::Tls | Transport::Tls12 | Transport::Dtls => self.tls_listen,
        }
    }
}

/// A server that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prepared {
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
    /// The configuration file, if it was given one.
    pub(crate) configuration: Option<String>,
    /// What it says of its version.
    pub(crate) version: String,
    /// Whether it knows the shared secret; else it knows the user and the password.
    pub(crate) knows_secret: bool,
}

impl ServerSpec {
    /// Writes what the server needs into a directory of its own.
    ///
    /// # Errors
    /// The program is not there; the directory cannot be written.
    pub(crate) fn prepare(&self, terms: &Terms, directory: &Path) -> anyhow::Result<Prepared> {
        match &self.kind {
            ServerKind::Turnpike(path, offload) => {
                turnpike::prepare(path.as_deref(), *offload, terms, directory)
            }
            ServerKind::Bare => turnpike::prepare(None, Some("off"), terms, directory)
                .map(|prepared| Prepared { version: "a kernel forwarder".to_owned(), ..prepared }),
            ServerKind::Coturn(path) => coturn::prepare(path.as_deref(), terms, directory),
            ServerKind::Command(line) => Ok(custom::prepare(line, terms)),
        }
        .with_context(|| format!("preparing the server {}", self.name))
    }
}

impl fmt::Display for ServerSpec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)
    }
}

/// The program `name`: as given, or beside this one where it comes with it, or in PATH.
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

/// What a program says when asked for its version: the last line of it, on standard output.
fn version(program: &Path) -> String {
    let output = std::process::Command::new(program).arg("--version").output();
    let said = output.map(|output| output.stdout).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
}

/// The same, for clients over TLS.
#[cfg(test)]
pub(crate) fn tls_terms() -> Terms {
    let certificate = Certificate { chain: "/run/c.pem".into(), key: "/run/c.key".into() };
    Terms { transport: Transport::Tls, certificate: Some(certificate), ..terms() }
}

/// Terms for tests.
#[cfg(test)]
pub(crate) fn terms() -> Terms {
    Terms {
        listen: "10.78.1.1:3478".parse().unwrap(),
        tls_listen: "10.78.1.1:5349".parse().unwrap(),
        transport: Transport::Udp,
        certificate: None,
        relay: "10.78.2.1:0".parse().unwrap(),
        peer: "10.78.2.2:7000".parse().unwrap(),
        user: "bench".into(),
        password: "password".into(),
        secret: "0123456789abcdef0123456789abcdef".into(),
        realm: "bench".into(),
        ports: (10_000, 65_535),
        workers: 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_preset_path_or_command() {
        let kind = |text: &str| text.parse::<ServerSpec>().map(|server| (server.name, server.kind));
        let named = |name: &str, kind| Ok((name.to_owned(), kind));
        assert_eq!(kind("turnpike"), named("turnpike", ServerKind::Turnpike(None, None)));
        assert_eq!(
            kind("turnpike-tc=/x"),
            named("turnpike-tc", ServerKind::Turnpike(Some("/x".into()), Some("tc")))
        );
        assert_eq!(
            kind("turnpike=/x/y"),
            named("turnpike", ServerKind::Turnpike(Some("/x/y".into()), None))
        );
        assert_eq!(kind("coturn"), named("coturn", ServerKind::Coturn(None)));
        assert_eq!(kind("bare"), named("bare", ServerKind::Bare));
        assert_eq!(
            kind("pion=/bin/turn --listen={listen} --secret {secret}"),
            named(
                "pion",
                ServerKind::Command("/bin/turn --listen={listen} --secret {secret}".into())
            )
        );
        for wrong in ["", "pion", "=x", "pion=", "a b=c", "pion=x {nonsense} {secret}"] {
            assert!(kind(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_is_given_once() {
        let mut servers: Vec<ServerSpec> = ["turnpike", "coturn", "turnpike=/a", "turnpike=/b"]
            .map(|text| text.parse().unwrap())
            .into();
        make_names_unique(&mut servers);
        let names: Vec<_> = servers.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["turnpike", "coturn", "turnpike-2", "turnpike-3"]);
    }

    #[test]
    fn programs_are_looked_for_and_missed() {
        assert!(find(None, "sh", "").unwrap().is_absolute());
        let error = find(None, "no-such-program", "install it").unwrap_err().to_string();
        assert!(error.contains("no-such-program") && error.contains("install it"));
        assert!(find(Some(Path::new("/no/such")), "sh", "").is_err());
    }
}
