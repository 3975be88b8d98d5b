//! Packets that wait for allocations moving to this worker.

use turn_types::{ClientPath, FiveTuple, Instant, IpMeta};

use super::Moves;
use crate::io::{Command, DropReason, Fetch, QueuedPacket, Request, Verdict};
use crate::limits::MOVE_AGAIN_AFTER;
use crate::store::QueueFull;

impl Moves<'_> {
    /// Queues data on a 5-tuple with an allocation moving to this worker, and fetches the
    /// allocation.
    pub(crate) fn queue_data(
        &mut self,
        now: Instant,
        path: &ClientPath,
        meta: IpMeta,
        bytes: &[u8],
    ) -> Result<Verdict, DropReason> {
        if !self.awaits(&path.five_tuple) {
            return Err(DropReason::NoAllocation);
        }
        self.queue(now, QueuedPacket { path: *path, meta, bytes: bytes.into(), has_waited: false })
    }

    /// Queues a request in order with the data.
    pub(crate) fn queue_request(&mut self, request: &Request<'_>, has_waited: bool) -> Verdict {
        let Request { now, path, message, .. } = *request;
        let bytes = message.bytes().into();
        let packet = QueuedPacket { path: *path, meta: IpMeta::DEFAULT, bytes, has_waited };
        self.queue(now.instant, packet).unwrap_or_else(Verdict::Drop)
    }

    fn queue(&mut self, now: Instant, packet: QueuedPacket) -> Result<Verdict, DropReason> {
        let five_tuple = packet.path.five_tuple;
        let expected = self.expected.get(&five_tuple, now).is_some();
        if !expected && !self.pending.is_moving(&five_tuple) {
            return Err(DropReason::NoAllocation);
        }
        let queued = self.queues.push(packet);
        if expected {
            self.fetch(&five_tuple, now);
        }
        queued.map(|()| Verdict::Queued).map_err(|QueueFull| DropReason::Moving)
    }

    /// Returns true if an allocation may be moving to a 5-tuple.
    pub(crate) fn awaits(&self, five_tuple: &FiveTuple) -> bool {
        self.expected.has(five_tuple) || self.pending.is_moving(five_tuple)
    }

    /// Releases the queue of a 5-tuple unless the allocation is still moving to this worker. Must
    /// be called after any change of this condition.
    pub(crate) fn review_queue(&mut self, five_tuple: &FiveTuple, now: Instant) {
        if !self.queues.has(five_tuple) || self.pending.is_moving(five_tuple) {
            return;
        }
        let is_here = self.allocations.of_client(five_tuple).is_some();
        if !is_here && self.expected.get(five_tuple, now).is_some() {
            self.fetch(five_tuple, now);
        } else {
            self.queues.release(five_tuple);
        }
    }

    /// Releases all queues without an allocation moving to this worker.
    pub(crate) fn review_queues(&mut self, now: Instant) {
        for five_tuple in self.queues.five_tuples() {
            self.review_queue(&five_tuple, now);
        }
    }

    /// Requests the allocation of an expected client after a packet from the client.
    pub(super) fn fetch(&mut self, five_tuple: &FiveTuple, now: Instant) {
        let Some(allocation) = self.expected.came(five_tuple, now) else { return };
        match self.registry.location_of(allocation) {
            Some(worker) => {
                let asker = self.ids.worker();
                let fetch = Fetch { allocation, asker, five_tuple: *five_tuple };
                self.outbox.command(Command::Fetch { worker, fetch });
                self.repeat_at(now + MOVE_AGAIN_AFTER);
            }
            None => self.fetch_failed(five_tuple, now),
        }
    }

    /// Stops expecting a client whose allocation could not be fetched. The allocation has ended, or
    /// has moved to another worker.
    pub(crate) fn fetch_failed(&mut self, five_tuple: &FiveTuple, now: Instant) {
        self.expected.remove(five_tuple);
        self.review_queue(five_tuple, now);
    }

    /// Schedules the next repetition of questions to other workers at `at`, or earlier.
    pub(super) fn repeat_at(&mut self, at: Instant) {
        *self.repeat_at = Some(at.earliest(*self.repeat_at));
    }
}
