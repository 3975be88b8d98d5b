//! Client of a TCP relay (RFC 6062), and the client's peers.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use linux_net::{ConnectOptions, ReadOutcome};
use stun_wire::{
    AttributeType, Class, Cut, IntegrityKey, IntegrityKind, Message, MessageBuilder, Method,
    TransactionId, long_term_key_md5, next_message, value,
};

use super::{PASSWORD, PATIENCE, REALM, USER};

/// Client with a connection.
pub(crate) struct Alice {
    pub(crate) socket: TcpStream,
    nonce: Option<String>,
    transactions: u8,
    unread: Vec<u8>,
}

impl Alice {
    pub(crate) fn connect(server: SocketAddr) -> Self {
        let socket = TcpStream::connect(server).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        Self { socket, nonce: None, transactions: 0, unread: Vec::new() }
    }

    /// Returns a client with a TCP relay, and the relayed address.
    pub(crate) fn allocated(server: SocketAddr) -> (Self, SocketAddr) {
        let mut alice = Self::connect(server);
        let answer = alice.ask(Method::ALLOCATE, |builder| {
            builder.requested_transport(6);
        });
        let message = Message::parse(&answer).unwrap();
        assert_eq!(message.class(), Class::Success, "{message:?}");
        let relayed = message.first(AttributeType::XOR_RELAYED_ADDRESS).unwrap();
        let relayed = value::xor_address(relayed, message.transaction_id()).unwrap();
        (alice, relayed)
    }

    /// Returns an authenticated request. Requests a nonce first if necessary.
    pub(crate) fn request(
        &mut self,
        method: Method,
        write: impl FnOnce(&mut MessageBuilder<'_>),
    ) -> Vec<u8> {
        if self.nonce.is_none() {
            let mut bare = vec![0; 64];
            let id = self.next_transaction();
            let len = MessageBuilder::new(&mut bare, Class::Request, Method::ALLOCATE, id).finish();
            self.socket.write_all(&bare[..len.unwrap()]).unwrap();
            let challenge = self.read();
            let challenge = Message::parse(&challenge).unwrap();
            let nonce = challenge.first(AttributeType::NONCE).unwrap();
            self.nonce = Some(String::from_utf8(nonce.to_vec()).unwrap());
        }
        let mut out = vec![0; 1024];
        let id = self.next_transaction();
        let mut builder = MessageBuilder::new(&mut out, Class::Request, method, id);
        write(&mut builder);
        builder.username(USER).realm(REALM).nonce(self.nonce.as_ref().unwrap());
        let key = IntegrityKey::new(&long_term_key_md5(USER, REALM, PASSWORD).unwrap());
        let len = builder.integrity(IntegrityKind::Sha1, &key).finish().unwrap();
        out.truncate(len);
        out
    }

    fn next_transaction(&mut self) -> TransactionId {
        self.transactions += 1;
        TransactionId([self.transactions; 12])
    }

    pub(crate) fn ask(
        &mut self,
        method: Method,
        write: impl FnOnce(&mut MessageBuilder<'_>),
    ) -> Vec<u8> {
        let request = self.request(method, write);
        self.socket.write_all(&request).unwrap();
        self.read()
    }

    /// Reads the next message. Further bytes are stored.
    pub(crate) fn read(&mut self) -> Vec<u8> {
        loop {
            if let Cut::Message { len, padded_len } = next_message(&self.unread) {
                let message = self.unread[..len].to_vec();
                self.unread.drain(..padded_len);
                return message;
            }
            let mut buffer = [0; 65_536];
            let len = self.socket.read(&mut buffer).unwrap();
            assert_ne!(len, 0, "closed");
            self.unread.extend_from_slice(&buffer[..len]);
        }
    }

    pub(crate) fn permit(&mut self, peer: IpAddr) {
        let answer = self.ask(Method::CREATE_PERMISSION, |builder| {
            builder.xor_address(AttributeType::XOR_PEER_ADDRESS, SocketAddr::new(peer, 0));
        });
        assert_eq!(code_of(&answer), None);
    }

    /// Connects to a peer. Returns the connection's number or the error code.
    pub(crate) fn call(&mut self, peer: SocketAddr) -> Result<u32, u16> {
        let answer = self.ask(Method::CONNECT, |builder| {
            builder.xor_address(AttributeType::XOR_PEER_ADDRESS, peer);
        });
        connection_of(&answer)
    }

    /// Waits until a peer has connected. Returns the peer's address and the connection's number.
    pub(crate) fn attempt(&mut self) -> (SocketAddr, u32) {
        let bytes = self.read();
        let message = Message::parse(&bytes).unwrap();
        assert_eq!(message.method(), Method::CONNECTION_ATTEMPT);
        let peer = message.first(AttributeType::XOR_PEER_ADDRESS).unwrap();
        let peer = value::xor_address(peer, message.transaction_id()).unwrap();
        (peer, connection_of(&bytes).unwrap())
    }

    pub(crate) fn bind_request(&mut self, connection: u32) -> Vec<u8> {
        self.request(Method::CONNECTION_BIND, |builder| {
            builder.connection_id(connection);
        })
    }

    /// Opens a data connection to a server, for the waiting connection with this number. The bytes
    /// of `early` follow the request immediately.
    pub(crate) fn data(server: SocketAddr, connection: u32, early: &[u8]) -> Self {
        let mut alice = Self::connect(server);
        let request = alice.bind_request(connection);
        alice.socket.write_all(&[&request, early].concat()).unwrap();
        let answer = alice.read();
        assert_eq!(code_of(&answer), None);
        alice
    }

    /// Reads `len` bytes of data.
    pub(crate) fn hear(&mut self, len: usize) -> Vec<u8> {
        let mut heard = std::mem::take(&mut self.unread);
        let begun = heard.len();
        assert!(begun <= len);
        heard.resize(len, 0);
        self.socket.read_exact(&mut heard[begun..]).unwrap();
        heard
    }

    /// Reads all data until the end of the connection.
    pub(crate) fn hear_all(&mut self) -> Vec<u8> {
        let mut heard = std::mem::take(&mut self.unread);
        self.socket.read_to_end(&mut heard).unwrap();
        heard
    }
}

pub(crate) fn code_of(answer: &[u8]) -> Option<u16> {
    let message = Message::parse(answer).unwrap();
    let value = message.first(AttributeType::ERROR_CODE)?;
    Some(value::error_code(value).unwrap().0)
}

fn connection_of(answer: &[u8]) -> Result<u32, u16> {
    if let Some(code) = code_of(answer) {
        return Err(code);
    }
    let message = Message::parse(answer).unwrap();
    let value = message.first(AttributeType::CONNECTION_ID).unwrap();
    Ok(value::connection_id(value).unwrap())
}

/// Peer that connects from a chosen address.
pub(crate) struct Caller(linux_net::TcpStream);

impl Caller {
    pub(crate) fn call(from: IpAddr, to: SocketAddr) -> Self {
        let local = Some(SocketAddr::new(from, 0));
        let options = ConnectOptions { local, ..ConnectOptions::default() };
        let socket = linux_net::TcpStream::connect_to(to, &options).unwrap();
        Self(socket)
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    pub(crate) fn say(&self, bytes: &[u8]) {
        let (begun, mut said) = (Instant::now(), 0);
        while said < bytes.len() {
            // Not yet connected at first.
            match self.0.write([&bytes[said..], &[]]) {
                Ok(len) => said += len,
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotConnected),
            }
            assert!(begun.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn hear_all(&self) -> Vec<u8> {
        let (begun, mut heard) = (Instant::now(), Vec::new());
        let mut buffer = [0; 4096];
        loop {
            match self.0.read(&mut buffer) {
                Ok(ReadOutcome::Read(len)) => heard.extend_from_slice(&buffer[..len]),
                Ok(ReadOutcome::Ended) => return heard,
                Ok(ReadOutcome::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::NotConnected);
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            assert!(begun.elapsed() < PATIENCE);
        }
    }

    pub(crate) fn end(&self) {
        self.0.end_sending();
    }
}
