//! Binding with what RFC 5780 adds, at an address where NAT behaviour discovery is served: the answer
//! may leave from another of our addresses, go to another port of the client, and be as long as a link
//! carries.
//!
//! Whatever is asked for, the answer goes to the address that the request came from, is no longer than
//! the RFC has it, and counts in the budget of unauthenticated responses like any other.

use stun_wire::{AttributeType, ChangeRequest, Class, Message, MessageBuilder, Method, value};
use turn_types::{ServerAddr, Transport};

use super::Request;
use crate::answer::Responder;
use crate::discovery::Corner;
use crate::limits::{PADDING_MAX, RESPONSE_PORT_MIN};
use crate::notice::Refusal;
use crate::state::State;
use crate::verdict::{DropReason, ReplyBuffer, Verdict};

/// The comprehension-required attributes that are understood there, and nowhere else.
pub(crate) fn is_understood(kind: AttributeType) -> bool {
    matches!(
        kind,
        AttributeType::CHANGE_REQUEST | AttributeType::PADDING | AttributeType::RESPONSE_PORT
    )
}

/// What a request asks of its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wish {
    change: ChangeRequest,
    port: Option<u16>,
    /// Bytes of PADDING, a multiple of four.
    padding: Option<u16>,
}

impl State {
    /// The answer to a request that came to a corner and has nothing in it that is not understood.
    pub(crate) fn answer_discovery(
        &mut self,
        request: &Request<'_>,
        (responder, corner): (&Responder, Corner<'_>),
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        let Request { policy, path, message, .. } = *request;
        let wish = match read(&message, path.five_tuple.transport) {
            Ok(wish) => wish,
            Err(reason) => return self.refuse_unauthenticated(request, responder, reason, reply),
        };
        if let Err(spent) = self.charge(request, request.source_address()) {
            return Verdict::Drop(spent);
        }
        let client = path.five_tuple.client;
        let origin = corner.changed(wish.change);
        let write = |builder: &mut MessageBuilder<'_>| {
            builder
                .xor_address(AttributeType::XOR_MAPPED_ADDRESS, client.0)
                .address(AttributeType::MAPPED_ADDRESS, client.0)
                .address(AttributeType::RESPONSE_ORIGIN, origin.public())
                .address(AttributeType::OTHER_ADDRESS, corner.opposite().public());
        };
        let from = ServerAddr(origin.local());
        let to_port = wish.port.unwrap_or_else(|| client.port());
        if let Some(padding) = wish.padding {
            return match write_padded(reply, &message, padding, write) {
                Some(len) => Verdict::ReplyFrom { len, padding, from, to_port },
                None => Verdict::Drop(DropReason::TooLong),
            };
        }
        let verdict = responder.success(policy, reply, write);
        match verdict {
            Verdict::Reply { len, .. } if wish != Wish::default() => {
                Verdict::ReplyFrom { len, padding: 0, from, to_port }
            }
            Verdict::Reply { .. }
            | Verdict::ReplyFrom { .. }
            | Verdict::ToPeer { .. }
            | Verdict::ToClient { .. }
            | Verdict::Wait
            | Verdict::Hold
            | Verdict::Queued
            | Verdict::Drop(_) => verdict,
        }
    }
}

/// What a request asks for; none of it can be had on a connection, whose answers come back on it.
fn read(message: &Message<'_>, transport: Transport) -> Result<Wish, Refusal> {
    let attribute = |kind| message.first(kind);
    let change = attribute(AttributeType::CHANGE_REQUEST).map(value::change_request).transpose();
    let port = attribute(AttributeType::RESPONSE_PORT).map(value::response_port).transpose();
    let (Ok(change), Ok(port)) = (change, port) else { return Err(Refusal::BadRequest) };
    let wish = Wish {
        change: change.unwrap_or_default(),
        port,
        padding: attribute(AttributeType::PADDING).map(|padding| padding_for(padding.len())),
    };
    let allowed = !(wish.padding.is_some() && wish.port.is_some())
        && wish.port.is_none_or(|port| port >= RESPONSE_PORT_MIN)
        && (transport.is_datagram() || wish == Wish::default());
    if allowed { Ok(wish) } else { Err(Refusal::BadRequest) }
}

/// How much PADDING answers so much of it: what an Ethernet link carries (RFC 5780 §6.1), and never
/// more than was sent, so that nothing is amplified.
fn padding_for(sent: usize) -> u16 {
    const { assert!(PADDING_MAX.is_multiple_of(4)) };
    let whole = u16::try_from(sent).map_or(PADDING_MAX, |sent| sent.min(PADDING_MAX));
    whole & !3
}

/// Writes an answer up to the zeros of its PADDING, which end it: there is no FINGERPRINT behind them,
/// which RFC 5780 does not use.
fn write_padded(
    reply: &mut ReplyBuffer,
    message: &Message<'_>,
    padding: u16,
    write: impl FnOnce(&mut MessageBuilder<'_>),
) -> Option<u16> {
    let id = message.transaction_id();
    let mut builder = MessageBuilder::new(reply, Class::Success, Method::BINDING, id);
    write(&mut builder);
    builder.finish_before_padding(padding).and_then(|len| u16::try_from(len).ok())
}
