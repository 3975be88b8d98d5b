//! Exchange of a request and a response through TLS.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConfig, ClientConnection, Error, ProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{RESPONSE_MAX, Request};
use crate::any_certificate::{AnyCertificate, provider};

fn client() -> io::Result<ClientConnection> {
    let provider = provider();
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    // A server without a certificate for this name responds with its default certificate.
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)
}

/// Sends a request and waits for its response. An alert about a missing client certificate is
/// treated as a response.
pub(super) async fn exchange(stream: &mut TcpStream, request: &Request) -> io::Result<()> {
    let mut tls = client()?;
    let (mut response, mut len) = ([0; RESPONSE_MAX], 0);
    // Buffered until the handshake is complete.
    io::Write::write_all(&mut tls.writer(), &request.bytes)?;
    loop {
        let mut output = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut output)?;
        }
        stream.write_all(&output).await?;
        let mut input = [0; RESPONSE_MAX];
        let read = stream.read(&mut input).await?;
        if read == 0 {
            return Err(io::Error::other("the connection was closed"));
        }
        let mut input = &input[..read];
        while !input.is_empty() {
            tls.read_tls(&mut input)?;
            match tls.process_new_packets() {
                Ok(_) => {}
                Err(error) if wants_client_certificate(&tls, &error) => return Ok(()),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        match io::Read::read(&mut tls.reader(), &mut response[len..]) {
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if request.is_answered_by(&response[..len]) {
            return Ok(());
        }
    }
}

/// Returns true if the server demands a client certificate. TLS 1.2 has no dedicated alert for that
/// case.
fn wants_client_certificate(tls: &ClientConnection, error: &Error) -> bool {
    let is_tls12 = tls.protocol_version() == Some(ProtocolVersion::TLSv1_2);
    *error == Error::AlertReceived(AlertDescription::CertificateRequired)
        || is_tls12 && *error == Error::AlertReceived(AlertDescription::HandshakeFailure)
}
