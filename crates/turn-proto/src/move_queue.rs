//! Packets of clients that move to this worker (RFC 8016), in the order in which they came, until the
//! allocation has arrived and they can be handled.
//!
//! A queue begins only behind a Refresh with an authentic ticket: an unknown 5-tuple has none. The memory of
//! each client's queue and of all queues is bounded; a full one drops the newest packets, which keeps the order.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use ahash::RandomState;
use hashbrown::HashMap;
use turn_types::{ClientPath, FiveTuple, Instant, IpMeta};

use crate::limits::{QUEUED_BYTES_MAX, QUEUED_BYTES_PER_CLIENT_MAX, QUEUED_PACKET_OVERHEAD};
use crate::relay::FromClient;
use crate::request::Request;
use crate::state::State;
use crate::verdict::{DropReason, Verdict};

/// A packet that has waited for its client's allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedPacket {
    /// The path it came by.
    pub path: ClientPath,
    /// Its TTL, traffic class and DF.
    pub meta: IpMeta,
    /// The packet.
    pub bytes: Box<[u8]>,
    /// It is a request that has waited for its user before ([`Verdict::Wait`]), and has its fate.
    pub has_waited: bool,
}

impl QueuedPacket {
    /// The memory that it is charged for.
    const fn cost(&self) -> usize {
        self.bytes.len() + QUEUED_PACKET_OVERHEAD
    }
}

/// Full, for one client or in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

#[derive(Debug, Default)]
struct Queue {
    packets: Vec<QueuedPacket>,
    bytes: usize,
}

/// The queues of all clients, and the packets that wait to be polled.
#[derive(Debug)]
pub(crate) struct MoveQueues {
    waiting: HashMap<FiveTuple, Queue, RandomState>,
    released: VecDeque<QueuedPacket>,
    /// Of both.
    bytes: usize,
}

impl MoveQueues {
    pub(crate) fn new(hasher: RandomState) -> Self {
        Self { waiting: HashMap::with_hasher(hasher), released: VecDeque::new(), bytes: 0 }
    }

    /// Appends a packet to its client's queue.
    fn push(&mut self, packet: QueuedPacket) -> Result<(), QueueFull> {
        let cost = packet.cost();
        let before = self.waiting.get(&packet.path.five_tuple).map_or(0, |queue| queue.bytes);
        if before + cost > QUEUED_BYTES_PER_CLIENT_MAX || self.bytes + cost > QUEUED_BYTES_MAX {
            return Err(QueueFull);
        }
        let queue = self.waiting.entry(packet.path.five_tuple).or_default();
        queue.packets.push(packet);
        queue.bytes += cost;
        self.bytes += cost;
        Ok(())
    }

    fn has(&self, five_tuple: &FiveTuple) -> bool {
        self.waiting.contains_key(five_tuple)
    }

    /// Lets a client's packets be handled, in their order.
    fn release(&mut self, five_tuple: &FiveTuple) {
        if let Some(queue) = self.waiting.remove(five_tuple) {
            self.released.extend(queue.packets);
        }
    }

    /// The next packet to be handled.
    pub(crate) fn poll(&mut self) -> Option<QueuedPacket> {
        let packet = self.released.pop_front()?;
        self.bytes -= packet.cost();
        Some(packet)
    }
}

impl State {
    /// Queues data of a 5-tuple that has no allocation here, if one is on its way, and has it fetched.
    pub(crate) fn queue_data(&mut self, packet: &FromClient<'_>) -> Result<Verdict, DropReason> {
        let FromClient { path, meta, bytes, now, .. } = *packet;
        if !self.awaits(&path.five_tuple) {
            return Err(DropReason::NoAllocation);
        }
        self.queue(now, QueuedPacket { path: *path, meta, bytes: bytes.into(), has_waited: false })
    }

    /// Queues a request in its place among the data.
    pub(crate) fn queue_request(&mut self, request: &Request<'_>, has_waited: bool) -> Verdict {
        let Request { now, path, message, .. } = *request;
        let bytes = message.bytes().into();
        let packet = QueuedPacket { path: *path, meta: IpMeta::DEFAULT, bytes, has_waited };
        self.queue(now.instant, packet).unwrap_or_else(Verdict::Drop)
    }

    fn queue(&mut self, now: Instant, packet: QueuedPacket) -> Result<Verdict, DropReason> {
        let five_tuple = packet.path.five_tuple;
        let expected = self.arrivals.get(&five_tuple, now).is_some();
        if !expected && !self.pending.is_moving(&five_tuple) {
            return Err(DropReason::NoAllocation);
        }
        let queued = self.move_queues.push(packet);
        if expected {
            self.fetch(&five_tuple, now);
        }
        queued.map(|()| Verdict::Queued).map_err(|QueueFull| DropReason::Moving)
    }

    /// Whether an allocation may be on its way to a 5-tuple.
    pub(crate) fn awaits(&self, five_tuple: &FiveTuple) -> bool {
        self.arrivals.has(five_tuple) || self.pending.is_moving(five_tuple)
    }

    /// Releases the queue of a 5-tuple unless its allocation is still on its way. To be called when
    /// anything of that has changed.
    pub(crate) fn review_queue(&mut self, five_tuple: &FiveTuple, now: Instant) {
        if !self.move_queues.has(five_tuple) || self.pending.is_moving(five_tuple) {
            return;
        }
        let is_here = self.table.of_client(five_tuple).is_some();
        if !is_here && self.arrivals.get(five_tuple, now).is_some() {
            self.fetch(five_tuple, now);
        } else {
            self.move_queues.release(five_tuple);
        }
    }

    /// Releases all queues that wait for nothing any more.
    pub(crate) fn review_queues(&mut self, now: Instant) {
        let waiting: Vec<_> = self.move_queues.waiting.keys().copied().collect();
        for five_tuple in waiting {
            self.review_queue(&five_tuple, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use turn_types::{ClientAddr, ServerAddr, SocketId, Transport};

    use super::*;

    fn packet(port: u16, number: u8, len: usize) -> QueuedPacket {
        let five_tuple = FiveTuple {
            transport: Transport::Udp,
            client: ClientAddr(([192, 0, 2, 1], port).into()),
            server: ServerAddr(([198, 51, 100, 1], 3478).into()),
        };
        let path = ClientPath { five_tuple, socket: SocketId(0) };
        let bytes = alloc::vec![number; len].into();
        QueuedPacket { path, meta: IpMeta::DEFAULT, bytes, has_waited: false }
    }

    fn queues() -> MoveQueues {
        MoveQueues::new(RandomState::with_seeds(1, 2, 3, 4))
    }

    #[test]
    fn packets_come_out_in_their_order_and_free_their_memory() {
        let mut queues = queues();
        for number in 0..3 {
            queues.push(packet(1, number, 10)).unwrap();
            queues.push(packet(2, number, 10)).unwrap();
        }
        assert_eq!(queues.poll(), None);
        queues.release(&packet(1, 0, 0).path.five_tuple);
        for number in 0..3 {
            assert_eq!(queues.poll(), Some(packet(1, number, 10)));
        }
        assert_eq!(queues.poll(), None);
        queues.release(&packet(2, 0, 0).path.five_tuple);
        while queues.poll().is_some() {}
        assert_eq!((queues.bytes, queues.waiting.len()), (0, 0));
    }

    #[test]
    fn a_client_and_all_of_them_are_bounded_and_the_newest_go() {
        let mut queues = queues();
        // Empty packets are not free.
        let most = QUEUED_BYTES_PER_CLIENT_MAX / QUEUED_PACKET_OVERHEAD;
        for _ in 0..most {
            queues.push(packet(0, 0, 0)).unwrap();
        }
        assert_eq!(queues.push(packet(0, 1, 0)), Err(QueueFull));
        queues.push(packet(1, 1, 0)).unwrap();
        for port in 2..2000 {
            let full = (0..9).find(|_| queues.push(packet(port, 0, 60_000)).is_err());
            assert!(full.is_some());
        }
        assert!(queues.bytes <= QUEUED_BYTES_MAX, "{}", queues.bytes);
        // What was released and not polled counts.
        queues.release(&packet(2, 0, 0).path.five_tuple);
        assert_eq!(queues.push(packet(2, 0, 60_000)), Err(QueueFull));
        queues.release(&packet(0, 0, 0).path.five_tuple);
        while queues.poll().is_some() {}
        queues.push(packet(2, 0, 60_000)).unwrap();
    }
}
