//! TLS as a client that measures: one version and one cipher at a time, one exchange of keys, and whatever
//! certificate there is.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme,
    SupportedCipherSuite, SupportedProtocolVersion,
};

/// Made once: all connections of a version offer the same.
static TLS13: LazyLock<Result<Arc<ClientConfig>, Error>> = LazyLock::new(|| {
    let suite = aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    config(&rustls::version::TLS13, suite, aws_lc_rs::kx_group::X25519)
});
static TLS12: LazyLock<Result<Arc<ClientConfig>, Error>> = LazyLock::new(|| {
    let suite = aws_lc_rs::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    // In TLS 1.2 a certificate has to be on one of the curves that are offered (RFC 8422, 5.1).
    config(&rustls::version::TLS12, suite, aws_lc_rs::kx_group::SECP256R1)
});

/// Which version is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// A connection that begins with the next bytes.
pub(super) fn connection(server: IpAddr, version: Version) -> io::Result<ClientConnection> {
    let config = match version {
        Version::Tls12 => TLS12.clone(),
        Version::Tls13 => TLS13.clone(),
    };
    let config = config.map_err(io::Error::other)?;
    let mut connection =
        ClientConnection::new(config, ServerName::from(server)).map_err(io::Error::other)?;
    // Whoever hands in messages has bounds of his own, and wants them taken whole.
    connection.set_buffer_limit(None);
    Ok(connection)
}

fn config(
    version: &'static SupportedProtocolVersion,
    suite: SupportedCipherSuite,
    group: &'static dyn SupportedKxGroup,
) -> Result<Arc<ClientConfig>, Error> {
    let provider = CryptoProvider {
        cipher_suites: vec![suite],
        kx_groups: vec![group],
        ..aws_lc_rs::default_provider()
    };
    let schemes = provider.signature_verification_algorithms.supported_schemes();
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(schemes)))
        .with_no_client_auth();
    // Each handshake is a whole one, whatever the server remembers.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Takes every certificate, with signatures of these schemes.
#[derive(Debug)]
struct Anybody(Vec<SignatureScheme>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use rustls::{CipherSuite, NamedGroup};

    use super::*;

    #[test]
    fn nothing_is_offered_but_what_results_say() {
        let offered = |config: &LazyLock<Result<Arc<ClientConfig>, Error>>| {
            let provider = Arc::clone(config.as_ref().unwrap().crypto_provider());
            let groups: Vec<_> = provider.kx_groups.iter().map(|group| group.name()).collect();
            let suites: Vec<_> = provider.cipher_suites.iter().map(|suite| suite.suite()).collect();
            (suites, groups)
        };
        let (suite, group) = (CipherSuite::TLS13_AES_128_GCM_SHA256, NamedGroup::X25519);
        assert_eq!(offered(&TLS13), (vec![suite], vec![group]));
        let suite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
        assert_eq!(offered(&TLS12), (vec![suite], vec![NamedGroup::secp256r1]));
        for version in [Version::Tls12, Version::Tls13] {
            connection("127.0.0.1".parse().unwrap(), version).unwrap();
        }
    }
}
