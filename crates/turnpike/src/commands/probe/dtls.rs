//! DTLS link to the server, with verification of the certificate as for TLS.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use openssl::error::ErrorStack;
use openssl::ssl::{
    ErrorCode, Ssl, SslContext, SslMethod, SslOptions, SslStream, SslVerifyMode, SslVersion,
};
use rustls::pki_types::CertificateDer;

use super::limits::{CONNECT_WITHIN, MESSAGE_MAX};
use super::report::{Report, Step};
use super::tls::judged;
use super::trust::Trust;
use crate::uri::Uri;

const NAME: &str = "dtls";

/// Interval of OpenSSL's checks for a retransmission.
const LOOK: Duration = Duration::from_millis(200);

/// Maximum length of a handshake's datagrams in bytes: the IPv6 minimum MTU (RFC 8200 §5) minus
/// headers.
const HANDSHAKE_DATAGRAM: u32 = 1200;

/// Performs a DTLS handshake, and judges the certificate.
pub(super) fn shake_hands(
    socket: UdpSocket,
    uri: &Uri,
    trust: &Trust<'_>,
    report: &mut Report,
) -> Option<Session> {
    let stream = match begin(socket, trust).and_then(handshake) {
        Ok(stream) => stream,
        Err(error) => {
            // Over UDP the ClientHello is the first packet that requires a response of the server.
            let silent = matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::TimedOut);
            let advice = if silent {
                uri.unreachable()
            } else {
                "see whether the server serves DTLS there (tls.certificates, dtls.enabled), and its log".to_owned()
            };
            report.add(Step::failed(NAME, error.to_string()).advise(advice));
            return None;
        }
    };
    let version = stream.ssl().version_str().replace("DTLSv", "DTLS ");
    let chain: Vec<CertificateDer<'_>> = stream
        .ssl()
        .peer_cert_chain()
        .into_iter()
        .flatten()
        .filter_map(|certificate| certificate.to_der().ok().map(CertificateDer::from))
        .collect();
    judged((NAME, version), &chain, trust, report).then_some(Session(stream))
}

/// DTLS session. Dropping closes the session, to let the server release it.
#[derive(Debug)]
pub(super) struct Session(SslStream<Datagrams>);

impl Session {
    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().0.local_addr()
    }

    pub(super) fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.0.ssl_write(message).map(drop).map_err(io::Error::other)
    }

    /// Returns the next message, or `None` if no message arrives in time.
    ///
    /// # Errors
    /// The server has closed the session, or has become unreachable.
    pub(super) fn receive(&mut self, within: Duration) -> io::Result<Option<Vec<u8>>> {
        self.0.get_ref().0.set_read_timeout(Some(within.max(Duration::from_millis(1))))?;
        let mut message = vec![0; MESSAGE_MAX];
        match self.0.ssl_read(&mut message) {
            Ok(len) => {
                message.truncate(len);
                Ok(Some(message))
            }
            Err(error) if error.code() == ErrorCode::WANT_READ => Ok(None),
            Err(error) if error.code() == ErrorCode::ZERO_RETURN => {
                Err(io::Error::other("the server closed the DTLS session"))
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The alert may be lost, but the server has timeouts.
        let _ = self.0.shutdown();
    }
}

fn begin(socket: UdpSocket, trust: &Trust<'_>) -> io::Result<SslStream<Datagrams>> {
    socket.set_read_timeout(Some(LOOK))?;
    let begun = || {
        let context = context()?;
        let mut ssl = Ssl::new(&context)?;
        ssl.set_mtu(HANDSHAKE_DATAGRAM)?;
        if trust.name.parse::<IpAddr>().is_err() {
            ssl.set_hostname(trust.name)?;
        }
        SslStream::new(ssl, Datagrams(socket))
    };
    begun().map_err(|error: ErrorStack| io::Error::other(format!("OpenSSL: {error}")))
}

/// Creates the context of a client. The certificate is judged after the handshake, before data is
/// sent.
fn context() -> Result<SslContext, ErrorStack> {
    let mut context = SslContext::builder(SslMethod::dtls())?;
    context.set_min_proto_version(Some(SslVersion::DTLS1_2))?;
    context.set_options(SslOptions::NO_QUERY_MTU);
    context.set_verify(SslVerifyMode::NONE);
    Ok(context.build())
}

fn handshake(mut stream: SslStream<Datagrams>) -> io::Result<SslStream<Datagrams>> {
    let deadline = Instant::now() + CONNECT_WITHIN;
    while let Err(error) = stream.connect() {
        if error.code() != ErrorCode::WANT_READ {
            return Err(error.into_io_error().unwrap_or_else(io::Error::other));
        }
        if Instant::now() >= deadline {
            return Err(io::Error::new(ErrorKind::TimedOut, "no answer"));
        }
    }
    Ok(stream)
}

/// Adapter of a connected socket for OpenSSL, where a timeout is not reported as a failure.
#[derive(Debug)]
struct Datagrams(UdpSocket);

impl Read for Datagrams {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.0.recv(room)
    }
}

impl Write for Datagrams {
    fn write(&mut self, datagram: &[u8]) -> io::Result<usize> {
        self.0.send(datagram)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
