//! A certificate for the servers of a comparison.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};

/// A self-signed certificate with a key on P-256, the cheapest for servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificate {
    /// File of the certificate, as PEM.
    pub(crate) chain: PathBuf,
    /// File of its key.
    pub(crate) key: PathBuf,
}

impl Certificate {
    /// Creates one in this directory.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub(crate) fn make(directory: &Path) -> anyhow::Result<Self> {
        let (chain, key) = (directory.join("certificate.pem"), directory.join("certificate.key"));
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).context("a key")?;
        let params = rcgen::CertificateParams::new(vec!["turn.example.org".to_owned()]);
        let certificate =
            params.and_then(|params| params.self_signed(&pair)).context("a certificate")?;
        fs::write(&chain, certificate.pem()).context("writing the certificate")?;
        fs::write(&key, pair.serialize_pem()).context("writing the key")?;
        Ok(Self { chain, key })
    }
}
