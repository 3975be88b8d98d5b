//! A certificate for the servers of a run, made by `openssl`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

/// Days that it is good for: longer than any comparison.
const DAYS: &str = "7";

/// A certificate that signs itself, with a key on the curve P-256, which costs a server least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificate {
    /// The file with the certificate, as PEM.
    pub(crate) chain: PathBuf,
    /// The file with its key.
    pub(crate) key: PathBuf,
}

impl Certificate {
    /// Makes one in this directory.
    ///
    /// # Errors
    /// There is no `openssl`, or it could not make one.
    pub(crate) fn make(directory: &Path) -> anyhow::Result<Self> {
        let (chain, key) = (directory.join("certificate.pem"), directory.join("certificate.key"));
        let output = Command::new("openssl")
            .args(["req", "-x509", "-nodes", "-sha256", "-days", DAYS])
            .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
            .args(["-subj", "/CN=turn.example.org"])
            .args(["-addext", "subjectAltName=DNS:turn.example.org"])
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&chain)
            .output()
            .context("openssl, which makes certificates (Debian's package openssl has it)")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "openssl made no certificate: {}", said.trim());
        Ok(Self { chain, key })
    }
}
