//! A lab with a server that has certificates: for TLS and DTLS.

use crate::certificates::{ECDSA, RSA};
use crate::{Certificates, Config, Lab, Server, require};

/// Certificates for `turn.example.org` of both kinds of keys, and one for `other.example.org` and
/// its subdomains.
#[derive(Debug)]
pub struct SecureScene {
    /// The hosts.
    pub lab: Lab,
    /// The certificates, in the order `turn`, `turn-rsa`, `other`.
    pub files: Certificates,
    /// The server.
    pub server: Server,
}

impl SecureScene {
    /// Adds lines to `[tls]`; `DIR` in them is the directory of the files. `None` without the
    /// tools, after reporting a skip.
    #[must_use]
    pub fn with(more: &str) -> Option<Self> {
        Self::started_by(&[], more)
    }

    /// Starts the server by a command, such as a service manager's; directly without one.
    #[must_use]
    pub fn started_by(through: &[String], more: &str) -> Option<Self> {
        let lab = require(Lab::new())?;
        let files = Certificates::new(&lab);
        files.make("turn", "turn.example.org", ECDSA, "90");
        files.make("turn-rsa", "turn.example.org", RSA, "90");
        files.make("other", "other.example.org *.other.example.org", ECDSA, "90");
        let mut config = Config { through: through.to_vec(), ..Config::for_lab(&lab) };
        let entries = ["turn", "turn-rsa", "other"].map(|file| files.entry(file)).join(", ");
        let more = more.replace("DIR", &files.path("").display().to_string());
        config.tables = format!("[tls]\ncertificates = [{entries}]\n{more}\n");
        let server = Server::start(&lab, &config);
        Some(Self { lab, files, server })
    }
}
