//! Binding for clients of RFC 3489, which send messages without the magic cookie (RFC 5389 §12.2).
//! The policy has a separate switch for these clients. Responses have MAPPED-ADDRESS and no
//! FINGERPRINT. On request they leave from another address, where NAT behaviour discovery is
//! served. RESPONSE-ADDRESS is refused, because any client could direct responses to any address.

use alloc::vec::Vec;
use core::net::SocketAddr;

use stun_wire::{
    AttributeType, ChangeRequest, Class, ClassicMessage, Message, MessageBuilder, Method,
    reason_phrase, value,
};
use turn_types::{ClientPath, Now, PeerAddr, ServerAddr, Transport};

use crate::io::{DropReason, Notice, Refusal, RefusedRequest, ReplyBuffer, Verdict};
use crate::limits::{REQUEST_BYTES_MAX, UNKNOWN_LISTED_MAX};
use crate::policy::Policy;
use crate::policy::discovery::DiscoverySocket;
use crate::policy::peers::to_public;
use crate::store::{Budgets, Outbox, Source};

/// Policy, time, path and stores for a message without the cookie.
#[derive(Debug)]
pub(crate) struct Classic<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) now: Now,
    pub(crate) path: &'a ClientPath,
    pub(crate) budgets: &'a mut Budgets,
    pub(crate) outbox: &'a mut Outbox,
}

impl Classic<'_> {
    /// Handles a STUN message without the cookie.
    pub(crate) fn handle(
        &mut self,
        bytes: &[u8],
        reply: &mut ReplyBuffer,
    ) -> Result<Verdict, DropReason> {
        let transport = self.path.five_tuple.transport;
        let served = match transport {
            Transport::Udp => self.policy.rfc3489_clients,
            Transport::Dtls => true,
            Transport::Tcp | Transport::Tls => false,
        };
        if !served || bytes.len() > REQUEST_BYTES_MAX {
            return Err(DropReason::MalformedStun);
        }
        let message = Message::parse_classic(bytes).map_err(|_| DropReason::MalformedStun)?;
        match message.class() {
            Class::Request if transport == Transport::Dtls => {
                // A client over DTLS cannot be a client of RFC 3489 (RFC 8489 §11).
                self.refuse(&message, Refusal::NoCookie, reply)
            }
            Class::Request if message.method() == Method::BINDING => self.answer(&message, reply),
            Class::Request | Class::Indication => Err(DropReason::UnexpectedMethod),
            Class::Success | Class::Error => Err(DropReason::UnexpectedResponse),
        }
    }

    fn answer(
        &mut self,
        message: &ClassicMessage<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<Verdict, DropReason> {
        let Self { policy, path, .. } = *self;
        let socket = DiscoverySocket::of(policy, path);
        if unknown(message, socket.is_some()).next().is_some() {
            return self.refuse(message, Refusal::UnknownAttributes, reply);
        }
        let change = message.first(AttributeType::CHANGE_REQUEST).map(value::change_request);
        let Ok(change) = change.transpose().map(Option::unwrap_or_default) else {
            return self.refuse(message, Refusal::BadRequest, reply);
        };
        self.charge()?;

        let origin = socket.map(|socket| socket.changed(change));
        let source = origin.map_or_else(|| source_of(policy, path), |origin| origin.public());
        let client = path.five_tuple.client;
        let id = message.transaction_id();
        let mut builder = MessageBuilder::new_classic(reply, Class::Success, Method::BINDING, id);
        builder
            .address(AttributeType::MAPPED_ADDRESS, client.0)
            .address(AttributeType::SOURCE_ADDRESS, source);
        if let Some(socket) = socket {
            builder.address(AttributeType::CHANGED_ADDRESS, socket.alternate().public());
        }
        let len = finish(builder)?;
        Ok(match origin {
            Some(origin) if change != ChangeRequest::default() => {
                let from = ServerAddr(origin.local());
                Verdict::ReplyFrom { len, padding: 0, from, to_port: client.port() }
            }
            Some(_) | None => Verdict::Reply { len, error: false },
        })
    }

    fn refuse(
        &mut self,
        message: &ClassicMessage<'_>,
        reason: Refusal,
        reply: &mut ReplyBuffer,
    ) -> Result<Verdict, DropReason> {
        self.charge()?;
        let (method, id) = (message.method(), message.transaction_id());
        self.outbox.notice(Notice::Refused(RefusedRequest {
            path: *self.path,
            method,
            user: None,
            claimed: None,
            account: None,
            peer: None,
            share: None,
            reason,
        }));
        let mut builder = MessageBuilder::new_classic(reply, Class::Error, method, id);
        builder.error_code(reason.code(), reason_phrase(reason.code()));
        if reason == Refusal::UnknownAttributes {
            let discovery = DiscoverySocket::of(self.policy, self.path).is_some();
            let mut kinds: Vec<_> = unknown(message, discovery).take(UNKNOWN_LISTED_MAX).collect();
            // RFC 3489 §11.2.10 has no padding. A list of odd length repeats its last entry.
            if let (Some(last), false) = (kinds.last().copied(), kinds.len().is_multiple_of(2)) {
                kinds.push(last);
            }
            builder.unknown_attributes(&kinds);
        }
        Ok(Verdict::Reply { len: finish(builder)?, error: true })
    }

    /// Charges a response to the budget of Binding responses.
    fn charge(&mut self) -> Result<(), DropReason> {
        let Self { policy, now, path, .. } = *self;
        let source = Source::new(policy, now.instant, path);
        self.budgets.charge_response(source, Method::BINDING, self.outbox)
    }
}

fn finish(builder: MessageBuilder<'_>) -> Result<u16, DropReason> {
    builder.finish().and_then(|len| u16::try_from(len).ok()).ok_or(DropReason::TooLong)
}

/// Returns the public form of the source address of responses, if known.
fn source_of(policy: &Policy, path: &ClientPath) -> SocketAddr {
    to_public(policy, PeerAddr(path.five_tuple.server.0))
}

/// Returns the comprehension-required attributes of RFC 3489 that are not understood.
fn unknown<'a>(
    message: &ClassicMessage<'a>,
    discovery: bool,
) -> impl Iterator<Item = AttributeType> + use<'a> {
    message.attributes().map(|attribute| attribute.kind).filter(move |kind| {
        let known = match *kind {
            AttributeType::CHANGE_REQUEST => discovery,
            AttributeType::RESPONSE_ADDRESS => false,
            AttributeType(number) => (1..=AttributeType::REFLECTED_FROM.0).contains(&number),
        };
        kind.is_comprehension_required() && !known
    })
}
