//! Queue of DTLS handshake datagrams that wait for an iteration with processor time.
//!
//! Without the queue, clients that started at the same moment would retransmit at the same moment:
//! one, three and seven seconds later. Only a part of these clients would be served each time. (TLS
//! handshakes wait in the kernel's receive buffers instead.)
//!
//! Only datagrams after a valid cookie enter the queue: hellos with a valid cookie, and records of
//! half-open sessions. Datagrams of clients that have sent few datagrams are first. Datagrams of
//! one client remain in order. When the queue is full, the last datagram is dropped. Repeated
//! hellos keep their position. A hello that the client has not repeated in time is dropped.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

use ahash::RandomState;
use fair_share::{CLIENTS, Claimant, FairQueue};
use turn_types::{FiveTuple, Instant, SocketId};

use crate::limits::{
    HANDSHAKE_DATAGRAM_MAX, HANDSHAKE_DELAY, HANDSHAKE_WAIT_MAX, HANDSHAKES_WAITING,
    HANDSHAKES_WAITING_PER_CLIENT,
};

/// Part of a handshake, identified before processing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A hello with a valid cookie, with the receiving listener and the client's random.
    Hello { listener: SocketId, random: [u8; 32] },
    /// Records of a half-open session.
    Records(SocketId),
}

/// Waiting datagram.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(super) five_tuple: FiveTuple,
    pub(super) part: Part,
    pub(super) bytes: Box<[u8]>,
    /// Time of arrival. For a hello, the time of the last repetition.
    came: Instant,
}

/// Result of adding a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// The datagram waits.
    Queued,
    /// An identical hello waits already.
    Repeated,
    /// The client's part of the queue, or the complete queue, is full. The named part was dropped,
    /// and may belong to another client.
    Dropped(FiveTuple, Part),
}

/// Queue of one worker.
#[derive(Debug)]
pub(super) struct HandshakeQueue {
    datagrams: FairQueue<Waiting>,
    /// Number of datagrams of each client with waiting datagrams.
    of_clients: HashMap<FiveTuple, usize>,
    /// True if each address belongs to one customer.
    is_by_customer: bool,
}

impl Waiting {
    /// Returns true after [`HANDSHAKE_WAIT_MAX`].
    pub(super) fn is_stale(&self, now: Instant) -> bool {
        now.saturating_since(self.came) >= HANDSHAKE_WAIT_MAX
    }

    /// Returns true if `part` is a repetition of this hello by the same client.
    fn is_repeated_by(&self, part: Part) -> bool {
        matches!(part, Part::Hello { .. }) && self.part == part
    }
}

impl HandshakeQueue {
    /// Creates an empty queue. If many customers share an address, datagrams are sorted by arrival.
    pub(super) fn new(is_by_customer: bool, hasher: RandomState) -> Self {
        let datagrams = FairQueue::new(&CLIENTS, HANDSHAKES_WAITING, HANDSHAKE_DELAY, hasher);
        Self { datagrams, of_clients: HashMap::new(), is_by_customer }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// Adds a datagram that was received from `five_tuple`, if the queue has space.
    pub(super) fn push(
        &mut self,
        now: Instant,
        five_tuple: FiveTuple,
        part: Part,
        bytes: &[u8],
    ) -> Pushed {
        let of_client = self.of_clients.get(&five_tuple).copied().unwrap_or(0);
        if of_client > 0 && matches!(part, Part::Hello { .. }) {
            let mut own = self.datagrams.iter_mut().filter(|other| other.five_tuple == five_tuple);
            if let Some(other) = own.find(|other| other.is_repeated_by(part)) {
                other.came = now;
                return Pushed::Repeated;
            }
        }
        if of_client >= HANDSHAKES_WAITING_PER_CLIENT || bytes.len() > HANDSHAKE_DATAGRAM_MAX {
            return Pushed::Dropped(five_tuple, part);
        }
        *self.of_clients.entry(five_tuple).or_default() += 1;
        let waiting = Waiting { five_tuple, part, bytes: bytes.into(), came: now };
        let client = if self.is_by_customer {
            Claimant::at(five_tuple.client.0.ip())
        } else {
            Claimant::at_shared_address()
        };
        let dropped = self.datagrams.push(now, &client, waiting);
        let Some(other) = dropped else { return Pushed::Queued };
        self.forget(&other);
        Pushed::Dropped(other.five_tuple, other.part)
    }

    /// Removes the first datagram if the datagram is stale, or if `may_be_served` returns true.
    pub(super) fn take_first(
        &mut self,
        now: Instant,
        may_be_served: impl FnOnce(IpAddr, Part) -> bool,
    ) -> Option<Waiting> {
        let first = self.datagrams.first()?;
        let client = first.five_tuple.client.0.ip();
        if first.is_stale(now) || may_be_served(client, first.part) { self.pop() } else { None }
    }

    /// Removes the first datagram.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let waiting = self.datagrams.pop()?;
        self.forget(&waiting);
        Some(waiting)
    }

    /// Decrements the number of the client's datagrams.
    fn forget(&mut self, waiting: &Waiting) {
        if let Entry::Occupied(mut count) = self.of_clients.entry(waiting.five_tuple) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use turn_types::{ClientAddr, ServerAddr, Transport};

    use super::*;

    const NOW: Instant = Instant::ZERO;
    const RECORDS: Part = Part::Records(SocketId(7));

    fn from(network: u8, host: u16, port: u16) -> FiveTuple {
        let [high, low] = host.to_be_bytes();
        FiveTuple {
            transport: Transport::Dtls,
            client: ClientAddr(([192, network, high, low], port).into()),
            server: ServerAddr(([198, 51, 100, 1], 3478).into()),
        }
    }

    const fn hello(random: u8) -> Part {
        Part::Hello { listener: SocketId(0), random: [random; 32] }
    }

    fn queue(is_by_customer: bool) -> HandshakeQueue {
        HandshakeQueue::new(is_by_customer, RandomState::with_seeds(1, 2, 3, 4))
    }

    fn push(queue: &mut HandshakeQueue, five_tuple: FiveTuple, part: Part) -> Pushed {
        queue.push(NOW, five_tuple, part, b"bytes")
    }

    fn pop_all(queue: &mut HandshakeQueue) -> Vec<FiveTuple> {
        std::iter::from_fn(|| queue.pop()).map(|waiting| waiting.five_tuple).collect()
    }

    #[test]
    fn without_shares_datagrams_come_out_in_their_order_and_nothing_is_left() {
        let mut queue = queue(false);
        for number in 0..9 {
            let part = if number % 2 == 0 { hello(1) } else { RECORDS };
            let client = from(0, number % 3, number);
            assert_eq!(queue.push(NOW, client, part, &[number as u8]), Pushed::Queued);
        }
        for number in 0..9 {
            let waiting = queue.pop().unwrap();
            let expected = (from(0, number % 3, number), &[number as u8][..]);
            assert_eq!((waiting.five_tuple, &*waiting.bytes), expected);
        }
        assert!(queue.is_empty() && queue.of_clients.is_empty());
    }

    #[test]
    fn who_has_sent_little_overtakes_others_and_not_itself() {
        let mut queue = queue(true);
        let [flooder, other] = [1, 2].map(|network| move |port| from(network, 0, port));
        for port in 0..3 {
            push(&mut queue, flooder(port), hello(1));
        }
        push(&mut queue, other(0), RECORDS);
        push(&mut queue, other(1), RECORDS);
        let order = [flooder(0), other(0), flooder(1), other(1), flooder(2)];
        assert_eq!(pop_all(&mut queue), order);
    }

    #[test]
    fn the_first_is_taken_if_it_may_be_served_or_nobody_has_repeated_it() {
        let mut queue = queue(false);
        let [gone, here] = [1, 2].map(|port| from(0, 0, port));
        push(&mut queue, gone, hello(1));
        push(&mut queue, here, hello(1));
        let later = NOW + Duration::from_secs(1);
        assert_eq!(queue.push(later, here, hello(1), b"bytes"), Pushed::Repeated);
        assert!(queue.take_first(later, |_, _| false).is_none());
        let mut take = |now, may| Some(queue.take_first(now, |_, _| may)?.five_tuple);
        assert_eq!(take(NOW + HANDSHAKE_WAIT_MAX, false), Some(gone));
        assert_eq!(take(NOW + HANDSHAKE_WAIT_MAX, false), None);
        assert_eq!(take(later, true), Some(here));
    }

    #[test]
    fn a_hello_that_comes_again_keeps_its_place() {
        let mut queue = queue(true);
        let (alice, bob) = (from(1, 0, 1), from(2, 0, 2));
        assert_eq!(push(&mut queue, alice, hello(1)), Pushed::Queued);
        assert_eq!(push(&mut queue, bob, hello(1)), Pushed::Queued);
        let later = NOW + Duration::from_secs(1);
        assert_eq!(queue.push(later, alice, hello(1), b"bytes"), Pushed::Repeated);
        // Another handshake, and parts that look alike but differ.
        for part in [hello(2), RECORDS, RECORDS] {
            assert_eq!(push(&mut queue, alice, part), Pushed::Queued);
        }
        assert_eq!(pop_all(&mut queue), [alice, bob, alice, alice, alice]);
    }

    #[test]
    fn a_client_has_a_few_places() {
        for is_by_customer in [true, false] {
            let mut queue = queue(is_by_customer);
            let client = from(0, 0, 1);
            for _ in 0..HANDSHAKES_WAITING_PER_CLIENT {
                assert_eq!(push(&mut queue, client, RECORDS), Pushed::Queued);
            }
            assert_eq!(push(&mut queue, client, RECORDS), Pushed::Dropped(client, RECORDS));
            assert_eq!(push(&mut queue, from(0, 0, 2), RECORDS), Pushed::Queued);
        }
    }

    #[test]
    fn without_shares_a_full_queue_takes_nobody() {
        let mut queue = queue(false);
        for number in 0..HANDSHAKES_WAITING {
            let port = (number / HANDSHAKES_WAITING_PER_CLIENT) as u16;
            assert_eq!(push(&mut queue, from(0, 0, port), RECORDS), Pushed::Queued);
        }
        for newcomer in [from(0, 0, 9999), from(0, 1, 0)] {
            let dropped = Pushed::Dropped(newcomer, hello(1));
            assert_eq!(push(&mut queue, newcomer, hello(1)), dropped);
        }
    }

    /// A botnet keeps the queue full, and a part of the queue is served.
    #[test]
    fn for_a_newcomer_a_datagram_of_who_has_sent_most_is_dropped() {
        let mut queue = queue(true);
        let bot = |number: u16| from((number % 250) as u8, (number / 250) << 8, number);
        for round in 0..5 {
            for number in 0..1000 {
                push(&mut queue, bot(number), hello(round));
                if number % 4 == 0 {
                    queue.pop();
                }
            }
        }
        push(&mut queue, bot(0), hello(9));
        let newcomers = [251, 252, 253, 254].map(|network| from(network, 1, 1));
        for newcomer in newcomers {
            let Pushed::Dropped(other, _) = push(&mut queue, newcomer, hello(1)) else {
                panic!("the queue is full")
            };
            assert_ne!(other, newcomer);
        }
        let first: Vec<_> = (0..4).map(|_| queue.pop().unwrap().five_tuple).collect();
        assert_eq!(first, newcomers);
    }

    #[test]
    fn what_is_longer_than_handshakes_are_does_not_wait() {
        let mut queue = queue(true);
        let (client, bytes) = (from(0, 0, 1), [0; HANDSHAKE_DATAGRAM_MAX + 1]);
        let dropped = Pushed::Dropped(client, RECORDS);
        assert_eq!(queue.push(NOW, client, RECORDS, &bytes), dropped);
        assert_eq!(queue.push(NOW, client, RECORDS, &bytes[1..]), Pushed::Queued);
    }
}
