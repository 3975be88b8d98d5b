//! TLS 1.2 and 1.3 for a connection, as a value: ciphertext of the network in, plaintext out, and the reverse.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoClientAuth, ResolvesServerCert, ServerConfig, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, Error, ServerConnection};

use crate::certificates::{ACME_TLS, ALPN, CertificateError, Certificates, ClientAuthorities};
use crate::tls_rules::TlsRules;

/// Most encrypted bytes waiting to be written: no more plaintext is accepted above it, so that queued data can
/// still be dropped (see [`OutQueue`](crate::OutQueue)).
const CIPHERTEXT_BYTES: usize = 64 << 10;

/// The longest record, as plaintext and with all that is around it (RFC 8446 §5.2), and some more.
const RECORD_BYTES: usize = 17 << 10;

/// Least number of bytes to read at once, regardless of room: the excess plaintext waits in the TLS state.
const PIECE_BYTES: usize = 4096;

/// The server's end of a TLS connection.
#[derive(Debug)]
pub struct Tls {
    connection: Box<ServerConnection>,
    /// The remote has sent close_notify.
    has_ended: bool,
}

/// Configuration of all TLS connections: certificates and protocol options.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    config: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
}

impl TlsConfig {
    /// True if there is a certificate, for clients or for an authority that verifies a name; handshakes fail without
    /// one.
    #[must_use]
    pub fn can_serve(&self) -> bool {
        !self.certificates.is_empty() || self.certificates.challenges().has_tls()
    }

    /// True if an authority is expected with an HTTP-01 challenge.
    #[must_use]
    pub fn expects_challenge(&self) -> bool {
        self.certificates.challenges().has_http()
    }

    /// The answer to an authority's HTTP-01 challenge with this token, if it is pending (RFC 8555 §8.3).
    #[must_use]
    pub fn key_authorization(&self, token: &str) -> Option<String> {
        self.certificates.challenges().key_authorization(token)
    }
}

/// Creates the configuration of all TLS connections. With `authorities` a client has to present a certificate
/// signed by one of them.
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

/// Creates the configuration of TLS connections that speak HTTP/1.1, with the same certificates. With `authorities` as
/// for [`tls_config`].
///
/// # Errors
/// As for [`tls_config`].
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
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(CertificateError::Unusable)?;
    Ok(config)
}

#[derive(Debug)]
struct Chooser(Arc<Certificates>);

impl ResolvesServerCert for Chooser {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.choose(&hello)
    }
}

/// Why a connection is of no use.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub struct TlsError(#[from] Error);

/// The error of rustls where [`Chooser`] found no certificate.
const NO_CERTIFICATE: &str = "no server certificate chain resolved";

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == Error::General(NO_CERTIFICATE.to_owned()) {
            let kinds = "ECDSA, RSA, Ed25519";
            return write!(
                f,
                "no certificate in tls.certificates has a kind of key ({kinds}) that the client verifies"
            );
        }
        let alert = |alert| self.0 == Error::AlertReceived(alert);
        if alert(AlertDescription::UnknownCA) {
            f.write_str(
                "the client does not trust the issuer of the certificate (unknown CA): often an \
                 intermediate is missing in the chain",
            )
        } else if alert(AlertDescription::CertificateExpired) {
            f.write_str("the client refused the certificate as expired")
        } else if alert(AlertDescription::BadCertificate)
            || alert(AlertDescription::CertificateUnknown)
        {
            f.write_str(
                "the client refused the certificate: it is not for the name, or not trusted",
            )
        } else {
            self.0.fmt(f)
        }
    }
}

impl Tls {
    /// A new connection before the handshake.
    ///
    /// # Errors
    /// The configuration is not valid for a server.
    pub fn new(config: &TlsConfig) -> Result<Self, TlsError> {
        let mut connection = ServerConnection::new(Arc::clone(&config.config))?;
        connection.set_buffer_limit(Some(CIPHERTEXT_BYTES));
        Ok(Self { connection: Box::new(connection), has_ended: false })
    }

    /// Most bytes to read from the network when there is `room` for plaintext, so that [`take`](Self::take) can
    /// write all of it.
    #[must_use]
    pub const fn most(room: usize) -> usize {
        // If most of a record came before, all of its plaintext may be returned now.
        match room.checked_sub(RECORD_BYTES) {
            Some(rest) if rest > PIECE_BYTES => rest,
            _ => PIECE_BYTES,
        }
    }

    /// Decrypts bytes from the network, and writes the plaintext into `room`, as far as it fits;
    /// [`read`](Self::read) returns the rest. Returns the number of bytes written.
    ///
    /// # Errors
    /// Not TLS, or no common parameters. [Write](Self::write_to) the alert before closing the connection.
    pub fn take(&mut self, mut ciphertext: &[u8], room: &mut [u8]) -> Result<usize, TlsError> {
        let mut len = 0;
        while !ciphertext.is_empty() {
            // It fails only where too much plaintext waits, of which `most` takes care.
            let taken = self.connection.read_tls(&mut ciphertext).unwrap_or(0);
            self.has_ended |= self.connection.process_new_packets()?.peer_has_closed();
            len += self.read(&mut room[len..]);
            if taken == 0 {
                return Err(TlsError(Error::General("more than there is room for".to_owned())));
            }
        }
        Ok(len)
    }

    /// Reads decrypted plaintext, as far as there is room, and returns its length.
    pub fn read(&mut self, room: &mut [u8]) -> usize {
        let mut len = 0;
        // Nothing now, or the end: the network reports it as well.
        while let Ok(more @ 1..) = self.connection.reader().read(&mut room[len..]) {
            len += more;
        }
        len
    }

    /// Encrypts as much as there is room for, and returns the number of bytes.
    pub fn write(&mut self, plaintext: [&[u8]; 2]) -> usize {
        let mut taken = 0;
        for piece in plaintext {
            // It never fails; it may accept less.
            let len = self.connection.writer().write(piece).unwrap_or(0);
            taken += len;
            if len < piece.len() {
                break;
            }
        }
        taken
    }

    /// True if there are bytes to be written.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Writes encrypted bytes.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write_to(&mut self, writer: &mut dyn io::Write) -> io::Result<usize> {
        self.connection.write_tls(writer)
    }

    /// Sends close_notify.
    pub fn end(&mut self) {
        self.connection.send_close_notify();
    }

    /// True if the remote has sent close_notify (RFC 8446 §6.1), after all bytes that can be
    /// [read](Self::read). The connection below may stay open.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The name that the client asked for (SNI, RFC 6066 §3), in lower case; none before its first flight was read.
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        self.connection.server_name()
    }

    /// True if the handshake is complete.
    #[must_use]
    pub fn is_agreed(&self) -> bool {
        !self.connection.is_handshaking()
    }
}
