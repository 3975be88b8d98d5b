//! Certificates of the server, and their selection for a handshake.

mod challenges;
mod identity;
mod labels;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use openssl::pkey::PKey;
use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, VerifierBuilderError};
use rustls::sign::CertifiedKey;
use webpki::EndEntityCert;
use x509_parser::parse_x509_certificate;

pub(crate) use self::challenges::ACME_TLS;
pub use self::challenges::Challenges;
use self::challenges::is_authority;
use self::identity::Identity;
pub use self::labels::with_usual_labels;

/// Application protocols that clients may offer in the handshake (RFC 7443 §5). Clients that offer
/// none are accepted too.
pub(crate) const ALPN: [&[u8]; 2] = [b"stun.turn", b"stun.nat-discovery"];

/// Reason why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The chain contains no certificate.
    #[error("no certificate found (expected PEM: -----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    /// A part of the chain cannot be read.
    #[error("invalid PEM: {0}")]
    Chain(rustls::pki_types::pem::Error),
    /// The key cannot be read.
    #[error("its key cannot be read (PEM): {0}")]
    Key(rustls::pki_types::pem::Error),
    /// Key and certificate do not match, or have a type that the server does not support.
    #[error("{0}")]
    Unusable(rustls::Error),
    /// The authorities for client certificates are unusable.
    #[error("{0}")]
    Authorities(#[from] VerifierBuilderError),
    /// OpenSSL, the DTLS library, rejects the certificate or the key.
    #[error("it cannot be used for DTLS: {0}")]
    UnusableForDtls(openssl::error::ErrorStack),
    /// The key cannot be decrypted.
    #[error("its key cannot be decrypted with the password")]
    Password,
    /// The key is encrypted, and no password was provided.
    #[error("its key is encrypted")]
    Encrypted,
    /// The certificate is damaged.
    #[error("the certificate is damaged")]
    Damaged,
}

/// Certificate with its chain and private key.
#[derive(Clone, Debug)]
pub struct Certificate {
    key: Arc<CertifiedKey>,
    /// Chain and key in OpenSSL's form, for DTLS.
    identity: Identity,
    /// Start of validity, in seconds since 1970.
    starts: i64,
    /// Expiry, in seconds since 1970.
    expires: i64,
}

impl Certificate {
    /// Reads a chain, the server's own certificate first, and its unencrypted key, both as PEM.
    ///
    /// # Errors
    /// The chain or the key is invalid, they do not match, or the key is encrypted.
    pub fn read(pem: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        let pem = &*with_usual_labels(pem);
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<_, _>>()
            .map_err(CertificateError::Chain)?;
        let own = chain.first().ok_or(CertificateError::NoCertificate)?;
        let (_, parsed) = parse_x509_certificate(own).map_err(|_| CertificateError::Damaged)?;
        let validity = parsed.validity();
        let (starts, expires) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        if is_encrypted(key) {
            return Err(CertificateError::Encrypted);
        }
        let secret = PrivateKeyDer::from_pem_slice(key).map_err(CertificateError::Key)?;
        let signer = CertifiedKey::from_der(chain, secret, &provider())
            .map_err(CertificateError::Unusable)?;
        let identity = Identity::read(pem, key).map_err(CertificateError::UnusableForDtls)?;
        Ok(Self { key: Arc::new(signer), identity, starts, expires })
    }

    /// Reads a chain and its password-encrypted key, both as PEM.
    ///
    /// # Errors
    /// [`Self::read`] would fail for the decrypted key, or the password is wrong.
    pub fn read_encrypted(
        pem: &[u8],
        key: &[u8],
        password: &[u8],
    ) -> Result<Self, CertificateError> {
        let key = PKey::private_key_from_pem_passphrase(key, password)
            .and_then(|key| key.private_key_to_pem_pkcs8())
            .map_err(|_| CertificateError::Password)?;
        Self::read(pem, &key)
    }

    /// Returns the expiry, in seconds since 1970.
    #[must_use]
    pub const fn expires(&self) -> i64 {
        self.expires
    }

    /// Returns the start of validity, in seconds since 1970.
    #[must_use]
    pub const fn starts(&self) -> i64 {
        self.starts
    }

    /// Returns false if the chain has further certificates, and none of them has signed the
    /// server's own. No client could verify such a chain.
    #[must_use]
    pub fn is_signed_by_chain(&self) -> bool {
        self.identity.is_signed_by_chain()
    }

    /// Returns true if the certificate is valid for this name.
    #[must_use]
    pub fn is_for(&self, name: &str) -> bool {
        let (Ok(name), Some(own)) = (ServerName::try_from(name), self.key.cert.first()) else {
            return false;
        };
        EndEntityCert::try_from(own)
            .is_ok_and(|own| own.verify_is_valid_for_subject_name(&name).is_ok())
    }
}

/// Returns true if a PEM key is encrypted, as PKCS #8 or in OpenSSL's older format.
fn is_encrypted(key: &[u8]) -> bool {
    let marks: [&[u8]; 2] = [b"BEGIN ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED"];
    marks.iter().any(|mark| key.windows(mark.len()).any(|part| part == *mark))
}

/// Certificates in effect, chosen anew for each handshake. A replacement applies to new
/// connections; existing connections and the keys of session tickets are unaffected.
#[derive(Default)]
pub struct Certificates {
    /// The first certificate is the default, for clients without server name indication.
    certificates: RwLock<Vec<Certificate>>,
    challenges: Challenges,
}

impl Certificates {
    /// Replaces all certificates.
    pub fn replace(&self, certificates: Vec<Certificate>) {
        *self.certificates.write().unwrap_or_else(PoisonError::into_inner) = certificates;
    }

    /// Returns the pending challenges of a certificate authority, answered on the same ports.
    #[must_use]
    pub const fn challenges(&self) -> &Challenges {
        &self.challenges
    }

    /// Returns true if there is no certificate.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.certificates.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Returns certificates for a DTLS client: those that match the server name, or all if none
    /// matches. If several have the same type of key, only the first is returned.
    pub(crate) fn identities(&self, name: Option<&str>) -> Vec<Identity> {
        let certificates = self.certificates.read().unwrap_or_else(PoisonError::into_inner);
        let is_for = |certificate: &&Certificate| name.is_some_and(|name| certificate.is_for(name));
        let named = certificates.iter().any(|certificate| is_for(&certificate));
        let mut chosen: Vec<Identity> = Vec::new();
        for certificate in certificates.iter().filter(|certificate| !named || is_for(certificate)) {
            if chosen.iter().all(|other| other.kind() != certificate.identity.kind()) {
                chosen.push(certificate.identity.clone());
            }
        }
        chosen
    }

    pub(crate) fn choose(&self, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if is_authority(hello) {
            return self.challenges.choose(hello);
        }
        let certificates = self.certificates.read().unwrap_or_else(PoisonError::into_inner);
        // The client must support the type of key. A server can have a certificate for each type.
        let fits = |certificate: &&Certificate| {
            certificate.key.key.choose_scheme(hello.signature_schemes()).is_some()
        };
        let named = hello.server_name().and_then(|name| {
            certificates.iter().filter(fits).find(|certificate| certificate.is_for(name))
        });
        let chosen = named.or_else(|| certificates.iter().find(fits));
        chosen.map(|certificate| Arc::clone(&certificate.key))
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

/// Certificate authorities that sign the certificates of clients.
#[derive(Clone, Debug)]
pub struct ClientAuthorities(pub(crate) Arc<RootCertStore>);

impl ClientAuthorities {
    /// Reads the authorities' certificates, as PEM.
    ///
    /// # Errors
    /// A certificate is invalid, or the PEM contains no certificate.
    pub fn read(pem: &[u8]) -> Result<Self, CertificateError> {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(&with_usual_labels(pem)) {
            let authority = authority.map_err(CertificateError::Chain)?;
            roots.add(authority).map_err(CertificateError::Unusable)?;
        }
        if roots.is_empty() {
            return Err(CertificateError::NoCertificate);
        }
        Ok(Self(Arc::new(roots)))
    }
}

pub(crate) fn provider() -> CryptoProvider {
    aws_lc_rs::default_provider()
}
