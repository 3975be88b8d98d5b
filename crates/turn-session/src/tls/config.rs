//! Configuration of TLS connections.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoClientAuth, NoServerSessionStorage, ResolvesServerCert, ServerConfig,
    WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;

use crate::certificates::{ACME_TLS, ALPN, CertificateError, Certificates, ClientAuthorities};
use crate::tls_rules::TlsRules;

/// Configuration of all TLS connections: certificates and protocol options.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    pub(super) config: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
}

impl TlsConfig {
    /// Returns true if there is a certificate for clients, or for an authority that verifies a
    /// name. Handshakes fail without a certificate.
    #[must_use]
    pub fn can_serve(&self) -> bool {
        !self.certificates.is_empty() || self.certificates.challenges().has_tls()
    }

    /// Returns true if an HTTP-01 challenge from an authority is expected.
    #[must_use]
    pub fn expects_challenge(&self) -> bool {
        self.certificates.challenges().has_http()
    }

    /// Returns the response to an authority's HTTP-01 challenge with this token, if pending (RFC
    /// 8555 §8.3).
    #[must_use]
    pub fn key_authorization(&self, token: &str) -> Option<String> {
        self.certificates.challenges().key_authorization(token)
    }
}

/// Creates the configuration of all TLS connections. With `authorities`, clients must present a
/// certificate signed by one of the authorities.
///
/// # Errors
/// The cryptography of this build lacks a feature, or an authority is invalid.
pub fn tls_config(
    certificates: Arc<Certificates>,
    authorities: Option<ClientAuthorities>,
    rules: &TlsRules,
) -> Result<TlsConfig, CertificateError> {
    let mut config = server_config(&certificates, authorities, rules)?;
    config.alpn_protocols = ALPN.iter().chain([&ACME_TLS]).map(|name| name.to_vec()).collect();
    Ok(TlsConfig { config: Arc::new(config), certificates })
}

/// Creates the configuration of TLS connections that carry HTTP/1.1, with the same certificates.
/// With `authorities`, clients must present a certificate, as for [`tls_config`].
///
/// # Errors
/// The errors of [`tls_config`].
pub fn https_config(
    certificates: &Arc<Certificates>,
    authorities: Option<ClientAuthorities>,
) -> Result<Arc<ServerConfig>, CertificateError> {
    let mut config = server_config(certificates, authorities, &TlsRules::default())?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn server_config(
    certificates: &Arc<Certificates>,
    authorities: Option<ClientAuthorities>,
    rules: &TlsRules,
) -> Result<ServerConfig, CertificateError> {
    let chooser = Arc::new(Chooser(Arc::clone(certificates)));
    let provider = Arc::new(rules.provider());
    let requires_certificates = authorities.is_some();
    let clients: Arc<dyn ClientCertVerifier> = match authorities {
        None => Arc::new(NoClientAuth),
        Some(ClientAuthorities(roots)) => {
            WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build()?
        }
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(rules.versions.rustls())
        .map_err(CertificateError::Unusable)?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(chooser);
    // `Tls::leave` exports the keys to the successor.
    config.enable_secret_extraction = true;
    if requires_certificates {
        // A resumed session has no certificate to verify, and the earlier certificate may have
        // expired.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    } else {
        config.ticketer = aws_lc_rs::Ticketer::new().map_err(CertificateError::Unusable)?;
    }
    Ok(config)
}

#[derive(Debug)]
struct Chooser(Arc<Certificates>);

impl ResolvesServerCert for Chooser {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.choose(&hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_clients_present_certificates_no_session_is_resumed() {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["ca.example".to_owned()]).unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let config = |authorities| {
            server_config(&Arc::default(), authorities, &TlsRules::default()).unwrap()
        };
        let resumes =
            |config: &ServerConfig| config.ticketer.enabled() || config.session_storage.can_cache();
        assert!(resumes(&config(None)));
        let authorities = ClientAuthorities::read(pem.as_bytes()).unwrap();
        let config = config(Some(authorities));
        assert!(!resumes(&config) && config.send_tls13_tickets == 0);
    }
}
