//! Binding (RFC 8489 §12): returns the client's address as received by the server. The
//! implementation is the RFC's basic server: no redirection, and FINGERPRINT is not required.
//! Credentials are required only if the policy demands them.

use stun_wire::AttributeType;
use turn_types::ClientPath;

use super::discovery;
use crate::io::{Authenticated, Refusal, ReplyBuffer, Request, Responder, Verdict};
use crate::policy::discovery::DiscoverySocket;
use crate::store::{Budgets, Outbox, Source};

pub(crate) fn handle(
    request: &Request<'_>,
    budgets: &mut Budgets,
    outbox: &mut Outbox,
    reply: &mut ReplyBuffer,
) -> Verdict {
    let Request { policy, path, message, .. } = *request;
    let responder = Responder::new(path, &message);
    if let Err(spent) = budgets.charge_response(Source::of(request), message.method(), outbox) {
        return Verdict::Drop(spent);
    }
    let refuse = |reason, outbox: &mut Outbox, reply: &mut ReplyBuffer| {
        outbox.refused(&responder, reason);
        responder.error(reply, reason, |builder| {
            if reason == Refusal::UnknownAttributes {
                builder.unknown_attributes(&request.unknown_listed());
            }
        })
    };
    if request.unknown_attributes().next().is_some() {
        return refuse(Refusal::UnknownAttributes, outbox, reply);
    }
    if let Some(socket) = DiscoverySocket::of(policy, path) {
        let answered = discovery::answer(request, &responder, socket, reply);
        return answered.unwrap_or_else(|reason| refuse(reason, outbox, reply));
    }
    mapped(&responder, path, reply)
}

/// Responds to an authenticated request, where the policy requires credentials.
pub(crate) fn answer(own: &Authenticated<'_>, reply: &mut ReplyBuffer) -> Verdict {
    mapped(own.responder, own.request.path, reply)
}

fn mapped(responder: &Responder, path: &ClientPath, reply: &mut ReplyBuffer) -> Verdict {
    responder.success(reply, |builder| {
        builder.xor_address(AttributeType::XOR_MAPPED_ADDRESS, path.five_tuple.client.0);
    })
}
