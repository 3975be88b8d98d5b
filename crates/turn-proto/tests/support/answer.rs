//! A strict decoder of answers: the rules of every answer.

use std::net::SocketAddr;

use stun_wire::*;

use super::Client;

/// An answer that is in order.
#[derive(Clone, Debug)]
pub struct Reply {
    pub bytes: Vec<u8>,
    pub sealed: bool,
}

/// Attributes that may occur in a response more than once.
const REPEATABLE: [AttributeType; 2] =
    [AttributeType::XOR_RELAYED_ADDRESS, AttributeType::ALTERNATE_SERVER];

impl Reply {
    /// Decodes the response to a request of this client.
    pub fn decode(client: &Client, request: &[u8], bytes: Vec<u8>) -> Self {
        let request = Message::parse(request).unwrap();
        let message = Message::parse(&bytes).unwrap();
        assert_eq!(message.method(), request.method(), "8489-5-06");
        assert_eq!(message.transaction_id(), request.transaction_id(), "8489-5-06");
        assert_eq!(message.has_fingerprint(), request.has_fingerprint(), "FINGERPRINT is mirrored");
        assert!(bytes.len() <= 548, "8489-6.1-01: {} bytes", bytes.len());
        check_attributes(&bytes);
        let sealed = message.integrity().is_present();
        if sealed {
            check_sealed(client, &request, &message);
        }
        match message.class() {
            Class::Success => assert!(message.first(AttributeType::ERROR_CODE).is_none()),
            Class::Error => {
                let value = message.first(AttributeType::ERROR_CODE).expect("8489-6.3.1.1-01");
                let (code, phrase) = value::error_code(value).unwrap();
                assert_eq!(phrase, reason_phrase(code), "8489-6.3.1.1-02");
                assert_eq!(value[0..2], [0, 0], "8489-14.8-03");
                assert_eq!(value[2] & 0xF8, 0, "8489-14.8-03");
            }
            class => panic!("{class:?} is no answer"),
        }
        Self { bytes, sealed }
    }

    pub fn message(&self) -> Message<'_> {
        Message::parse(&self.bytes).unwrap()
    }

    /// The error code; `None` for a success.
    pub fn code(&self) -> Option<u16> {
        self.first(AttributeType::ERROR_CODE).map(|value| value::error_code(value).unwrap().0)
    }

    /// Demands a success under integrity.
    pub fn success(self) -> Self {
        assert_eq!(self.code(), None);
        assert!(self.sealed, "8489-9.2.4-18");
        self
    }

    /// Demands this error under integrity.
    pub fn refused(self, code: u16) -> Self {
        assert_eq!(self.code(), Some(code));
        assert!(self.sealed, "8489-9.2.4-18");
        self
    }

    pub fn first(&self, kind: AttributeType) -> Option<&[u8]> {
        Message::parse(&self.bytes).unwrap().first(kind)
    }

    pub fn has(&self, kind: AttributeType) -> bool {
        self.first(kind).is_some()
    }

    pub fn lifetime(&self) -> u32 {
        value::lifetime(self.first(AttributeType::LIFETIME).unwrap()).unwrap()
    }

    pub fn nonce(&self) -> String {
        value::nonce(self.first(AttributeType::NONCE).unwrap()).unwrap().to_owned()
    }

    pub fn token(&self) -> Option<[u8; 8]> {
        self.first(AttributeType::RESERVATION_TOKEN).map(|v| value::reservation_token(v).unwrap())
    }

    pub fn relayed(&self) -> Vec<SocketAddr> {
        self.addresses(AttributeType::XOR_RELAYED_ADDRESS)
    }

    pub fn mapped(&self) -> SocketAddr {
        self.addresses(AttributeType::XOR_MAPPED_ADDRESS)[0]
    }

    pub fn unknown(&self) -> Vec<AttributeType> {
        let value = self.first(AttributeType::UNKNOWN_ATTRIBUTES).unwrap();
        value::unknown_attributes(value).collect()
    }

    /// ADDRESS-ERROR-CODE: family and code.
    pub fn address_error(&self) -> Option<(u8, u16)> {
        let value = self.first(AttributeType::ADDRESS_ERROR_CODE)?;
        assert_eq!((value[1], value[2] & 0xF8), (0, 0), "8656-18.12-01: reserved bits");
        let (family, code, phrase) = value::address_error_code(value).unwrap();
        assert_eq!(phrase, reason_phrase(code));
        Some((family, code))
    }

    fn addresses(&self, kind: AttributeType) -> Vec<SocketAddr> {
        let message = self.message();
        let values = message.attributes().filter(|attribute| attribute.kind == kind);
        values.map(|a| value::xor_address(a.value, message.transaction_id()).unwrap()).collect()
    }
}

/// A Data indication, strictly decoded: the peer, DATA, ICMP.
pub struct DataIndication {
    pub peer: SocketAddr,
    pub data: Option<Vec<u8>>,
    pub icmp: Option<Icmp>,
    pub id: TransactionId,
}

impl DataIndication {
    pub fn decode(bytes: &[u8]) -> Self {
        let message = Message::parse(bytes).unwrap();
        assert_eq!((message.class(), message.method()), (Class::Indication, Method::DATA));
        check_attributes(bytes);
        let kinds: Vec<_> = message.attributes().map(|attribute| attribute.kind).collect();
        assert_eq!(kinds.len(), 2, "XOR-PEER-ADDRESS and DATA or ICMP: {kinds:?}");
        let id = message.transaction_id();
        let peer = message.first(AttributeType::XOR_PEER_ADDRESS).unwrap();
        Self {
            peer: value::xor_address(peer, id).unwrap(),
            data: message.first(AttributeType::DATA).map(<[u8]>::to_vec),
            icmp: message.first(AttributeType::ICMP).map(|value| value::icmp(value).unwrap()),
            id,
        }
    }
}

/// Padding is zero, and nothing is there twice that should not be (8489-14-01, 8489-14-02).
fn check_attributes(bytes: &[u8]) {
    let mut seen = Vec::new();
    let mut rest = &bytes[20..];
    while !rest.is_empty() {
        let kind = AttributeType(u16::from_be_bytes([rest[0], rest[1]]));
        let len = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        let padded = len.next_multiple_of(4);
        assert!(rest[4 + len..4 + padded].iter().all(|byte| *byte == 0), "padding of {kind:?}");
        assert!(!seen.contains(&kind) || REPEATABLE.contains(&kind), "{kind:?} twice");
        assert!(kind.name().is_some(), "{kind:?} is nothing we send");
        seen.push(kind);
        rest = &rest[4 + padded..];
    }
}

/// Checks that a response to an authenticated request has exactly the requested integrity, and
/// contains no credentials (8489-9.2.4-18, 8489-9.2.4-19).
fn check_sealed(client: &Client, request: &Message<'_>, answer: &Message<'_>) {
    let algorithms = request.first(AttributeType::PASSWORD_ALGORITHM).is_some()
        || request.first(AttributeType::PASSWORD_ALGORITHMS).is_some();
    let integrity = answer.integrity();
    assert_eq!((integrity.sha1.is_none(), integrity.sha256.is_some()), (algorithms, algorithms));
    assert!(answer.verify(&client.key()), "integrity of the answer");
    for kind in [
        AttributeType::REALM,
        AttributeType::NONCE,
        AttributeType::USERNAME,
        AttributeType::USERHASH,
        AttributeType::PASSWORD_ALGORITHMS,
    ] {
        assert!(answer.first(kind).is_none(), "{kind:?} in a sealed answer");
    }
}
