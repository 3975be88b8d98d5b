//! Link to the server: datagrams, or messages on a stream.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use stun_wire::{Cut, next_message};
use turn_types::Transport;

use super::dtls::Session;
use super::limits::{CONNECT_WITHIN, MESSAGE_MAX};
use super::tls::TlsStream;

/// Link to the server. Streams have a buffer of bytes that were received but not parsed.
#[derive(Debug)]
pub(crate) enum Link {
    Udp(UdpSocket),
    Tcp(TcpStream, Vec<u8>),
    Tls(Box<TlsStream>, Vec<u8>),
    Dtls(Box<Session>),
}

impl Link {
    /// Creates a link over UDP.
    ///
    /// # Errors
    /// The host has no route to the address.
    pub(crate) fn udp(server: SocketAddr) -> io::Result<Self> {
        let socket = udp_socket(server)?;
        socket.connect(server)?;
        Ok(Self::Udp(socket))
    }

    /// Connects over TCP.
    ///
    /// # Errors
    /// The connection is refused, or times out.
    pub(crate) fn tcp(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&server, CONNECT_WITHIN)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(CONNECT_WITHIN))?;
        Ok(Self::Tcp(stream, Vec::new()))
    }

    /// Returns the local address.
    pub(crate) fn local(&self) -> SocketAddr {
        let local = match self {
            Self::Udp(socket) => socket.local_addr(),
            Self::Tcp(stream, _) => stream.local_addr(),
            Self::Tls(stream, _) => stream.sock.local_addr(),
            Self::Dtls(session) => session.local_addr(),
        };
        local.unwrap_or_else(|_| (Ipv4Addr::UNSPECIFIED, 0).into())
    }

    pub(crate) const fn transport(&self) -> Transport {
        match self {
            Self::Udp(_) => Transport::Udp,
            Self::Tcp(..) => Transport::Tcp,
            Self::Tls(..) => Transport::Tls,
            Self::Dtls(_) => Transport::Dtls,
        }
    }

    pub(crate) fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match self {
            Self::Udp(socket) => socket.send(message).map(drop),
            Self::Tcp(stream, _) => stream.write_all(message),
            Self::Tls(stream, _) => stream.write_all(message).and_then(|()| stream.flush()),
            Self::Dtls(session) => session.send(message),
        }
    }

    /// Returns the next message, or `None` if no message arrives in time.
    ///
    /// # Errors
    /// The server has become unreachable, or does not speak STUN.
    pub(crate) fn receive(&mut self, within: Duration) -> io::Result<Option<Vec<u8>>> {
        match self {
            Self::Udp(socket) => {
                receive_datagram(socket, within).map(|got| got.map(|(_, data)| data))
            }
            Self::Tcp(stream, kept) => {
                set_timeout(stream, within)?;
                receive_message(stream, kept)
            }
            Self::Tls(stream, kept) => {
                set_timeout(&stream.sock, within)?;
                receive_message(stream, kept)
            }
            Self::Dtls(session) => session.receive(within),
        }
    }
}

/// Creates a socket of the server's address family.
pub(crate) fn udp_socket(server: SocketAddr) -> io::Result<UdpSocket> {
    if server.is_ipv4() {
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
    } else {
        UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))
    }
}

/// Returns the next datagram and its source, or `None` if no datagram arrives in time.
pub(crate) fn receive_datagram(
    socket: &UdpSocket,
    within: Duration,
) -> io::Result<Option<(SocketAddr, Vec<u8>)>> {
    // A timeout of zero would mean an unlimited wait.
    socket.set_read_timeout(Some(within.max(Duration::from_millis(1))))?;
    let mut bytes = vec![0; MESSAGE_MAX];
    match socket.recv_from(&mut bytes) {
        Ok((len, from)) => {
            bytes.truncate(len);
            Ok(Some((from, bytes)))
        }
        Err(error) if is_timeout(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn set_timeout(stream: &TcpStream, within: Duration) -> io::Result<()> {
    stream.set_read_timeout(Some(within.max(Duration::from_millis(1))))
}

fn receive_message(stream: &mut impl Read, kept: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    loop {
        match next_message(kept) {
            Cut::Message { len, padded_len } => {
                let message = kept[..len].to_vec();
                kept.drain(..padded_len);
                return Ok(Some(message));
            }
            Cut::Garbage => {
                return Err(io::Error::other("the server there does not speak STUN"));
            }
            Cut::NeedMore { .. } => {}
        }
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(0) => return Err(io::Error::other("the server closed the connection")),
            Ok(len) => kept.extend_from_slice(&bytes[..len]),
            Err(error) if is_timeout(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
