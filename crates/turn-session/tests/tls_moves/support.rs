//! Both sides of a connection in memory. The server's side moves.

use std::io::{Read as _, Write as _};
use std::sync::{Arc, OnceLock};

use rustls::crypto::aws_lc_rs::{self, ALL_CIPHER_SUITES, cipher_suite};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Error, RootCertStore, SupportedCipherSuite};
use state_format::{Reader, Value as _, Writer};
use turn_session::{
    Certificate, Certificates, Tls, TlsConfig, TlsError, TlsRules, TlsState, tls_config,
};

pub(crate) const NAME: &str = "turn.example.org";

/// Returns a server with certificates of both key types, and a root store that trusts the server.
pub(crate) fn server() -> &'static (TlsConfig, RootCertStore) {
    // Generating an RSA key is slow.
    static SERVER: OnceLock<(TlsConfig, RootCertStore)> = OnceLock::new();
    SERVER.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        let mut all = Vec::new();
        for kind in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_RSA_SHA256] {
            let key = rcgen::KeyPair::generate_for(kind).unwrap();
            let params = rcgen::CertificateParams::new([NAME.to_owned()]).unwrap();
            let made = params.self_signed(&key).unwrap();
            roots.add(made.der().clone()).unwrap();
            let key = key.serialize_pem();
            all.push(Certificate::read(made.pem().as_bytes(), key.as_bytes()).unwrap());
        }
        let certificates = Arc::new(Certificates::default());
        let config = tls_config(Arc::clone(&certificates), None, &TlsRules::default()).unwrap();
        certificates.replace(all);
        (config, roots)
    })
}

/// Returns suites of both versions, with both kinds of ciphers.
pub(crate) fn few_suites() -> [SupportedCipherSuite; 4] {
    [
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ]
}

pub(crate) struct Scene {
    pub(crate) tls: Option<Tls>,
    pub(crate) client: ClientConnection,
}

impl Scene {
    /// Returns both sides before a handshake that selects this cipher suite.
    pub(crate) fn before_handshake(suite: SupportedCipherSuite) -> Self {
        let (config, roots) = server();
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites = vec![suite];
        let client = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        let client =
            ClientConnection::new(Arc::new(client), ServerName::try_from(NAME).unwrap()).unwrap();
        Self { tls: Some(Tls::new(config).unwrap()), client }
    }

    /// Returns both sides after the handshake, with this cipher suite.
    pub(crate) fn new(suite: SupportedCipherSuite) -> Self {
        let mut scene = Self::before_handshake(suite);
        for _ in 0..3 {
            assert_eq!(scene.deliver_to_server(usize::MAX), b"");
            assert_eq!(scene.deliver_to_client(), b"");
        }
        assert!(scene.tls().is_agreed() && !scene.client.is_handshaking());
        scene
    }

    pub(crate) fn any() -> Self {
        Self::new(ALL_CIPHER_SUITES[0])
    }

    pub(crate) fn tls(&mut self) -> &mut Tls {
        self.tls.as_mut().unwrap()
    }

    /// Returns the state of the server's side, as another process receives it.
    pub(crate) fn leave(&mut self) -> Vec<u8> {
        let mut out = Writer::new();
        self.tls.take().unwrap().leave().unwrap().write(&mut out);
        out.into_bytes()
    }

    /// Asserts that the server's side cannot leave, and is unchanged.
    #[track_caller]
    pub(crate) fn assert_stays(&mut self) {
        let before = format!("{:?}", self.tls);
        self.tls = Some(self.tls.take().unwrap().leave().unwrap_err());
        assert_eq!(format!("{:?}", self.tls), before);
    }

    /// Moves the server's side to another process.
    pub(crate) fn moves(&mut self) {
        let state = self.leave();
        self.tls = Some(resume(&state));
        assert!(self.tls().is_agreed());
        assert_eq!(self.tls().server_name(), Some(NAME));
    }

    /// Returns ciphertext of the client.
    pub(crate) fn client_bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    /// Delivers ciphertext of the client, in pieces of this size; returns the plaintext.
    pub(crate) fn deliver_to_server(&mut self, piece: usize) -> Vec<u8> {
        let bytes = self.client_bytes();
        let mut heard = Vec::new();
        for piece in bytes.chunks(piece.min(bytes.len().max(1))) {
            heard.extend(self.take(piece).unwrap());
        }
        heard
    }

    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Vec<u8>, TlsError> {
        let mut room = vec![0; bytes.len() + (40 << 10)];
        let len = self.tls().take(bytes, &mut room)?;
        room.truncate(len);
        Ok(room)
    }

    /// Returns ciphertext of the server.
    pub(crate) fn server_bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.tls().wants_write() {
            self.tls().write_to(&mut bytes).unwrap();
        }
        bytes
    }

    /// Delivers ciphertext of the server; returns the plaintext.
    pub(crate) fn deliver_to_client(&mut self) -> Vec<u8> {
        let bytes = self.server_bytes();
        hear(&mut self.client, &bytes).unwrap()
    }

    /// Writes data of the client; returns the ciphertext.
    pub(crate) fn says(&mut self, data: &[u8]) -> Vec<u8> {
        self.client.writer().write_all(data).unwrap();
        self.client_bytes()
    }

    /// Asserts that data passes in both directions.
    #[track_caller]
    pub(crate) fn assert_goes_on(&mut self, piece: usize) {
        let said = pattern(30_000);
        self.client.writer().write_all(&said).unwrap();
        assert!(self.deliver_to_server(piece) == said, "from the client");
        let (one, two) = said.split_at(12_000);
        assert_eq!(self.tls().write([one, two]), said.len());
        assert!(self.deliver_to_client() == said, "to the client");
        assert!(!self.tls().has_ended());
    }
}

pub(crate) fn resume(state: &[u8]) -> Tls {
    let state: TlsState = Reader::new(state).last().unwrap();
    Tls::resume(state).unwrap()
}

/// Passes ciphertext to the client; returns the plaintext.
pub(crate) fn hear(client: &mut ClientConnection, mut bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let mut heard = Vec::new();
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).unwrap();
        client.process_new_packets()?;
        // An error here means that no data is available yet.
        let _ = client.reader().read_to_end(&mut heard);
    }
    Ok(heard)
}

pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}
