//! Versions, cipher suites and key exchanges that clients offer: one of each per transport, with
//! any certificate accepted, so that all servers do the same work.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};

use client_driver::Endpoint;
use openssl::error::ErrorStack;
use openssl::ssl::{
    SslContext, SslMethod, SslOptions, SslSessionCacheMode, SslVerifyMode, SslVersion,
};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme, SupportedCipherSuite,
    SupportedProtocolVersion,
};

use crate::traffic::Transport;

static TLS13: LazyLock<Result<Arc<ClientConfig>, Error>> = LazyLock::new(|| {
    let suite = aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    config(&rustls::version::TLS13, suite, aws_lc_rs::kx_group::X25519)
});
static TLS12: LazyLock<Result<Arc<ClientConfig>, Error>> = LazyLock::new(|| {
    let suite = aws_lc_rs::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    // In TLS 1.2 a certificate has to be on one of the curves that are offered (RFC 8422, 5.1).
    config(&rustls::version::TLS12, suite, aws_lc_rs::kx_group::SECP256R1)
});
static DTLS: LazyLock<Result<SslContext, ErrorStack>> = LazyLock::new(dtls_context);

/// A server by this transport. Connections are reset when they are closed: the server frees their
/// state and the port is free at once.
///
/// # Errors
/// A cryptographic library of this host lacks something.
pub(crate) fn endpoint(
    server: SocketAddr,
    transport: Transport,
    local: Option<IpAddr>,
) -> io::Result<Endpoint> {
    let tls = |config: &LazyLock<Result<Arc<ClientConfig>, Error>>| {
        let config = (**config).clone().map_err(io::Error::other)?;
        Ok::<_, io::Error>(client_driver::Transport::Tls(config, ServerName::from(server.ip())))
    };
    let transport = match transport {
        Transport::Udp => client_driver::Transport::Udp,
        Transport::Tcp => client_driver::Transport::Tcp,
        Transport::Tls => tls(&TLS13)?,
        Transport::Tls12 => tls(&TLS12)?,
        Transport::Dtls => client_driver::Transport::Dtls(dtls()?),
    };
    Ok(Endpoint { local, reset: true, ..Endpoint::new(server, transport) })
}

/// The offer of DTLS clients.
///
/// # Errors
/// The OpenSSL of this host lacks something.
pub(crate) fn dtls() -> io::Result<SslContext> {
    DTLS.clone().map_err(|error| io::Error::other(format!("OpenSSL: {error}")))
}

fn dtls_context() -> Result<SslContext, ErrorStack> {
    let mut context = SslContext::builder(SslMethod::dtls())?;
    context.set_min_proto_version(Some(SslVersion::DTLS1_2))?;
    context.set_max_proto_version(Some(SslVersion::DTLS1_2))?;
    context.set_cipher_list("ECDHE-ECDSA-AES128-GCM-SHA256")?;
    context.set_groups_list("P-256")?;
    context.set_verify(SslVerifyMode::NONE);
    context.set_options(SslOptions::NO_QUERY_MTU | SslOptions::NO_TICKET);
    // No resumption, whatever the server remembers.
    context.set_session_cache_mode(SslSessionCacheMode::OFF);
    Ok(context.build())
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
        .with_custom_certificate_verifier(Arc::new(AcceptAny(schemes)))
        .with_no_client_auth();
    // No resumption, whatever the server remembers.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Accepts every certificate, with signatures of these schemes.
#[derive(Debug)]
struct AcceptAny(Vec<SignatureScheme>);

impl ServerCertVerifier for AcceptAny {
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
    fn the_offer_is_that_of_results() {
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
        dtls().unwrap();
    }
}
