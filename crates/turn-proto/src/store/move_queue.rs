//! Packets of clients that move to this worker (RFC 8016), in the order in which they came, until
//! the allocation has arrived and they can be handled.
//!
//! A queue begins only behind a Refresh with an authentic ticket: an unknown 5-tuple has none. The
//! memory of each client's queue and of all queues is bounded; a full one drops the newest packets,
//! which keeps the order.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use ahash::RandomState;
use hashbrown::HashMap;
use turn_types::FiveTuple;

use crate::io::QueuedPacket;
use crate::limits::{QUEUED_BYTES_MAX, QUEUED_BYTES_PER_CLIENT_MAX};

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
    pub(crate) fn push(&mut self, packet: QueuedPacket) -> Result<(), QueueFull> {
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

    pub(crate) fn has(&self, five_tuple: &FiveTuple) -> bool {
        self.waiting.contains_key(five_tuple)
    }

    /// Releases a client's packets to be handled, in their order.
    pub(crate) fn release(&mut self, five_tuple: &FiveTuple) {
        if let Some(queue) = self.waiting.remove(five_tuple) {
            self.released.extend(queue.packets);
        }
    }

    /// The 5-tuples that have a queue.
    pub(crate) fn five_tuples(&self) -> Vec<FiveTuple> {
        self.waiting.keys().copied().collect()
    }

    /// The next packet to be handled.
    pub(crate) fn poll(&mut self) -> Option<QueuedPacket> {
        let packet = self.released.pop_front()?;
        self.bytes -= packet.cost();
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use turn_types::{ClientAddr, ClientPath, IpMeta, ServerAddr, SocketId, Transport};

    use super::*;
    use crate::limits::QUEUED_PACKET_OVERHEAD;

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

    #[test]
    fn all_clients_fill_the_memory_to_the_last_byte_and_each_poll_frees_its_own() {
        let mut queues = queues();
        let of_client = QUEUED_BYTES_PER_CLIENT_MAX / 8;
        let clients = u16::try_from(QUEUED_BYTES_MAX / QUEUED_BYTES_PER_CLIENT_MAX).unwrap();
        for port in 0..clients {
            for number in 0..8 {
                queues.push(packet(port, number, of_client - QUEUED_PACKET_OVERHEAD)).unwrap();
            }
        }
        assert_eq!(queues.push(packet(clients, 0, 0)), Err(QueueFull));
        queues.release(&packet(0, 0, 0).path.five_tuple);
        assert!(queues.poll().is_some());
        let same = || packet(clients, 0, of_client - QUEUED_PACKET_OVERHEAD);
        assert_eq!(queues.push(same()), Ok(()));
        assert_eq!(queues.push(same()), Err(QueueFull));
    }
}
