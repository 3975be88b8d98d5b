//! TLS to the server: its certificate's trust, subject and expiry.

use std::io;
use std::net::{IpAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::limits::CONNECT_WITHIN;
use super::report::{Report, Step};
use crate::authorities::authorities;
use crate::uri::Uri;

const NAME: &str = "tls";

/// Advice after a failed handshake.
pub(super) const CERTIFICATE_ADVICE: &str = "a certificate has to be for the name in the URI, unexpired, and with its chain (fullchain.pem) up to an \
     authority that this host trusts; name another with --ca";

/// Warning time before a certificate expires.
const WARN_DAYS: i64 = 14;

/// A connection in TLS.
pub(super) type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// Performs a TLS handshake.
pub(super) fn shake_hands(
    socket: TcpStream,
    uri: &Uri,
    ca: Option<&Path>,
    report: &mut Report,
) -> Option<TlsStream> {
    match handshake(socket, uri, ca) {
        Ok(stream) => {
            let version = stream.conn.protocol_version().and_then(|version| version.as_str());
            report.add(Step::ok(NAME, version.unwrap_or("TLS").replace('_', ".")));
            for certificate in stream.conn.peer_certificates().unwrap_or_default() {
                report.add(describe(certificate));
            }
            Some(stream)
        }
        Err(error) => {
            // `openssl req -x509` makes such certificates by default.
            let is_authority = error.to_string().contains("CaUsedAsEndEntity");
            let why = if is_authority {
                "the certificate is one of an authority (CA:TRUE), not of a server".to_owned()
            } else {
                error.to_string()
            };
            report.add(Step::failed(NAME, why).advise(CERTIFICATE_ADVICE));
            None
        }
    }
}

fn handshake(socket: TcpStream, uri: &Uri, ca: Option<&Path>) -> io::Result<TlsStream> {
    socket.set_read_timeout(Some(CONNECT_WITHIN))?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities(ca)?);
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = match uri.host.parse::<IpAddr>() {
        Ok(ip) => ServerName::from(ip),
        Err(_) => ServerName::try_from(uri.host.clone()).map_err(io::Error::other)?,
    };
    let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

/// Subject, issuer and expiry of a certificate.
pub(super) fn describe(certificate: &CertificateDer<'_>) -> Step {
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
