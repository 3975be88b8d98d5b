//! Scripted server: the tests choose its responses.

use std::net::SocketAddr;
use std::time::Duration;

use stun_wire::{
    AttributeType, Class, IntegrityKey, IntegrityKind, Message, MessageBuilder, Method,
    PasswordAlgorithm, SecurityFeatures, long_term_key_md5, long_term_key_sha256,
};
use turn_client::{AllocateOptions, Client, ClientConfig, Event, Incoming};
use turn_types::{Instant, PeerAddr, ServerAddr};

pub(crate) const REALM: &str = "turn.example";

pub(crate) fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub(crate) fn peer(text: &str) -> PeerAddr {
    PeerAddr(addr(text))
}

pub(crate) fn at(secs: f64) -> Instant {
    Instant::ZERO + Duration::from_secs_f64(secs)
}

pub(crate) fn config() -> ClientConfig {
    ClientConfig::new(ServerAddr(addr("192.0.2.1:3478")), "alice", "wonderland", [7; 32])
}

/// Integrity attribute of the test server's responses.
#[derive(Clone, Copy)]
pub(crate) enum Integrity {
    None,
    Sha1,
    Sha256,
    WrongKey,
}

fn key(kind: IntegrityKind) -> IntegrityKey {
    match kind {
        IntegrityKind::Sha1 => {
            IntegrityKey::new(&long_term_key_md5("alice", REALM, "wonderland").unwrap())
        }
        IntegrityKind::Sha256 => {
            IntegrityKey::new(&long_term_key_sha256("alice", REALM, "wonderland").unwrap())
        }
    }
}

/// Returns a response to `request`.
pub(crate) fn answer(
    request: &[u8],
    class: Class,
    integrity: Integrity,
    write: impl FnOnce(&mut MessageBuilder<'_>),
) -> Vec<u8> {
    let request = Message::parse(request).unwrap();
    let mut out = [0; 1500];
    let mut builder =
        MessageBuilder::new(&mut out, class, request.method(), request.transaction_id());
    write(&mut builder);
    let len = match integrity {
        Integrity::None => builder.finish(),
        Integrity::Sha1 => {
            builder.integrity(IntegrityKind::Sha1, &key(IntegrityKind::Sha1)).finish()
        }
        Integrity::Sha256 => {
            builder.integrity(IntegrityKind::Sha256, &key(IntegrityKind::Sha256)).finish()
        }
        Integrity::WrongKey => {
            builder.integrity(IntegrityKind::Sha256, &IntegrityKey::new(b"guess")).finish()
        }
    };
    out[..len.unwrap()].to_vec()
}

pub(crate) fn error(request: &[u8], code: u16, integrity: Integrity) -> Vec<u8> {
    answer(request, Class::Error, integrity, |builder| {
        builder.error_code(code, stun_wire::reason_phrase(code));
    })
}

/// Attributes of a challenge.
#[derive(Clone, Copy)]
pub(crate) struct Challenge {
    pub(crate) code: u16,
    pub(crate) features: Option<SecurityFeatures>,
    pub(crate) algorithms: &'static [PasswordAlgorithm],
    pub(crate) nonce: &'static str,
}

impl Challenge {
    /// Challenge of a server of RFC 8489 with all features.
    pub(crate) const MODERN: Self = Self {
        code: 401,
        features: Some(SecurityFeatures { password_algorithms: true, username_anonymity: true }),
        algorithms: &[PasswordAlgorithm::SHA256, PasswordAlgorithm::MD5],
        nonce: "first",
    };

    /// Challenge of a server of RFC 5389.
    pub(crate) const OLD: Self =
        Self { code: 401, features: None, algorithms: &[], nonce: "an-old-nonce" };

    pub(crate) fn answer(self, request: &[u8]) -> Vec<u8> {
        answer(request, Class::Error, Integrity::None, |builder| {
            let cookie = self.features.map(SecurityFeatures::cookie);
            let cookie = cookie.as_ref().map_or("", |cookie| std::str::from_utf8(cookie).unwrap());
            builder.error_code(self.code, "").realm(REALM);
            builder.nonce(&format!("{cookie}{}", self.nonce));
            if !self.algorithms.is_empty() {
                builder.password_algorithms(self.algorithms);
            }
        })
    }
}

/// Returns a success response to an Allocate, for `secs` seconds.
pub(crate) fn allocated(request: &[u8], secs: u32, integrity: Integrity) -> Vec<u8> {
    answer(request, Class::Success, integrity, |builder| {
        builder.xor_address(AttributeType::XOR_RELAYED_ADDRESS, addr("198.51.100.1:50000"));
        builder.xor_address(AttributeType::XOR_MAPPED_ADDRESS, addr("203.0.113.5:6000"));
        builder.lifetime(secs);
    })
}

pub(crate) fn success(request: &[u8]) -> Vec<u8> {
    answer(request, Class::Success, Integrity::Sha256, |_| {})
}

pub(crate) fn refreshed(request: &[u8], secs: u32) -> Vec<u8> {
    answer(request, Class::Success, Integrity::Sha256, |builder| {
        builder.lifetime(secs);
    })
}

/// Returns the only request that waits to be sent.
pub(crate) fn sent(client: &mut Client) -> Vec<u8> {
    let mut all = all_sent(client);
    assert_eq!(all.len(), 1, "one request");
    all.remove(0)
}

pub(crate) fn all_sent(client: &mut Client) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| client.poll_transmit().map(<[u8]>::to_vec)).collect()
}

pub(crate) fn events(client: &mut Client) -> Vec<Event> {
    std::iter::from_fn(|| client.poll_event()).collect()
}

pub(crate) fn method(request: &[u8]) -> Method {
    Message::parse(request).unwrap().method()
}

/// Returns a client with an allocation for 600 s, granted at 0 s by a modern server.
pub(crate) fn client_with_allocation() -> Client {
    let mut client = Client::new(config());
    client.allocate(at(0.0), AllocateOptions::default()).unwrap();
    let request = sent(&mut client);
    client.handle_datagram(at(0.0), &Challenge::MODERN.answer(&request));
    let request = sent(&mut client);
    let reply = allocated(&request, 600, Integrity::Sha256);
    let incoming = client.handle_datagram(at(0.0), &reply);
    assert_eq!(incoming, Incoming::Answer);
    assert!(matches!(events(&mut client)[..], [Event::Allocated(_)]));
    client
}

/// Answers all requests of the client until no request is in flight. Returns the requests.
pub(crate) fn serve(client: &mut Client, now: Instant) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let requests = all_sent(client);
        if requests.is_empty() {
            return all;
        }
        for request in requests {
            let reply = match method(&request) {
                Method::REFRESH => refreshed(&request, 600),
                _ => success(&request),
            };
            assert_eq!(client.handle_datagram(now, &reply), Incoming::Answer);
            all.push(request);
        }
    }
}
