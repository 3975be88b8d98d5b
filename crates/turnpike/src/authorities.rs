//! Certificate authorities that this host trusts.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Usual paths of the host's trusted authorities.
const BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Reads the certificates of the host's trusted authorities, and those in the file `more`.
pub(crate) fn authorities(more: Option<&Path>) -> io::Result<Vec<CertificateDer<'static>>> {
    let mut all = Vec::new();
    for path in of_this_host().iter().map(PathBuf::as_path).chain(more) {
        let said = |error: &dyn std::fmt::Display| {
            io::Error::other(format!("{}: {error}", path.display()))
        };
        let certificates = CertificateDer::pem_file_iter(path).map_err(|error| said(&error))?;
        let certificates: Vec<_> = certificates.filter_map(Result::ok).collect();
        if certificates.is_empty() {
            return Err(said(&"there is no certificate in it"));
        }
        all.extend(certificates);
    }
    if all.is_empty() {
        return Err(io::Error::other("this host trusts no authority: name one with --ca"));
    }
    Ok(all)
}

fn of_this_host() -> Option<PathBuf> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    named.or_else(|| BUNDLES.iter().map(PathBuf::from).find(|path| path.exists()))
}

/// Returns true if this host trusts an authority with this subject name (DER).
pub(crate) fn knows(name: &[u8]) -> bool {
    static NAMES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let all = authorities(None).unwrap_or_default();
        let parsed = all.iter().filter_map(|der| X509Certificate::from_der(der).ok());
        parsed.map(|(_, one)| one.subject().as_raw().to_vec()).collect()
    });
    names.iter().any(|known| known == name)
}
