//! Binding with the attributes of RFC 5780, at an address with NAT behaviour discovery. The
//! response may leave from another server address, go to another port of the client, and be as long
//! as a link carries.
//!
//! The response always goes to the source address of the request, and is never longer than RFC 5780
//! specifies. All responses are charged to the budget of unauthenticated responses.

use stun_wire::{AttributeType, ChangeRequest, Class, Message, MessageBuilder, Method, value};
use turn_types::{ServerAddr, Transport};

use crate::io::{DropReason, Refusal, ReplyBuffer, Request, Responder, Verdict};
use crate::limits::{PADDING_MAX, RESPONSE_PORT_MIN};
use crate::policy::discovery::DiscoverySocket;

/// Attributes of a request that change the response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ResponseChange {
    change: ChangeRequest,
    port: Option<u16>,
    /// Length of PADDING in bytes, a multiple of four.
    padding: Option<u16>,
}

/// Responds to a request received by a discovery socket, after the check for unknown attributes.
pub(super) fn answer(
    request: &Request<'_>,
    responder: &Responder,
    socket: DiscoverySocket<'_>,
    reply: &mut ReplyBuffer,
) -> Result<Verdict, Refusal> {
    let Request { path, message, .. } = *request;
    let wanted = read(&message, path.five_tuple.transport)?;
    let client = path.five_tuple.client;
    let origin = socket.changed(wanted.change);
    let write = |builder: &mut MessageBuilder<'_>| {
        builder
            .xor_address(AttributeType::XOR_MAPPED_ADDRESS, client.0)
            .address(AttributeType::MAPPED_ADDRESS, client.0)
            .address(AttributeType::RESPONSE_ORIGIN, origin.public())
            .address(AttributeType::OTHER_ADDRESS, socket.alternate().public());
    };
    let from = ServerAddr(origin.local());
    let to_port = wanted.port.unwrap_or_else(|| client.port());
    if let Some(padding) = wanted.padding {
        return Ok(match write_padded(reply, &message, padding, write) {
            Some(len) => Verdict::ReplyFrom { len, padding, from, to_port },
            None => Verdict::Drop(DropReason::TooLong),
        });
    }
    let verdict = responder.success(reply, write);
    if let Verdict::Reply { len, .. } = verdict
        && wanted != ResponseChange::default()
    {
        return Ok(Verdict::ReplyFrom { len, padding: 0, from, to_port });
    }
    Ok(verdict)
}

/// Reads the attributes of RFC 5780. On a connection none is allowed, because responses use the
/// same connection.
fn read(message: &Message<'_>, transport: Transport) -> Result<ResponseChange, Refusal> {
    let attribute = |kind| message.first(kind);
    let change = attribute(AttributeType::CHANGE_REQUEST).map(value::change_request).transpose();
    let port = attribute(AttributeType::RESPONSE_PORT).map(value::response_port).transpose();
    let (Ok(change), Ok(port)) = (change, port) else { return Err(Refusal::BadRequest) };
    let wanted = ResponseChange {
        change: change.unwrap_or_default(),
        port,
        padding: attribute(AttributeType::PADDING).map(|padding| padding_for(padding.len())),
    };
    let allowed = !(wanted.padding.is_some() && wanted.port.is_some())
        && wanted.port.is_none_or(|port| port >= RESPONSE_PORT_MIN)
        && (transport.is_datagram() || wanted == ResponseChange::default());
    if allowed { Ok(wanted) } else { Err(Refusal::BadRequest) }
}

/// Returns the length of PADDING in the response to a request with `sent` bytes of PADDING. The
/// maximum is the MTU of Ethernet (RFC 5780 §6.1). The response never has more than the request, to
/// prevent amplification.
fn padding_for(sent: usize) -> u16 {
    const { assert!(PADDING_MAX.is_multiple_of(4)) };
    let whole = u16::try_from(sent).map_or(PADDING_MAX, |sent| sent.min(PADDING_MAX));
    whole & !3
}

/// Writes a response up to the zeros of PADDING, which is the last attribute. No FINGERPRINT
/// follows, because RFC 5780 does not use FINGERPRINT.
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
