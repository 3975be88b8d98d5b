//! A client that knows the protocol and follows the test, right or wrong.

use std::net::SocketAddr;

use stun_wire::*;
use turn_types::*;

use super::answer::Reply;
use super::{Fate, REALM, SERVER_V4, SERVER_V6, World, addr};

/// The integrity of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sealing {
    /// As RFC 5389 clients do: MD5 key, MESSAGE-INTEGRITY.
    Md5,
    /// As RFC 8489 clients do: PASSWORD-ALGORITHM SHA-256, MESSAGE-INTEGRITY-SHA256.
    Sha256,
}

/// An access token, and the session key in it.
#[derive(Clone, Debug)]
pub struct Token {
    pub bytes: Vec<u8>,
    pub mac_key: Vec<u8>,
}

#[derive(Clone, Debug)]
pub struct Client {
    pub path: ClientPath,
    pub user: &'static str,
    pub password: &'static str,
    pub realm: &'static str,
    /// ORIGIN of its requests.
    pub origin: Option<&'static str>,
    pub sealing: Sealing,
    pub fingerprint: bool,
    pub nonce: Option<String>,
    /// An access token that goes with Allocate, Refresh and ConnectionBind; `user` is the name of
    /// its key then.
    pub token: Option<Token>,
    transactions: u32,
}

impl Client {
    /// Alice at 198.51.100.7 and this port, over UDP.
    pub fn new(port: u16) -> Self {
        Self::at(&format!("198.51.100.7:{port}"))
    }

    /// Alice at this address, over UDP.
    pub fn at(client: &str) -> Self {
        let client = addr(client);
        let server = addr(if client.is_ipv4() { SERVER_V4 } else { SERVER_V6 });
        Self {
            path: ClientPath {
                five_tuple: FiveTuple {
                    transport: Transport::Udp,
                    client: ClientAddr(client),
                    server: ServerAddr(server),
                },
                socket: SocketId(4),
            },
            user: "alice",
            password: "wonderland",
            realm: REALM,
            origin: None,
            sealing: Sealing::Md5,
            fingerprint: false,
            nonce: None,
            token: None,
            transactions: 0,
        }
    }

    pub fn v6(port: u16) -> Self {
        Self::at(&format!("[2001:db8:7::7]:{port}"))
    }

    pub fn over(mut self, transport: Transport) -> Self {
        self.path.five_tuple.transport = transport;
        self
    }

    pub fn as_bob(mut self) -> Self {
        (self.user, self.password) = ("bob", "builder");
        self
    }

    pub fn sealing(mut self, sealing: Sealing) -> Self {
        self.sealing = sealing;
        self
    }

    pub fn with_token(mut self, kid: &'static str, token: Token) -> Self {
        (self.user, self.token) = (kid, Some(token));
        self
    }

    pub fn key(&self) -> IntegrityKey {
        if let Some(token) = &self.token {
            return IntegrityKey::new(&token.mac_key);
        }
        let keys = LongTermKeys::new(self.user, self.realm, self.password).unwrap();
        match self.sealing {
            Sealing::Md5 => IntegrityKey::new(&keys.md5),
            Sealing::Sha256 => IntegrityKey::new(&keys.sha256),
        }
    }

    pub fn next_transaction(&mut self) -> TransactionId {
        self.transactions += 1;
        let mut id = [0xC1; 12];
        id[..4].copy_from_slice(&self.transactions.to_be_bytes());
        id[4..6].copy_from_slice(&self.path.five_tuple.client.port().to_be_bytes());
        TransactionId(id)
    }

    /// Moves the client to another realm, with its name and password.
    pub fn of_realm(mut self, realm: &'static str) -> Self {
        self.realm = realm;
        self
    }

    pub fn from_page(mut self, origin: &'static str) -> Self {
        self.origin = Some(origin);
        self
    }

    fn write_origin(&self, builder: &mut MessageBuilder<'_>) {
        if let Some(origin) = self.origin {
            builder.attribute(AttributeType::ORIGIN, origin.as_bytes());
        }
    }

    /// A request without credentials.
    pub fn bare(&mut self, method: Method, write: impl FnOnce(&mut MessageBuilder<'_>)) -> Vec<u8> {
        let mut out = vec![0; 2048];
        let mut builder =
            MessageBuilder::new(&mut out, Class::Request, method, self.next_transaction());
        self.write_origin(&mut builder);
        write(&mut builder);
        let len = if self.fingerprint { builder.fingerprint() } else { builder.finish() };
        out.truncate(len.unwrap());
        out
    }

    /// Returns an authentic request. A nonce is requested first if the client has none.
    pub fn sealed(
        &mut self,
        world: &mut World,
        method: Method,
        write: impl FnOnce(&mut MessageBuilder<'_>),
    ) -> Vec<u8> {
        if self.nonce.is_none() {
            self.log_in(world);
        }
        let mut out = vec![0; 4096];
        let mut builder =
            MessageBuilder::new(&mut out, Class::Request, method, self.next_transaction());
        self.write_origin(&mut builder);
        write(&mut builder);
        if let Some(token) = &self.token
            && matches!(method, Method::ALLOCATE | Method::REFRESH | Method::CONNECTION_BIND)
        {
            builder.attribute(AttributeType::ACCESS_TOKEN, &token.bytes);
        }
        builder.username(self.user).realm(self.realm).nonce(self.nonce.as_ref().unwrap());
        let kind = match self.sealing {
            Sealing::Md5 => IntegrityKind::Sha1,
            Sealing::Sha256 => {
                builder.password_algorithms(&[PasswordAlgorithm::SHA256, PasswordAlgorithm::MD5]);
                builder.password_algorithm(PasswordAlgorithm::SHA256);
                IntegrityKind::Sha256
            }
        };
        let sealed = builder.integrity(kind, &self.key());
        let len = if self.fingerprint { sealed.fingerprint() } else { sealed.finish() };
        out.truncate(len.unwrap());
        out
    }

    /// Learns a nonce from a 401.
    pub fn log_in(&mut self, world: &mut World) {
        let request = self.bare(Method::ALLOCATE, |_| ());
        let reply = self.exchange(world, &request);
        assert_eq!(reply.code(), Some(401));
        self.nonce = Some(reply.nonce());
    }

    /// Sends a request that gets a response, and checks the response.
    pub fn exchange(&self, world: &mut World, request: &[u8]) -> Reply {
        let bytes = world.from_client(&self.path, request).reply();
        self.decode(request, bytes)
    }

    pub fn decode(&self, request: &[u8], bytes: Vec<u8>) -> Reply {
        Reply::decode(self, request, bytes)
    }

    /// Sends a request. Returns the code of a refusal, or `None` if the request waits.
    pub fn refusal_unless_it_waits(&self, world: &mut World, request: &[u8]) -> Option<u16> {
        match world.from_client(&self.path, request) {
            Fate::Wait => None,
            other => self.decode(request, other.reply()).code(),
        }
    }

    /// An authentic request and its answer.
    pub fn ask(
        &mut self,
        world: &mut World,
        method: Method,
        write: impl FnOnce(&mut MessageBuilder<'_>),
    ) -> Reply {
        let request = self.sealed(world, method, write);
        self.exchange(world, &request)
    }

    /// Sends an Allocate with REQUESTED-TRANSPORT UDP and the attributes that `write` adds.
    pub fn try_allocate(
        &mut self,
        world: &mut World,
        write: impl FnOnce(&mut MessageBuilder<'_>),
    ) -> Reply {
        self.ask(world, Method::ALLOCATE, |builder| {
            builder.requested_transport(17);
            write(builder);
        })
    }

    /// The relayed address of a plain IPv4 allocation.
    pub fn allocate(&mut self, world: &mut World) -> SocketAddr {
        let reply = self.try_allocate(world, |_| ());
        assert_eq!(reply.code(), None);
        reply.relayed()[0]
    }

    /// The relayed address of an IPv6 allocation.
    pub fn allocate_v6(&mut self, world: &mut World) -> SocketAddr {
        let reply = self.try_allocate(world, |b| {
            b.requested_address_family(2);
        });
        assert_eq!(reply.code(), None);
        reply.relayed()[0]
    }

    /// The relayed addresses of a dual allocation: IPv4, IPv6.
    pub fn allocate_both(&mut self, world: &mut World) -> (SocketAddr, SocketAddr) {
        let reply = self.try_allocate(world, |b| {
            b.additional_address_family(2);
        });
        assert_eq!(reply.code(), None);
        (reply.relayed()[0], reply.relayed()[1])
    }

    pub fn permit(&mut self, world: &mut World, peers: &[&str]) -> Reply {
        self.ask(world, Method::CREATE_PERMISSION, |builder| {
            for peer in peers {
                builder.xor_address(AttributeType::XOR_PEER_ADDRESS, addr(peer));
            }
        })
    }

    pub fn bind(&mut self, world: &mut World, number: u16, peer: &str) -> Reply {
        self.ask(world, Method::CHANNEL_BIND, |builder| {
            let [n0, n1] = number.to_be_bytes();
            builder.attribute(AttributeType::CHANNEL_NUMBER, &[n0, n1, 0, 0]);
            builder.xor_address(AttributeType::XOR_PEER_ADDRESS, addr(peer));
        })
    }

    /// Binds a channel, and sends the first data, which installs the route.
    pub fn use_channel(&mut self, world: &mut World, number: u16, peer: &str) {
        self.bind(world, number, peer).success();
        self.send_channel(world, number, b"").to_peer();
    }

    pub fn refresh(&mut self, world: &mut World, lifetime: Option<u32>) -> Reply {
        self.ask(world, Method::REFRESH, |builder| {
            if let Some(lifetime) = lifetime {
                builder.lifetime(lifetime);
            }
        })
    }

    pub fn refresh_half(&mut self, world: &mut World, family: u8, lifetime: u32) -> Reply {
        self.ask(world, Method::REFRESH, |builder| {
            builder.requested_address_family(family).lifetime(lifetime);
        })
    }

    /// An indication as `write` makes it.
    pub fn indication(
        &mut self,
        method: Method,
        write: impl FnOnce(&mut MessageBuilder<'_>),
    ) -> Vec<u8> {
        let mut out = vec![0; 70_000];
        let mut builder =
            MessageBuilder::new(&mut out, Class::Indication, method, self.next_transaction());
        write(&mut builder);
        let len = builder.finish().unwrap();
        out.truncate(len);
        out
    }

    /// A Send indication.
    pub fn send(&mut self, world: &mut World, to: &str, payload: &[u8]) -> Fate {
        let bytes = self.indication(Method::SEND, |builder| {
            builder.xor_address(AttributeType::XOR_PEER_ADDRESS, addr(to)).data(payload);
        });
        world.from_client(&self.path, &bytes)
    }

    /// ChannelData without padding.
    pub fn send_channel(&self, world: &mut World, number: u16, payload: &[u8]) -> Fate {
        world.from_client(&self.path, &channel_message(number, payload))
    }
}

pub fn channel_message(number: u16, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len()).unwrap();
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}
