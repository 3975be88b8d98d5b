//! Requests put together attribute by attribute, right or wrong.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use stun_wire::*;

use super::{Client, REALM, World};

/// Forged request: the attributes before the integrity.
#[derive(Clone, Debug)]
pub struct Forge {
    method: Method,
    id: TransactionId,
    attributes: Vec<(AttributeType, Vec<u8>)>,
}

impl Forge {
    /// A request of the client with nothing in it.
    pub fn empty(client: &mut Client, method: Method) -> Self {
        Self { method, id: client.next_transaction(), attributes: Vec::new() }
    }

    /// Returns a sound request of the client without its integrity.
    pub fn new(client: &mut Client, world: &mut World, method: Method) -> Self {
        if client.nonce.is_none() {
            client.log_in(world);
        }
        let forge = Self::empty(client, method);
        let forge = match method {
            Method::ALLOCATE => forge.with(AttributeType::REQUESTED_TRANSPORT, [17, 0, 0, 0]),
            _ => forge,
        };
        forge
            .with(AttributeType::USERNAME, client.user)
            .with(AttributeType::REALM, REALM)
            .with(AttributeType::NONCE, client.nonce.clone().unwrap())
    }

    /// Replaces an attribute at its position, or appends it.
    pub fn with(mut self, kind: AttributeType, value: impl Into<Vec<u8>>) -> Self {
        match self.attributes.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, old)) => *old = value.into(),
            None => self.attributes.push((kind, value.into())),
        }
        self
    }

    /// Appends an attribute, even if it is there already.
    pub fn and(mut self, kind: AttributeType, value: impl Into<Vec<u8>>) -> Self {
        self.attributes.push((kind, value.into()));
        self
    }

    pub fn without(mut self, kind: AttributeType) -> Self {
        self.attributes.retain(|(other, _)| *other != kind);
        self
    }

    /// Sets PASSWORD-ALGORITHMS as offered, and the choice of an algorithm.
    pub fn choosing(self, algorithm: u8) -> Self {
        self.with(AttributeType::PASSWORD_ALGORITHMS, [0, 2, 0, 0, 0, 1, 0, 0])
            .with(AttributeType::PASSWORD_ALGORITHM, [0, algorithm, 0, 0])
    }

    pub fn bare(self) -> Vec<u8> {
        self.finish(|builder| builder.finish())
    }

    pub fn sealed(self, kind: IntegrityKind, key: &IntegrityKey) -> Vec<u8> {
        self.finish(|builder| builder.integrity(kind, key).finish())
    }

    pub fn sealed_both(self, key: &IntegrityKey) -> Vec<u8> {
        let sha1 = self.clone().sealed(IntegrityKind::Sha1, key);
        let mac = sha1.last_chunk::<20>().unwrap();
        self.with(AttributeType::MESSAGE_INTEGRITY, *mac).sealed(IntegrityKind::Sha256, key)
    }

    pub fn sealed_truncated(self, key: &IntegrityKey, len: usize) -> Vec<u8> {
        // The HMAC covers the length of the message with the attribute.
        let mut covered =
            self.clone().with(AttributeType::MESSAGE_INTEGRITY_SHA256, vec![0; len]).bare();
        covered.truncate(covered.len() - 4 - len);
        let mut mac = Hmac::<Sha256>::new_from_slice(key.raw()).unwrap();
        mac.update(&covered);
        let mac = &mac.finalize().into_bytes()[..len];
        self.with(AttributeType::MESSAGE_INTEGRITY_SHA256, mac).bare()
    }

    fn finish(self, end: impl FnOnce(MessageBuilder<'_>) -> Option<usize>) -> Vec<u8> {
        let mut out = vec![0; 8192];
        let mut builder = MessageBuilder::new(&mut out, Class::Request, self.method, self.id);
        for (kind, value) in &self.attributes {
            builder.attribute(*kind, value);
        }
        let len = end(builder).unwrap();
        out.truncate(len);
        out
    }
}

/// Returns the message with another attribute after its end, and with an updated length field.
pub fn append(mut message: Vec<u8>, kind: AttributeType, value: &[u8]) -> Vec<u8> {
    message.extend_from_slice(&kind.0.to_be_bytes());
    message.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
    message.extend_from_slice(value);
    message.resize(message.len().next_multiple_of(4), 0);
    let len = u16::try_from(message.len() - 20).unwrap();
    message[2..4].copy_from_slice(&len.to_be_bytes());
    message
}
