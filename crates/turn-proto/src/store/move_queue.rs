//! Packets of clients that move to this worker (RFC 8016). Packets are queued in order of arrival
//! until the allocation has arrived.
//!
//! Only a Refresh with an authentic ticket starts a queue, so an unknown 5-tuple has no queue. The
//! memory of each client's queue and of all queues is bounded. A full queue drops the newest
//! packets, which preserves the order.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use ahash::RandomState;
use fair_share::{CLIENTS, Claimant, Share, Slots};
use hashbrown::HashMap;
use turn_types::FiveTuple;

use crate::io::QueuedPacket;
use crate::limits::{QUEUED_BYTES_MAX, QUEUED_BYTES_PER_CLIENT_MAX, QUEUED_PACKET_OVERHEAD};

const _: () = assert!(
    size_of::<(QueuedPacket, Share)>() <= QUEUED_PACKET_OVERHEAD,
    "what a waiting packet is charged covers it"
);

/// The queue is full for the client, for the client's network, or for all clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

#[derive(Debug, Default)]
struct Queue {
    packets: Vec<(QueuedPacket, Share)>,
    bytes: usize,
}

/// Queues of all clients, and the released packets that wait to be polled.
#[derive(Debug)]
pub(crate) struct MoveQueues {
    waiting: HashMap<FiveTuple, Queue, RandomState>,
    released: VecDeque<(QueuedPacket, Share)>,
    /// Shares of the memory of waiting and released packets, in bytes.
    bytes: Slots,
}

impl MoveQueues {
    pub(crate) fn new(hasher: RandomState) -> Self {
        let bytes = Slots::new(&CLIENTS, QUEUED_BYTES_MAX, hasher.clone());
        Self { waiting: HashMap::with_hasher(hasher), released: VecDeque::new(), bytes }
    }

    /// Appends a packet to the client's queue.
    ///
    /// # Errors
    /// The client's queue or the memory of all queues is full, or little memory is left and the
    /// client's share is used up.
    pub(crate) fn push(&mut self, packet: QueuedPacket) -> Result<(), QueueFull> {
        let five_tuple = packet.path.five_tuple;
        let cost = packet.cost();
        let before = self.waiting.get(&five_tuple).map_or(0, |queue| queue.bytes);
        if before + cost > QUEUED_BYTES_PER_CLIENT_MAX {
            return Err(QueueFull);
        }
        // No packet exceeds the queue of a client.
        let bytes = u32::try_from(cost).map_err(|_| QueueFull)?;
        let claimant = Claimant::at(five_tuple.client.ip());
        self.bytes.check_slots(&claimant, bytes).map_err(|_| QueueFull)?;
        let share = self.bytes.keep_slots(&claimant, bytes);
        let queue = self.waiting.entry(five_tuple).or_default();
        queue.packets.push((packet, share));
        queue.bytes += cost;
        Ok(())
    }

    pub(crate) fn has(&self, five_tuple: &FiveTuple) -> bool {
        self.waiting.contains_key(five_tuple)
    }

    /// Releases a client's packets for processing, in order of arrival.
    pub(crate) fn release(&mut self, five_tuple: &FiveTuple) {
        if let Some(queue) = self.waiting.remove(five_tuple) {
            self.released.extend(queue.packets);
        }
    }

    /// Removes the newest packet of an arbitrary client.
    pub(crate) fn take_newest(&mut self) -> Option<QueuedPacket> {
        let five_tuple = *self.waiting.keys().next()?;
        let queue = self.waiting.get_mut(&five_tuple)?;
        let newest = queue.packets.pop();
        if queue.packets.is_empty() {
            self.waiting.remove(&five_tuple);
        } else if let Some((packet, _)) = &newest {
            queue.bytes -= packet.cost();
        }
        let (packet, share) = newest?;
        self.bytes.release(share);
        Some(packet)
    }

    /// Returns the 5-tuples that have a queue.
    pub(crate) fn five_tuples(&self) -> Vec<FiveTuple> {
        self.waiting.keys().copied().collect()
    }

    /// Returns the next released packet.
    pub(crate) fn poll(&mut self) -> Option<QueuedPacket> {
        let (packet, share) = self.released.pop_front()?;
        self.bytes.release(share);
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv6Addr};

    use turn_types::{ClientAddr, ClientPath, IpMeta, ServerAddr, SocketId, Transport};

    use super::*;

    fn packet(port: u16, number: u8, len: usize) -> QueuedPacket {
        packet_from([192, 0, 2, 1].into(), port, number, len)
    }

    /// Returns a packet of a client in another `/16` for each number.
    fn packet_of_network(number: u16, len: usize) -> QueuedPacket {
        let [high, low] = (number + 0x1000).to_be_bytes();
        packet_from([high, low, 0, 1].into(), 1, 0, len)
    }

    fn packet_from(client: IpAddr, port: u16, number: u8, len: usize) -> QueuedPacket {
        let five_tuple = FiveTuple {
            transport: Transport::Udp,
            client: ClientAddr((client, port).into()),
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
        assert_eq!((queues.bytes.held(), queues.waiting.len()), (0, 0));
    }

    #[test]
    fn a_client_and_all_of_them_are_bounded_and_the_newest_go() {
        let mut queues = queues();
        // Empty packets are charged too.
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
        assert!(queues.bytes.held() <= QUEUED_BYTES_MAX, "{}", queues.bytes.held());
        // Packets that are released and not polled still count.
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
        let clients = QUEUED_BYTES_MAX as usize / of_client;
        let packet =
            |number: usize| packet_of_network(number as u16, of_client - QUEUED_PACKET_OVERHEAD);
        for number in 0..clients {
            // The last of these packets exceed the share for a packet of this size.
            if queues.push(packet(number)).is_err() {
                assert!(number > clients * 9 / 10, "{number}");
                queues.push(packet_of_network(number as u16, 0)).unwrap();
            }
        }
        queues.release(&packet(0).path.five_tuple);
        let held = queues.bytes.held();
        assert!(queues.poll().is_some());
        assert_eq!(held - queues.bytes.held(), of_client as u32);
        queues.push(packet(clients)).unwrap();
    }

    /// The clients of a site move at the same time, each with a full queue.
    #[test]
    fn a_site_leaves_memory_to_a_client_of_another_network() {
        let mut queues = queues();
        let mut dropped = 0;
        for number in 0..4096_u128 {
            let client = Ipv6Addr::from_bits(0x2001_0db8_0001 << 80 | number << 64 | 1);
            for _ in 0..7 {
                let packet = packet_from(client.into(), 1, 0, 60_000);
                dropped += u32::from(queues.push(packet).is_err());
            }
        }
        assert!(dropped > 0 && queues.bytes.held() > QUEUED_BYTES_MAX / 8 * 7);
        for number in 0..100 {
            assert_eq!(queues.push(packet_of_network(number, 1200)), Ok(()), "{number}");
        }
    }
}
