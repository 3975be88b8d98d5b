//! The path of a client that moves, where both ends of the move are this worker's.

use turn_types::{AllocationId, FiveTuple, Instant};

use crate::io::{Command, Fetch, Notice};
use crate::policy::Policy;
use crate::store::{Allocations, Next, Outbox, Slot};

/// Makes the expected 5-tuple the only one, after a packet of the client came on it.
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

/// Handles the end of the connection of a client that may move: the allocation goes on where the
/// client is expected, or waits for it.
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

/// The allocation with this id, if it is here and its client may move.
pub(super) fn mobile_slot(
    allocations: &Allocations,
    now: Instant,
    id: AllocationId,
) -> Option<Slot> {
    let slot = allocations.of_id(id)?;
    let allocation = allocations.get(slot);
    (allocation.mobility.is_some() && allocation.is_live(now)).then_some(slot)
}
