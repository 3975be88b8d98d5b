//! The link of a client to the server: messages over UDP, DTLS, TCP or TLS.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::rc::Rc;

use linux_net::ReadOutcome;
use openssl::ssl::{
    ErrorCode, HandshakeError, MidHandshakeSslStream, Ssl, SslContext, SslMethod, SslMode,
    SslOptions, SslStream, SslVerifyMode,
};
use stun_wire::{Cut, next_message};
use turn_types::Transport;

use crate::tcp::TcpEnd;

/// Longest datagram of a DTLS handshake.
const DTLS_MTU: u32 = 1200;

/// Datagrams in both directions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Datagrams(Rc<RefCell<Queues>>);

#[derive(Debug, Default)]
struct Queues {
    received: VecDeque<Vec<u8>>,
    sent: Vec<Vec<u8>>,
}

impl Datagrams {
    pub(crate) fn deliver(&self, datagram: Vec<u8>) {
        self.0.borrow_mut().received.push_back(datagram);
    }

    fn take_received(&self) -> Option<Vec<u8>> {
        self.0.borrow_mut().received.pop_front()
    }

    pub(crate) fn take_sent(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.0.borrow_mut().sent)
    }
}

impl Read for Datagrams {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let Some(datagram) = self.0.borrow_mut().received.pop_front() else {
            return Err(ErrorKind::WouldBlock.into());
        };
        let len = datagram.len().min(room.len());
        room[..len].copy_from_slice(&datagram[..len]);
        Ok(len)
    }
}

impl Write for Datagrams {
    fn write(&mut self, datagram: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().sent.push(datagram.to_vec());
        Ok(datagram.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A TCP connection as OpenSSL reads and writes it.
#[derive(Debug)]
pub(crate) struct TcpWire(TcpEnd);

impl Read for TcpWire {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self.0.read(room)? {
            ReadOutcome::Read(len) => Ok(len),
            ReadOutcome::WouldBlock => Err(ErrorKind::WouldBlock.into()),
            ReadOutcome::Ended => Ok(0),
        }
    }
}

impl Write for TcpWire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes)? {
            0 if !bytes.is_empty() => Err(ErrorKind::WouldBlock.into()),
            len => Ok(len),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A TLS or DTLS connection, perhaps before the end of its handshake.
#[derive(Debug)]
pub(crate) enum Secured<S> {
    Handshake(Option<MidHandshakeSslStream<S>>),
    Open(SslStream<S>),
    Failed,
}

impl<S: Read + Write> Secured<S> {
    fn begin(method: SslMethod, wire: S) -> Self {
        let mut context = SslContext::builder(method).expect("OpenSSL works");
        context.set_verify(SslVerifyMode::NONE);
        context.set_options(SslOptions::NO_QUERY_MTU);
        // Bytes that were not taken come again from another place.
        context.set_mode(SslMode::ACCEPT_MOVING_WRITE_BUFFER | SslMode::ENABLE_PARTIAL_WRITE);
        let mut ssl = Ssl::new(&context.build()).expect("OpenSSL works");
        // TLS has none and refuses it.
        let _ = ssl.set_mtu(DTLS_MTU);
        Self::of(ssl.connect(wire))
    }

    fn of(outcome: Result<SslStream<S>, HandshakeError<S>>) -> Self {
        match outcome {
            Ok(stream) => Self::Open(stream),
            Err(HandshakeError::WouldBlock(handshake)) => Self::Handshake(Some(handshake)),
            Err(HandshakeError::Failure(_) | HandshakeError::SetupFailure(_)) => Self::Failed,
        }
    }

    /// Continues the handshake; true when it is complete.
    fn is_open(&mut self) -> bool {
        if let Self::Handshake(handshake) = self
            && let Some(handshake) = handshake.take()
        {
            *self = Self::of(handshake.handshake());
        }
        matches!(self, Self::Open(_))
    }

    fn has_failed(&self) -> bool {
        matches!(self, Self::Failed)
    }

    fn read(&mut self, room: &mut [u8]) -> Input {
        if !self.is_open() {
            return if self.has_failed() { Input::Ended } else { Input::Nothing };
        }
        let Self::Open(stream) = self else { return Input::Nothing };
        match stream.ssl_read(room) {
            Ok(0) => Input::Ended,
            Ok(len) => Input::Bytes(room[..len].to_vec()),
            Err(error) if error.code() == ErrorCode::WANT_READ => Input::Nothing,
            Err(_) => Input::Ended,
        }
    }

    /// Writes bytes, and returns how many were taken.
    fn write(&mut self, bytes: &[u8]) -> usize {
        self.is_open();
        match self {
            Self::Open(stream) => stream.ssl_write(bytes).unwrap_or(0),
            Self::Handshake(_) | Self::Failed => 0,
        }
    }

    fn end_sending(&mut self) {
        if let Self::Open(stream) = self {
            let _ = stream.shutdown();
        }
    }
}

/// Result of reading.
#[derive(Debug)]
pub(crate) enum Input {
    Bytes(Vec<u8>),
    Nothing,
    Ended,
}

/// A link.
#[derive(Debug)]
pub(crate) enum Link {
    Udp(Datagrams),
    Dtls(Datagrams, Box<Secured<Datagrams>>),
    Tcp { end: TcpEnd, unread: Vec<u8>, unsent: Vec<u8> },
    Tls { secured: Box<Secured<TcpWire>>, unread: Vec<u8> },
}

impl Link {
    pub(crate) fn datagrams(transport: Transport) -> Self {
        let datagrams = Datagrams::default();
        if transport == Transport::Dtls {
            let secured = Secured::begin(SslMethod::dtls_client(), datagrams.clone());
            return Self::Dtls(datagrams, Box::new(secured));
        }
        Self::Udp(datagrams)
    }

    /// Over a TCP connection that is established; `first` is written before everything else.
    pub(crate) fn stream(transport: Transport, end: TcpEnd) -> Self {
        if transport == Transport::Tls {
            let secured = Secured::begin(SslMethod::tls_client(), TcpWire(end));
            return Self::Tls { secured: Box::new(secured), unread: Vec::new() };
        }
        Self::Tcp { end, unread: Vec::new(), unsent: Vec::new() }
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, message: &[u8]) {
        match self {
            Self::Udp(datagrams) => drop(datagrams.write(message)),
            // Bytes that a full connection does not take are lost: requests are repeated.
            Self::Dtls(_, secured) => _ = secured.write(message),
            Self::Tcp { unsent, .. } => {
                unsent.extend_from_slice(message);
                self.flush();
            }
            Self::Tls { secured, .. } => _ = secured.write(message),
        }
    }

    /// Writes bytes without framing, as far as the connection takes them. A TLS connection wants
    /// the rest again.
    pub(crate) fn write_bytes(&mut self, bytes: &[u8]) -> usize {
        match self {
            Self::Tcp { end, unsent, .. } if unsent.is_empty() => end.write(bytes).unwrap_or(0),
            Self::Tls { secured, .. } => secured.write(bytes),
            Self::Tcp { .. } | Self::Udp(_) | Self::Dtls(..) => 0,
        }
    }

    /// Reads bytes without framing: those behind the last message first.
    pub(crate) fn read_bytes(&mut self) -> Input {
        let mut room = [0; 4096];
        match self {
            Self::Tcp { unread, .. } | Self::Tls { unread, .. } if !unread.is_empty() => {
                Input::Bytes(std::mem::take(unread))
            }
            Self::Tcp { end, .. } => read_end(end, &mut room),
            Self::Tls { secured, .. } => secured.read(&mut room),
            Self::Udp(_) | Self::Dtls(..) => Input::Nothing,
        }
    }

    /// Ends this direction of a connection.
    pub(crate) fn end_sending(&mut self) {
        match self {
            Self::Tcp { end, .. } => end.end_sending(),
            Self::Tls { secured, .. } => secured.end_sending(),
            Self::Udp(_) | Self::Dtls(..) => {}
        }
    }

    /// Closes a connection: over plain TCP with a reset.
    pub(crate) fn reset(self) {
        if let Self::Tcp { end, .. } = self {
            end.reset();
        }
    }

    /// Writes bytes that the connection did not take before.
    pub(crate) fn flush(&mut self) {
        if let Self::Tcp { end, unsent, .. } = self
            && let Ok(len) = end.write(unsent)
        {
            unsent.drain(..len);
        }
    }

    /// Receives the next message; `Err`: the link has ended.
    pub(crate) fn receive(&mut self) -> Result<Option<Vec<u8>>, ()> {
        // More than any message of these worlds.
        let mut room = [0; 4096];
        match self {
            Self::Udp(datagrams) => Ok(datagrams.take_received()),
            Self::Dtls(_, secured) => match secured.read(&mut room) {
                Input::Bytes(bytes) => Ok(Some(bytes)),
                Input::Nothing => Ok(None),
                Input::Ended => Err(()),
            },
            Self::Tcp { end, unread, .. } => take_message(unread, || read_end(end, &mut room)),
            Self::Tls { secured, unread } => take_message(unread, || secured.read(&mut room)),
        }
    }
}

fn read_end(end: &TcpEnd, room: &mut [u8]) -> Input {
    match end.read(room) {
        Ok(ReadOutcome::Read(len)) => Input::Bytes(room[..len].to_vec()),
        Ok(ReadOutcome::WouldBlock) => Input::Nothing,
        Ok(ReadOutcome::Ended) | Err(_) => Input::Ended,
    }
}

/// Takes the first whole message, as far as reading brings one.
fn take_message(
    unread: &mut Vec<u8>,
    mut read: impl FnMut() -> Input,
) -> Result<Option<Vec<u8>>, ()> {
    loop {
        match next_message(unread) {
            Cut::Message { len, padded_len } => {
                let message = unread[..len].to_vec();
                unread.drain(..padded_len);
                return Ok(Some(message));
            }
            Cut::Garbage => return Err(()),
            Cut::NeedMore { .. } => {}
        }
        match read() {
            Input::Bytes(bytes) => unread.extend(bytes),
            Input::Nothing => return Ok(None),
            Input::Ended => return Err(()),
        }
    }
}
