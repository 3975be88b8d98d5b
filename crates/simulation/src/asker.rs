//! Authenticated requests over one connection, one at a time, by the long-term mechanism.

use std::net::{IpAddr, SocketAddr};

use netsim::Rng;
use stun_wire::{
    AttributeType, Class, IntegrityKey, IntegrityKind, LongTermKeys, Message, MessageBuilder,
    Method, TransactionId, value,
};
use turn_types::UnixSeconds;

use crate::client::{ClientPlan, Login};
use crate::link::Link;
use crate::tcp::TcpEnd;

/// Protocol number of TCP, in REQUESTED-TRANSPORT.
const TCP: u8 = 6;

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    Allocate,
    /// Lifetime in seconds.
    Refresh(u32),
    Permit(IpAddr),
    Connect(SocketAddr),
    /// CONNECTION-ID.
    Bind(u32),
}

/// A message of the server.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A success, to the request.
    Answer(Ask, Vec<u8>),
    /// An error.
    Refused(Ask),
    Indication(Vec<u8>),
    /// The connection has ended.
    Ended,
}

/// One connection and its login.
#[derive(Debug)]
pub(crate) struct Asker {
    pub(crate) link: Link,
    login: Login,
    /// REALM and NONCE of the last challenge.
    challenge: Option<(String, String)>,
    waiting: Option<(TransactionId, Ask)>,
}

impl Asker {
    pub(crate) fn new(plan: &ClientPlan, now: UnixSeconds, end: TcpEnd) -> Self {
        let link = Link::stream(plan.transport, end);
        let login = (plan.log_in)(plan.user, now);
        Self { link, login, challenge: None, waiting: None }
    }

    /// Makes a request, unless one is unanswered.
    pub(crate) fn ask(&mut self, rng: &mut Rng, ask: Ask) {
        if self.waiting.is_none() {
            self.send(rng, ask);
        }
    }

    fn send(&mut self, rng: &mut Rng, ask: Ask) {
        let mut id = [0; 12];
        id.copy_from_slice(&rng.bytes(12));
        let id = TransactionId(id);
        let mut out = [0; 1000];
        let mut builder = MessageBuilder::new(&mut out, Class::Request, ask.method(), id);
        ask.write(&mut builder);
        let len = match &self.challenge {
            None => builder.finish(),
            Some((realm, nonce)) => {
                let Login { user, password, .. } = &self.login;
                builder.username(user).realm(realm).nonce(nonce);
                let keys = LongTermKeys::new(user, realm, password);
                let key = IntegrityKey::new(&keys.expect("allowed characters").md5);
                builder.integrity(IntegrityKind::Sha1, &key).finish()
            }
        };
        self.waiting = Some((id, ask));
        self.link.send(&out[..len.expect("room")]);
    }

    /// The next message that matters; challenges are answered.
    pub(crate) fn receive(&mut self, rng: &mut Rng) -> Option<Heard> {
        loop {
            let bytes = match self.link.receive() {
                Ok(Some(bytes)) => bytes,
                Ok(None) => return None,
                Err(()) => return Some(Heard::Ended),
            };
            let Ok(message) = Message::parse(&bytes) else { continue };
            if message.class() == Class::Indication {
                return Some(Heard::Indication(bytes));
            }
            let waiting = self.waiting.take_if(|(id, _)| *id == message.transaction_id());
            let Some((_, ask)) = waiting else { continue };
            if message.class() == Class::Success {
                return Some(Heard::Answer(ask, bytes));
            }
            let code = message.first(AttributeType::ERROR_CODE).map(value::error_code);
            let text = |kind| {
                let value: Option<&[u8]> = message.first(kind);
                value.and_then(|value| std::str::from_utf8(value).ok()).map(str::to_owned)
            };
            let challenge = text(AttributeType::REALM).zip(text(AttributeType::NONCE));
            let had_none = self.challenge.is_none();
            let again = match code {
                Some(Ok((401, _))) => had_none,
                Some(Ok((438, _))) => true,
                _ => false,
            };
            if !again || challenge.is_none() {
                return Some(Heard::Refused(ask));
            }
            self.challenge = challenge;
            self.send(rng, ask);
        }
    }
}

impl Ask {
    const fn method(self) -> Method {
        match self {
            Self::Allocate => Method::ALLOCATE,
            Self::Refresh(_) => Method::REFRESH,
            Self::Permit(_) => Method::CREATE_PERMISSION,
            Self::Connect(_) => Method::CONNECT,
            Self::Bind(_) => Method::CONNECTION_BIND,
        }
    }

    fn write(self, builder: &mut MessageBuilder<'_>) {
        let peer = AttributeType::XOR_PEER_ADDRESS;
        match self {
            Self::Allocate => builder.requested_transport(TCP),
            Self::Refresh(seconds) => builder.lifetime(seconds),
            Self::Permit(ip) => builder.xor_address(peer, SocketAddr::new(ip, 0)),
            Self::Connect(to) => builder.xor_address(peer, to),
            Self::Bind(id) => builder.connection_id(id),
        };
    }
}
