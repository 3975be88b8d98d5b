//! Path of a client that moves, if this worker has both the old and the new 5-tuple.

use turn_types::{AllocationId, FiveTuple, Instant};

use crate::io::{Command, Fetch, Notice};
use crate::policy::Policy;
use crate::store::{Allocations, Next, Outbox, Slot};

/// Replaces the path by the expected 5-tuple, after a packet of the client on this 5-tuple.
pub(crate) fn complete_move(
    policy: &Policy,
    now: Instant,
    allocations: &mut Allocations,
    slot: Slot,
    outbox: &mut Outbox,
) {
    allocations.withdraw_routes(slot, outbox);
    let Some((from, to)) = allocations.take_next_path(slot) else { return };
    let id = allocations.get(slot).id;
    outbox.notice(Notice::AllocationMoved { id, from, to: to.five_tuple });
    allocations.update_routes(policy, now, slot, outbox);
}

/// Handles the end of a mobile client's connection. The allocation continues where the client is
/// expected, or waits for the client.
pub(crate) fn lose(
    policy: &Policy,
    now: Instant,
    allocations: &mut Allocations,
    slot: Slot,
    five_tuple: &FiveTuple,
    outbox: &mut Outbox,
) {
    let allocation = allocations.get(slot);
    let id = allocation.id;
    if allocation.expects(five_tuple) {
        allocations.forget_next(slot);
        return;
    }
    match allocation.next() {
        Some(Next::Here(_)) => complete_move(policy, now, allocations, slot, outbox),
        Some(Next::Worker(asker, five_tuple)) => {
            allocations.withdraw_routes(slot, outbox);
            allocations.detach(slot);
            outbox.command(Command::HandOver(Fetch { allocation: id, asker, five_tuple }));
        }
        None => {
            allocations.withdraw_routes(slot, outbox);
            allocations.detach(slot);
        }
    }
}

/// Returns the slot of a live allocation by id, if this worker has the allocation and the client
/// may move.
pub(super) fn mobile_slot(
    allocations: &Allocations,
    now: Instant,
    id: AllocationId,
) -> Option<Slot> {
    let slot = allocations.of_id(id)?;
    let allocation = allocations.get(slot);
    (allocation.mobility.is_some() && allocation.is_live(now)).then_some(slot)
}
