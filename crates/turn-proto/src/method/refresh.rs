//! Refresh (RFC 8656 §8.2): refreshes an allocation, or immediately deletes the allocation with
//! LIFETIME 0. In a dual allocation REQUESTED-ADDRESS-FAMILY selects one relayed address, otherwise
//! both are refreshed. For a Refresh with a mobility ticket see [`crate::mobility::by_ticket`].

use crate::io::{Authenticated, RefreshRequest, Refusal, ReplyBuffer, Verdict, whole_seconds};
use crate::store::{Allocations, Outbox, Slot};

pub(crate) fn handle(
    own: &Authenticated<'_>,
    allocations: &mut Allocations,
    slot: Slot,
    outbox: &mut Outbox,
    reply: &mut ReplyBuffer,
) -> Result<Verdict, Refusal> {
    let Authenticated { request, grant, responder, .. } = *own;
    let wanted = RefreshRequest::read(&request.message)?;
    let (policy, now) = (request.policy, request.now);
    let lifetime = allocations.refresh(policy, now, slot, grant, wanted, outbox)?;
    Ok(responder.success(reply, |builder| {
        builder.lifetime(whole_seconds(lifetime));
    }))
}
