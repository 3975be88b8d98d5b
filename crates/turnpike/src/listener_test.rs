//! Requests to the server's own listeners, as a client sends them, for `/healthz`.

mod tls;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use admin::types::ListenerHealth;
use admin::{Answers, ListenerTest};
use control::ServerInfo;
use linux_net::random_bytes;
use settings::Settings;
use stun_wire::{Class, Message, MessageBuilder, Method, TransactionId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::timeout;
use turn_types::Prefix;

/// Times to wait for an answer over UDP, each behind a request: loopback loses only where a buffer is full.
const WAITS: [Duration; 3] =
    [Duration::from_millis(200), Duration::from_millis(400), Duration::from_millis(800)];

/// Time for a connection and its answer.
const TCP_DEADLINE: Duration = Duration::from_millis(1400);

/// Header of the PROXY protocol, version 2, with the command LOCAL: the connection is of the sender itself.
const LOCAL: [u8; 16] = *b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

/// Longest response that is read: a Binding response has at most a few addresses.
const RESPONSE_MAX: usize = 576;

/// The server's listeners.
#[derive(Debug)]
pub(crate) struct OwnListeners {
    addresses: Vec<SocketAddr>,
    /// Listeners for TLS alone.
    tls: Vec<SocketAddr>,
    udp: bool,
    tcp: bool,
    /// Sources whose connections begin with a PROXY header.
    proxies: Vec<Prefix>,
    method: Method,
}

impl OwnListeners {
    pub(crate) fn new(settings: &Settings, info: &ServerInfo) -> Self {
        let proxies = settings.tcp.proxy_protocol.iter().map(|prefix| prefix.0).collect();
        let (udp, tcp) = (settings.udp.enabled, settings.tcp.enabled);
        let tls = if settings.tls.enabled { info.tls_listeners.clone() } else { Vec::new() };
        // An Allocate without anything in it gets an error, which is an answer as well.
        let method = if settings.binding { Method::BINDING } else { Method::ALLOCATE };
        Self { addresses: info.listeners.clone(), tls, udp, tcp, proxies, method }
    }
}

impl ListenerTest for OwnListeners {
    fn ask(&self) -> Answers<'_> {
        let method = self.method;
        Box::pin(async move {
            let mut asked = JoinSet::new();
            for (index, &address) in self.addresses.iter().enumerate() {
                if self.udp {
                    asked.spawn(async move {
                        (index, ask("udp", address, over_udp(here(address), method)).await)
                    });
                }
                if self.tcp {
                    let proxies = self.proxies.clone();
                    asked.spawn(async move {
                        (
                            index,
                            ask("tcp", address, over_tcp(here(address), proxies, false, method))
                                .await,
                        )
                    });
                }
            }
            for (index, &address) in self.tls.iter().enumerate() {
                let (index, proxies) = (self.addresses.len() + index, self.proxies.clone());
                asked.spawn(async move {
                    (
                        index,
                        ask("tls", address, over_tcp(here(address), proxies, true, method)).await,
                    )
                });
            }
            let mut answers = asked.join_all().await;
            answers.sort_by_key(|(index, answer)| (*index, answer.transport.clone()));
            answers.into_iter().map(|(_, answer)| answer).collect()
        })
    }
}

/// The address at which this host reaches a listener.
fn here(mut listener: SocketAddr) -> SocketAddr {
    if listener.ip().is_unspecified() {
        listener.set_ip(match listener.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    listener
}

async fn ask(
    transport: &str,
    address: SocketAddr,
    question: impl Future<Output = io::Result<()>>,
) -> ListenerHealth {
    let begin = Instant::now();
    let error = question.await.err().map(|error| error.to_string());
    let microseconds = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
    ListenerHealth {
        address: address.to_string(),
        transport: transport.to_owned(),
        microseconds,
        error,
    }
}

async fn over_udp(server: SocketAddr, method: Method) -> io::Result<()> {
    let any =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    // From no other source.
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

async fn over_tcp(
    server: SocketAddr,
    proxies: Vec<Prefix>,
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

/// A request.
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

    /// Any response will do: an error is an answer of a server that works.
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
    fn a_wildcard_is_asked_at_loopback() {
        let at = |text: &str| here(text.parse().unwrap()).to_string();
        assert_eq!(at("0.0.0.0:3478"), "127.0.0.1:3478");
        assert_eq!(at("[::]:3478"), "[::1]:3478");
        assert_eq!(at("203.0.113.7:3478"), "203.0.113.7:3478");
    }

    #[test]
    fn the_proxy_header_is_one_of_the_sender_itself() {
        let header = turn_session::proxy_protocol::read(&LOCAL).unwrap().unwrap();
        assert_eq!((header.len, header.ends), (LOCAL.len(), None));
    }

    #[tokio::test]
    async fn a_port_without_a_server_is_an_error() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        drop(socket);
        let answer = ask("udp", address, over_udp(address, Method::BINDING)).await;
        assert!(answer.error.is_some(), "{answer:?}");
        let answer =
            ask("tcp", address, over_tcp(address, Vec::new(), false, Method::BINDING)).await;
        assert!(answer.error.is_some(), "{answer:?}");
    }
}
