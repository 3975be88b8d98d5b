//! Requests to STUN and TURN servers, to test if the servers respond.

mod tls;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use linux_net::random_bytes;
use stun_wire::{Class, Message, MessageBuilder, Method, TransactionId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;
use turn_types::Prefix;

/// Waits for a response over UDP, each after a request. On loopback, packets are lost only in full
/// buffers.
const WAITS: [Duration; 3] =
    [Duration::from_millis(200), Duration::from_millis(400), Duration::from_millis(800)];

/// Maximum time for a connection and the response.
const TCP_DEADLINE: Duration = Duration::from_millis(1400);

/// Header of the PROXY protocol, version 2, with the command LOCAL: the sender itself opened the
/// connection.
const LOCAL: [u8; 16] = *b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

/// Maximum length of a response, in bytes. A Binding response contains at most a few addresses.
const RESPONSE_MAX: usize = 576;

/// Sends a request over UDP, up to three times, and waits for a response.
///
/// # Errors
/// No response arrived in time, or the kernel refused a call.
pub(crate) async fn over_udp(server: SocketAddr, method: Method) -> io::Result<()> {
    let any =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    // A connected socket receives from no other source.
    socket.connect(server).await?;
    let request = Request::new(method)?;
    let mut response = [0; RESPONSE_MAX];
    for wait in WAITS {
        socket.send(&request.bytes).await?;
        let answered = timeout(wait, async {
            loop {
                let len = socket.recv(&mut response).await?;
                if request.is_answered_by(&response[..len]) {
                    return io::Result::Ok(());
                }
            }
        });
        if let Ok(answered) = answered.await {
            return answered;
        }
    }
    Err(unanswered())
}

/// Sends a request over TCP, or over TLS with any certificate, and waits for a response. A
/// connection from one of `proxies` starts with a PROXY header.
///
/// # Errors
/// No response arrived in time, the server closed the connection, or the kernel refused a call.
pub(crate) async fn over_tcp(
    server: SocketAddr,
    proxies: &[Prefix],
    in_tls: bool,
    method: Method,
) -> io::Result<()> {
    let request = Request::new(method)?;
    let exchange = async {
        let mut stream = TcpStream::connect(server).await?;
        let source = stream.local_addr()?.ip();
        if proxies.iter().any(|proxy| proxy.contains(source)) {
            stream.write_all(&LOCAL).await?;
        }
        if in_tls {
            return tls::exchange(&mut stream, &request).await;
        }
        stream.write_all(&request.bytes).await?;
        let (mut response, mut len) = ([0; RESPONSE_MAX], 0);
        while !request.is_answered_by(&response[..len]) {
            let more = stream.read(&mut response[len..]).await?;
            if more == 0 {
                return Err(io::Error::other("the connection was closed"));
            }
            len += more;
        }
        Ok(())
    };
    timeout(TCP_DEADLINE, exchange).await.unwrap_or_else(|_| Err(unanswered()))
}

fn unanswered() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time")
}

/// Request with its transaction id.
struct Request {
    id: TransactionId,
    bytes: Vec<u8>,
}

impl Request {
    fn new(method: Method) -> io::Result<Self> {
        let seed: [u8; 32] = random_bytes();
        let mut id = TransactionId::default();
        id.0.copy_from_slice(&seed[..12]);
        let mut bytes = vec![0; 64];
        let builder = MessageBuilder::new(&mut bytes, Class::Request, method, id);
        let len = builder.finish().ok_or_else(|| io::Error::other("a request is too long"))?;
        bytes.truncate(len);
        Ok(Self { id, bytes })
    }

    /// Returns true if the bytes are a response. An error response is sufficient, because it shows
    /// that the server works.
    fn is_answered_by(&self, bytes: &[u8]) -> bool {
        Message::parse(bytes).is_ok_and(|message| {
            message.transaction_id() == self.id
                && matches!(message.class(), Class::Success | Class::Error)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_header_is_one_of_the_sender_itself() {
        let header = turn_session::proxy_protocol::read(&LOCAL).unwrap().unwrap();
        assert_eq!((header.len, header.ends), (LOCAL.len(), None));
    }
}
