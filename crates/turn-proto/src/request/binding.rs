//! Binding (RFC 8489 §12): tells a client how it looks from here. The basic server: no credentials,
//! no redirection, FINGERPRINT not required.

use stun_wire::AttributeType;

use super::{Request, unknown};
use crate::answer::Responder;
use crate::discovery::Corner;
use crate::notice::Refusal;
use crate::state::State;
use crate::verdict::{ReplyBuffer, Verdict};

impl State {
    pub(crate) fn answer_binding(
        &mut self,
        request: &Request<'_>,
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        let Request { policy, path, message, .. } = *request;
        let responder = Responder::new(path, &message);
        if unknown(request).next().is_some() {
            let reason = Refusal::UnknownAttributes;
            return self.refuse_unauthenticated(request, &responder, reason, reply);
        }
        if let Some(corner) = Corner::of(policy, path) {
            return self.answer_discovery(request, (&responder, corner), reply);
        }
        if let Err(spent) = self.charge(request, request.source_address()) {
            return Verdict::Drop(spent);
        }
        responder.success(policy, reply, |builder| {
            builder.xor_address(AttributeType::XOR_MAPPED_ADDRESS, path.five_tuple.client.0);
        })
    }
}
