//! Responses to challenges of a certificate authority that verifies this host's names (RFC 8555
//! §8).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ClientHello;
use rustls::sign::CertifiedKey;

use super::{CertificateError, provider};

/// Application protocol of a certificate authority that verifies a name over TLS (RFC 8737 §4).
pub(crate) const ACME_TLS: &[u8] = b"acme-tls/1";

/// Responses to pending challenges. Empty except while a certificate is ordered.
#[derive(Default)]
pub struct Challenges(RwLock<Pending>);

#[derive(Default)]
struct Pending {
    /// Key authorizations by token (HTTP-01, RFC 8555 §8.3).
    http: BTreeMap<String, String>,
    /// Certificates by name in lower case (TLS-ALPN-01, RFC 8737 §3).
    tls: BTreeMap<String, Arc<CertifiedKey>>,
}

impl Challenges {
    /// Adds the response to an HTTP-01 challenge (RFC 8555 §8.3).
    pub fn answer_http(&self, token: String, key_authorization: String) {
        self.change(|pending| drop(pending.http.insert(token, key_authorization)));
    }

    /// Adds the response to a TLS-ALPN-01 challenge for a name: a certificate and its key. The
    /// certificate contains the digest of the key authorization (RFC 8737 §3).
    ///
    /// # Errors
    /// The key has a type that the server does not support.
    pub fn answer_tls(
        &self,
        name: &str,
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
    ) -> Result<(), CertificateError> {
        let key =
            provider().key_provider.load_private_key(key).map_err(CertificateError::Unusable)?;
        let answer = Arc::new(CertifiedKey::new(vec![certificate], key));
        self.change(|pending| drop(pending.tls.insert(name.to_ascii_lowercase(), answer)));
        Ok(())
    }

    /// Removes all responses.
    pub fn clear(&self) {
        self.change(|pending| *pending = Pending::default());
    }

    /// Returns the response to an HTTP-01 challenge with this token, if pending.
    #[must_use]
    pub fn key_authorization(&self, token: &str) -> Option<String> {
        let pending = self.0.read().unwrap_or_else(PoisonError::into_inner);
        pending.http.get(token).cloned()
    }

    /// Returns true if an HTTP-01 response is pending.
    pub(crate) fn has_http(&self) -> bool {
        !self.0.read().unwrap_or_else(PoisonError::into_inner).http.is_empty()
    }

    /// Returns true if a TLS-ALPN-01 response is pending.
    pub(crate) fn has_tls(&self) -> bool {
        !self.0.read().unwrap_or_else(PoisonError::into_inner).tls.is_empty()
    }

    /// Returns the certificate that responds to a TLS-ALPN-01 challenge. Only for handshakes of an
    /// [authority](is_authority): other clients must not receive the certificate (RFC 8737 §3).
    pub(crate) fn choose(&self, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let pending = self.0.read().unwrap_or_else(PoisonError::into_inner);
        pending.tls.get(&hello.server_name()?.to_ascii_lowercase()).map(Arc::clone)
    }

    fn change(&self, change: impl FnOnce(&mut Pending)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl fmt::Debug for Challenges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Challenges").finish_non_exhaustive()
    }
}

/// Returns true if the client is a certificate authority that verifies a name. Such a client offers
/// only the protocol [`ACME_TLS`] (RFC 8737 §3).
pub(crate) fn is_authority(hello: &ClientHello<'_>) -> bool {
    hello
        .alpn()
        .is_some_and(|mut offered| offered.next() == Some(ACME_TLS) && offered.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_its_own_answer_until_all_are_removed() {
        let challenges = Challenges::default();
        assert!(!challenges.has_http());
        for (token, answer) in [("one", "one.key"), ("two", "two.key")] {
            challenges.answer_http(token.to_owned(), answer.to_owned());
        }
        assert!(challenges.has_http() && !challenges.has_tls());
        assert_eq!(challenges.key_authorization("two").as_deref(), Some("two.key"));
        assert_eq!(challenges.key_authorization("three"), None);
        challenges.clear();
        assert!(!challenges.has_http());
        assert_eq!(challenges.key_authorization("two"), None);
    }
}
