//! Certificate authorities that are trusted.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Maximum bytes of a file of authorities. The bundles of distributions have 300 KiB.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Certificate authorities that are trusted to sign the certificate of a service. Cheap to clone.
#[derive(Clone)]
pub struct Roots(Arc<RootCertStore>);

/// A file of certificates that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct RootsError {
    path: PathBuf,
    why: String,
}

impl Roots {
    /// The ones that browsers trust (Mozilla's list, as of the build).
    #[must_use]
    pub fn public() -> Self {
        Self(Arc::new(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }))
    }

    /// The ones of a PEM file, for an authority of one's own. They replace the public ones.
    ///
    /// # Errors
    /// The file cannot be read, or has no certificate.
    pub fn read(path: &Path) -> Result<Self, RootsError> {
        let refused = |why: String| RootsError { path: path.to_owned(), why };
        let pem = atomic_file::read(path, FILE_BYTES_MAX);
        let pem = pem.map_err(|error| refused(error.to_string()))?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| refused(error.to_string()))?;
            roots.add(certificate).map_err(|error| refused(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(refused("no certificate found (expected PEM)".to_owned()));
        }
        Ok(Self(Arc::new(roots)))
    }

    pub(crate) fn store(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.0)
    }
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Roots({})", self.0.len())
    }
}
