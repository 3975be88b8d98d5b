//! Certificates that sign themselves, made by `openssl`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::{Host, Lab, Tool};

/// A key on an elliptic curve.
pub const ECDSA: &[&str] = &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];

/// A key type of old clients.
pub const RSA: &[&str] = &["-newkey", "rsa:2048"];

/// Longest time to make a certificate: RSA searches for primes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Certificates in a temporary directory.
#[derive(Debug)]
pub struct Certificates(PathBuf);

impl Certificates {
    /// None yet.
    ///
    /// # Panics
    /// There can be no directory.
    #[must_use]
    pub fn new(lab: &Lab) -> Self {
        let directory = std::env::temp_dir().join(format!("{}-tls", lab.namespace(Host::Server)));
        drop(fs::remove_dir_all(&directory));
        fs::create_dir_all(&directory).expect("a directory");
        Self(directory)
    }

    /// Makes `FILE.pem` and `FILE.key` for these names, separated by blanks, replacing existing
    /// files.
    ///
    /// # Panics
    /// `openssl` fails.
    pub fn make(&self, file: &str, names: &str, kind: &[&str], days: &str) {
        let path = |end: &str| self.path(&format!("{file}.{end}"));
        let names: Vec<String> = names.split(' ').map(|name| format!("DNS:{name}")).collect();
        let made = Tool::run(
            Command::new("openssl")
                .args(["req", "-x509", "-nodes", "-sha256", "-days", days])
                .args(kind)
                .args(["-subj", &format!("/CN={file}")])
                .args(["-addext", &format!("subjectAltName={}", names.join(","))])
                .arg("-keyout")
                .arg(path("key.new"))
                .arg("-out")
                .arg(path("pem.new")),
            PATIENCE,
        );
        assert!(made.ok, "{}", made.output);
        for end in ["key", "pem"] {
            fs::rename(path(&format!("{end}.new")), path(end)).expect("renamed");
        }
    }

    /// Makes `FILE.pem` and `FILE.key` with these lines of extensions, signed by another of the
    /// directory.
    ///
    /// # Panics
    /// `openssl` fails.
    pub fn sign(&self, file: &str, by: &str, extensions: &str, days: &str) {
        let path = |end: &str| self.path(&format!("{file}.{end}"));
        fs::write(path("ext"), extensions).expect("written");
        let run = |command: &mut Command| {
            let made = Tool::run(command, PATIENCE);
            assert!(made.ok, "{}", made.output);
        };
        run(Command::new("openssl")
            .args(["req", "-new", "-nodes"])
            .args(ECDSA)
            .args(["-subj", &format!("/CN={file}")])
            .arg("-keyout")
            .arg(path("key"))
            .arg("-out")
            .arg(path("csr")));
        run(Command::new("openssl")
            .args(["x509", "-req", "-sha256", "-CAcreateserial", "-days", days])
            .arg("-in")
            .arg(path("csr"))
            .arg("-CA")
            .arg(self.path(&format!("{by}.pem")))
            .arg("-CAkey")
            .arg(self.path(&format!("{by}.key")))
            .arg("-extfile")
            .arg(path("ext"))
            .arg("-out")
            .arg(path("pem")));
    }

    /// Makes a file of several certificates.
    ///
    /// # Panics
    /// One of them cannot be read.
    pub fn chain(&self, file: &str, of: &[&str]) {
        let read = |name: &&str| fs::read_to_string(self.path(&format!("{name}.pem")));
        let chain: Vec<String> = of.iter().map(|name| read(name).expect("read")).collect();
        fs::write(self.path(&format!("{file}.pem")), chain.concat()).expect("written");
    }

    /// One for `turn.example.org`, and the lines of a configuration that put it in force.
    #[must_use]
    pub fn simple(&self) -> String {
        self.make("turn", "turn.example.org", ECDSA, "90");
        format!("[tls]\ncertificates = [{}]\n", self.entry("turn"))
    }

    /// A file of the directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// An entry of `tls.certificates`.
    #[must_use]
    pub fn entry(&self, file: &str) -> String {
        let path = |end: &str| self.path(&format!("{file}.{end}")).display().to_string();
        format!("{{ chain = \"{}\", key = \"{}\" }}", path("pem"), path("key"))
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}
