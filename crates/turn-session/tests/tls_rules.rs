//! The choice of versions, cipher suites and key exchanges, and encrypted keys.

use std::sync::Arc;

use openssl::pkey::PKey;
use openssl::symm::Cipher;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite, kx_group};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};
use turn_session::{
    Certificate, CertificateError, Certificates, CipherSuite, KeyExchange, Tls, TlsRules,
    TlsVersions, tls_config,
};

fn chain_and_key() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["turn.example.org".to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

/// Returns true if the server accepts the hello of a client.
fn is_served(
    rules: &TlsRules,
    provider: CryptoProvider,
    version: &'static SupportedProtocolVersion,
) -> bool {
    let (chain, key) = chain_and_key();
    let certificates = Arc::new(Certificates::default());
    certificates.replace(vec![Certificate::read(chain.as_bytes(), key.as_bytes()).unwrap()]);
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from("turn.example.org").unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    let mut tls = Tls::new(&tls_config(certificates, None, rules).unwrap()).unwrap();
    tls.take(&hello, &mut [0; 64]).is_ok()
}

#[test]
fn a_client_of_tls_1_2_alone_is_refused_where_1_3_is_the_lowest() {
    for (versions, version, expected) in [
        (TlsVersions::From12, &rustls::version::TLS12, true),
        (TlsVersions::From12, &rustls::version::TLS13, true),
        (TlsVersions::Only13, &rustls::version::TLS12, false),
        (TlsVersions::Only13, &rustls::version::TLS13, true),
    ] {
        let rules = TlsRules { versions, ..TlsRules::default() };
        let served = is_served(&rules, aws_lc_rs::default_provider(), version);
        assert_eq!(served, expected, "{versions:?} {version:?}");
    }
}

#[test]
fn a_client_without_a_suite_in_common_is_refused() {
    let offers =
        |suite| CryptoProvider { cipher_suites: vec![suite], ..aws_lc_rs::default_provider() };
    let rules = TlsRules {
        cipher_suites: vec![CipherSuite::Aes256, CipherSuite::EcdsaAes256],
        ..TlsRules::default()
    };
    let served = |suite, version| is_served(&rules, offers(suite), version);
    let (v12, v13) = (&rustls::version::TLS12, &rustls::version::TLS13);
    assert!(served(cipher_suite::TLS13_AES_256_GCM_SHA384, v13));
    assert!(!served(cipher_suite::TLS13_AES_128_GCM_SHA256, v13));
    assert!(served(cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, v12));
    assert!(!served(cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, v12));
}

#[test]
fn a_client_without_a_group_in_common_is_refused() {
    let offers = |group| CryptoProvider { kx_groups: vec![group], ..aws_lc_rs::default_provider() };
    let rules = TlsRules { key_exchange: vec![KeyExchange::Secp384r1], ..TlsRules::default() };
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        assert!(is_served(&rules, offers(kx_group::SECP384R1), version));
        assert!(!is_served(&rules, offers(kx_group::X25519), version));
    }
}

#[test]
fn an_encrypted_key_is_read_with_its_password() {
    let (chain, key) = chain_and_key();
    let plain = PKey::private_key_from_pem(key.as_bytes()).unwrap();
    let encrypted =
        plain.private_key_to_pem_pkcs8_passphrase(Cipher::aes_256_cbc(), b"word").unwrap();
    let read = |word: &[u8]| Certificate::read_encrypted(chain.as_bytes(), &encrypted, word);
    assert!(read(b"word").is_ok());
    assert!(matches!(read(b"other"), Err(CertificateError::Password)));
    let without = Certificate::read(chain.as_bytes(), &encrypted);
    assert!(matches!(without, Err(CertificateError::Encrypted)));
}
