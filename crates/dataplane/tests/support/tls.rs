//! TLS for TCP clients: a tunnel sends the clients' bytes to the server in records, and the ends of
//! the clients' streams as alerts.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use openssl::ssl::{ErrorCode, Ssl, SslContext, SslMethod, SslStream, SslVerifyMode};
use turn_session::{Certificate, Certificates, TlsConfig, TlsRules, tls_config};

use super::LOCALHOST;

/// Pause of an idle tunnel.
const NAP: Duration = Duration::from_millis(1);

/// Returns a self-signed certificate.
pub(crate) fn certificates() -> Arc<Certificates> {
    let names = ["turn.example.org".to_owned()];
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(names).unwrap();
    let key = signing_key.serialize_pem();
    let certificate = Certificate::read(cert.pem().as_bytes(), key.as_bytes()).unwrap();
    let certificates = Arc::new(Certificates::default());
    certificates.replace(vec![certificate]);
    certificates
}

/// Returns a TLS configuration with the self-signed certificate.
pub(crate) fn config() -> TlsConfig {
    tls_config(certificates(), None, &TlsRules::default()).unwrap()
}

/// Returns an address at which each TCP connection becomes a TLS connection to the server.
pub(crate) fn tunnel(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let here = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            std::thread::spawn(move || carry(&client, secured(server)));
        }
    });
    here
}

/// Returns a nonblocking TLS connection to the server.
pub(crate) fn secured(server: SocketAddr) -> SslStream<TcpStream> {
    let mut context = SslContext::builder(SslMethod::tls_client()).unwrap();
    context.set_verify(SslVerifyMode::NONE);
    let socket = TcpStream::connect(server).unwrap();
    socket.set_nodelay(true).unwrap();
    let mut stream = SslStream::new(Ssl::new(&context.build()).unwrap(), socket).unwrap();
    stream.connect().unwrap();
    stream.get_ref().set_nonblocking(true).unwrap();
    stream
}

/// Bytes in transit in one direction.
#[derive(Default)]
struct Half {
    waiting: Vec<u8>,
    /// True if no more bytes will arrive.
    ended: bool,
    /// True if the end was forwarded.
    told: bool,
}

/// Forwards bytes and ends in both directions until both have ended, or one side has disconnected.
fn carry(mut client: &TcpStream, mut server: SslStream<TcpStream>) {
    client.set_nonblocking(true).unwrap();
    let (mut up, mut down) = (Half::default(), Half::default());
    while !(up.told && down.told) {
        let mut room = [0; 16_384];
        let read = up.read(|| client.read(&mut room));
        up.waiting.extend_from_slice(&room[..read]);
        let wrote = up.write(|bytes| told(server.ssl_write(bytes)));
        if up.ended && up.waiting.is_empty() && !up.told {
            up.told = true;
            let _ = server.shutdown();
        }
        let came = down.read(|| told(server.ssl_read(&mut room)));
        down.waiting.extend_from_slice(&room[..came]);
        let went = down.write(|bytes| client.write(bytes));
        if down.ended && down.waiting.is_empty() && !down.told {
            down.told = true;
            let _ = client.shutdown(Shutdown::Write);
        }
        if read + wrote + came + went == 0 {
            std::thread::sleep(NAP);
        }
    }
}

impl Half {
    /// Reads bytes, and returns their number. A failed source is treated as ended.
    fn read(&mut self, read: impl FnOnce() -> io::Result<usize>) -> usize {
        // Bytes that cannot be written are dropped.
        if self.ended || !self.waiting.is_empty() {
            return 0;
        }
        match read() {
            Ok(len @ 1..) => len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Ok(0) | Err(_) => {
                self.ended = true;
                0
            }
        }
    }

    /// Writes bytes, and returns their number. After a failure of the sink the remaining bytes are
    /// dropped.
    fn write(&mut self, write: impl FnOnce(&[u8]) -> io::Result<usize>) -> usize {
        if self.waiting.is_empty() {
            return 0;
        }
        match write(&self.waiting) {
            Ok(len) => self.waiting.drain(..len).len(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => {
                self.waiting.clear();
                self.ended = true;
                0
            }
        }
    }
}

/// Treats the end of a TLS connection as the end of a stream.
fn told(done: Result<usize, openssl::ssl::Error>) -> io::Result<usize> {
    match done {
        Ok(len) => Ok(len),
        Err(error) => match error.code() {
            ErrorCode::ZERO_RETURN => Ok(0),
            ErrorCode::WANT_READ | ErrorCode::WANT_WRITE => Err(ErrorKind::WouldBlock.into()),
            _ => Err(io::Error::other(error)),
        },
    }
}
