//! STUN requests with credentials, and their answers.

use std::io;

use stun_wire::{
    AttributeType, Class, IntegrityKey, IntegrityKind, Message, MessageBuilder, Method,
    TransactionId, long_term_key_md5,
};

/// Pseudo-random numbers of a seed (xorshift64*).
#[derive(Clone, Debug)]
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}

/// Long-term credentials.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    name: String,
    realm: &'static str,
    key: IntegrityKey,
}

impl Login {
    pub(crate) fn new(name: &str, realm: &'static str, password: &str) -> Self {
        let key = long_term_key_md5(name, realm, password).expect("names and passwords are ASCII");
        Self { name: name.to_owned(), realm, key: IntegrityKey::new(&key) }
    }
}

/// A request, sealed with credentials where there are any with a nonce.
pub(crate) fn request(
    method: Method,
    noise: &mut Noise,
    login: Option<(&Login, &str)>,
    fill: impl FnOnce(&mut MessageBuilder<'_>),
) -> Vec<u8> {
    let mut out = vec![0; 600];
    let mut id = [0; 12];
    id[..8].copy_from_slice(&noise.next().to_be_bytes());
    let mut builder = MessageBuilder::new(&mut out, Class::Request, method, TransactionId(id));
    fill(&mut builder);
    let len = match login {
        None => builder.finish(),
        Some((login, nonce)) => {
            builder.username(&login.name).realm(login.realm).nonce(nonce);
            builder.integrity(IntegrityKind::Sha1, &login.key).finish()
        }
    };
    out.truncate(len.expect("the request fits"));
    out
}

/// An Allocate request for a relay of a transport (UDP 17, TCP 6).
pub(crate) fn allocate(transport: u8, noise: &mut Noise, login: Option<(&Login, &str)>) -> Vec<u8> {
    request(Method::ALLOCATE, noise, login, |builder| {
        builder.requested_transport(transport);
    })
}

/// Response to a request.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// Error code; `None` for a success.
    pub(crate) code: Option<u16>,
    /// NONCE.
    pub(crate) nonce: Option<String>,
}

impl Answer {
    /// The answer to `request`, if `message` is one.
    pub(crate) fn to(request: &[u8], message: &[u8]) -> Option<Self> {
        if message.get(8..20) != request.get(8..20) {
            return None;
        }
        let message = Message::parse(message).ok()?;
        let code = match message.class() {
            Class::Success => None,
            Class::Error | Class::Request | Class::Indication => message
                .first(AttributeType::ERROR_CODE)
                .and_then(|value| Some(u16::from(*value.get(2)?) * 100 + u16::from(*value.get(3)?)))
                .or(Some(0)),
        };
        let nonce = message
            .first(AttributeType::NONCE)
            .and_then(|nonce| Some(std::str::from_utf8(nonce).ok()?.to_owned()));
        Some(Self { code, nonce })
    }

    /// # Errors
    /// The request was refused.
    pub(crate) fn success(self) -> io::Result<()> {
        self.code.map_or(Ok(()), |code| Err(io::Error::other(format!("refused: {code}"))))
    }
}
