//! TLS link to the server, with checks of the certificate's trust, subject and expiry.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::limits::CONNECT_WITHIN;
use super::report::{Report, Step};
use super::trust::{Distrust, Trust};
use crate::any_certificate::{AnyCertificate, provider};

const NAME: &str = "tls";

/// Number of days before a certificate's expiry at which warnings start.
const WARN_DAYS: i64 = 14;

/// TLS connection.
pub(super) type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// Performs a TLS handshake, and judges the certificate.
pub(super) fn shake_hands(
    socket: TcpStream,
    trust: &Trust<'_>,
    report: &mut Report,
) -> Option<TlsStream> {
    match handshake(socket, trust) {
        Ok(stream) => {
            let version = stream.conn.protocol_version().and_then(|version| version.as_str());
            let version = version.unwrap_or("TLS").replace('_', ".");
            let chain = stream.conn.peer_certificates().unwrap_or_default();
            judged((NAME, version), chain, trust, report).then_some(stream)
        }
        Err(error) => {
            let advice = "see whether the server serves TLS there (tls.certificates), and its log";
            report.add(Step::failed(NAME, error.to_string()).advise(advice));
            None
        }
    }
}

/// Reports the handshake and the chain. Returns true if the probe continues.
pub(super) fn judged(
    (name, version): (&'static str, String),
    chain: &[CertificateDer<'_>],
    trust: &Trust<'_>,
    report: &mut Report,
) -> bool {
    match trust.judge(chain) {
        Ok(()) => report.add(Step::ok(name, version)),
        Err(Distrust { what, advice }) if trust.insecure => {
            report.add(Step::ok(name, version));
            report.add(Step::warning("trust", format!("clients refuse it: {what}")).advise(advice));
        }
        Err(Distrust { what, advice }) => {
            report.add(Step::failed(name, what).advise(advice));
            return false;
        }
    }
    for certificate in chain {
        report.add(describe(certificate));
    }
    true
}

fn handshake(socket: TcpStream, trust: &Trust<'_>) -> io::Result<TlsStream> {
    socket.set_read_timeout(Some(CONNECT_WITHIN))?;
    let provider = provider();
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    let name = trust.server_name()?;
    let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

/// Describes the subject, issuer and expiry of a certificate.
fn describe(certificate: &CertificateDer<'_>) -> Step {
    const NAME: &str = "chain";
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return Step::warning(NAME, "a certificate that cannot be read");
    };
    let ends = parsed.validity().not_after.timestamp();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let days = (ends - i64::try_from(now).unwrap_or(i64::MAX)) / 86_400;
    let what = format!("{}, by {}, for {days} more days", parsed.subject(), parsed.issuer());
    if days < WARN_DAYS {
        Step::warning(NAME, what).advise("renew it")
    } else {
        Step::ok(NAME, what)
    }
}
