//! Client that sends one request at a time, with immediate answers to commands.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use stun_wire::{
    AttributeType, Class, IntegrityKey, IntegrityKind, LongTermKeys, Message, MessageBuilder,
    Method, TransactionId,
};
use turn_proto::{Authorization, Command, Event, GrantLimits};
use turn_types::{ClientPath, Now};

use super::driver::{Driver, Sent};
use super::setup::{REALM, look_up, password_of};

/// Answers all commands immediately and correctly. Returns the server's last message.
pub fn settle(driver: &mut Driver, now: Now, first: Option<Sent>) -> Option<Sent> {
    let mut sent = first;
    while !driver.commands.is_empty() {
        for command in std::mem::take(&mut driver.commands) {
            let event = match command {
                Command::FindUser { pending, user, .. } => {
                    Event::UserFound { pending, answer: look_up(&user) }
                }
                Command::Authorize { pending, .. } => {
                    let answer = Authorization::Granted(GrantLimits::default());
                    Event::Authorized { pending, answer }
                }
                Command::UserOverdue { pending } => {
                    Event::UserFound { pending, answer: turn_proto::UserAnswer::Unavailable }
                }
                Command::OpenRelay { pending, relay, .. } => {
                    Event::RelayOpened { pending, relay, result: Ok(()) }
                }
                Command::CloseRelay { .. }
                | Command::SetRoute(_)
                | Command::RemoveRoute(_)
                | Command::SuspendRoutes
                | Command::ResumeRoutes
                | Command::AskWorker { .. }
                | Command::Fetch { .. }
                | Command::HandOver(_)
                | Command::Tcp(_) => {
                    continue;
                }
            };
            sent = driver.answer(now, event).or(sent);
        }
    }
    sent
}

/// A client address and its nonce.
#[derive(Debug)]
pub struct Caller {
    pub path: ClientPath,
    nonce: Option<Vec<u8>>,
    keys: BTreeMap<&'static str, IntegrityKey>,
    requests: u32,
}

impl Caller {
    pub fn new(client: SocketAddr, listener: usize) -> Self {
        let path = Driver::path(client, listener);
        Self { path, nonce: None, keys: BTreeMap::new(), requests: 0 }
    }

    /// Sends a request as this user, and returns the request with its response. A nonce is fetched
    /// first, and again after it has become stale.
    pub fn ask(
        &mut self,
        driver: &mut Driver,
        now: Now,
        (user, method): (&'static str, Method),
        write: impl Fn(&mut MessageBuilder<'_>),
    ) -> (Vec<u8>, Vec<u8>) {
        loop {
            let request = self.request((user, method), &write);
            let reply = self.send(driver, now, &request).expect("requests are answered");
            if !self.hear(&reply) {
                return (request, reply);
            }
        }
    }

    /// Stores the nonce of a challenge. Returns false if the response has no nonce.
    pub fn hear(&mut self, reply: &[u8]) -> bool {
        let message = Message::parse(reply).unwrap();
        let Some(nonce) = message.first(AttributeType::NONCE) else { return false };
        self.nonce = Some(nonce.to_vec());
        true
    }

    /// Sends a packet and returns the answer.
    pub fn send(&mut self, driver: &mut Driver, now: Now, packet: &[u8]) -> Option<Vec<u8>> {
        let sent = driver.client(now, &self.path, packet);
        let sent = settle(driver, now, sent)?;
        assert_eq!(sent.to, self.path.five_tuple.client.0, "the answer went elsewhere");
        Some(sent.payload)
    }

    /// A request as this user, sealed if there is a nonce.
    pub fn request(
        &mut self,
        (user, method): (&'static str, Method),
        write: impl FnOnce(&mut MessageBuilder<'_>),
    ) -> Vec<u8> {
        let mut out = [0; 1_400];
        let mut builder = MessageBuilder::new(&mut out, Class::Request, method, self.next_id());
        write(&mut builder);
        let len = match &self.nonce {
            Some(nonce) => {
                let key = self.keys.entry(user).or_insert_with(|| {
                    let keys = LongTermKeys::new(user, REALM, &password_of(user)).unwrap();
                    IntegrityKey::new(&keys.md5)
                });
                builder.username(user).realm(REALM);
                builder.attribute(AttributeType::NONCE, nonce);
                builder.integrity(IntegrityKind::Sha1, key).finish()
            }
            None => builder.finish(),
        };
        out[..len.unwrap()].to_vec()
    }

    /// A Send indication.
    pub fn send_indication(&mut self, peer: SocketAddr, payload: &[u8]) -> Vec<u8> {
        let mut out = [0; 1_400];
        let id = self.next_id();
        let mut builder = MessageBuilder::new(&mut out, Class::Indication, Method::SEND, id);
        builder.xor_address(AttributeType::XOR_PEER_ADDRESS, peer).data(payload);
        let len = builder.finish().unwrap();
        out[..len].to_vec()
    }

    fn next_id(&mut self) -> TransactionId {
        self.requests += 1;
        let mut id = [0; 12];
        id[..4].copy_from_slice(&self.requests.to_be_bytes());
        TransactionId(id)
    }
}
