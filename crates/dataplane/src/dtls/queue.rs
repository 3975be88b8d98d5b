//! Datagrams of DTLS handshakes that found no processor time in a turn of the loop, in the order in
//! which they came, until a turn has time for them.
//!
//! Without the queue, all clients that began at the same moment would send again at the same
//! moment, one, three and seven seconds later, and only a turn's worth of them would be served each
//! time. (TLS handshakes wait in the kernel's receive buffers instead.)
//!
//! Only datagrams behind a valid cookie enter it: hellos with one, and records of half-open
//! sessions. When the queue is full, the newest datagram of the customer that has most is dropped,
//! as with half-open sessions (`sessions.rs`): to keep others out, a botnet needs as many addresses
//! as the queue has entries. Repeated hellos keep their position, and one that its client has not
//! repeated in time is dropped.
//!
//! The order of each customer is kept. Customers that have used little of their share overtake
//! others in the last part of a turn.

use std::collections::{HashMap, VecDeque};

use turn_types::{FiveTuple, Instant, Prefix, SocketId};

use crate::limits::{
    HANDSHAKE_DATAGRAM_MAX, HANDSHAKE_WAIT_MAX, HANDSHAKES_WAITING, HANDSHAKES_WAITING_PER_CLIENT,
    HANDSHAKES_WAITING_PER_CUSTOMER,
};

/// Part of a handshake, identified before its processing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A hello with a valid cookie: its listener and its random.
    Hello { listener: SocketId, random: [u8; 32] },
    /// Records of a half-open session.
    Records(SocketId),
}

/// A waiting datagram.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(super) five_tuple: FiveTuple,
    pub(super) part: Part,
    pub(super) bytes: Box<[u8]>,
    /// Time of arrival; of a hello, of its last repetition.
    came: Instant,
}

/// The result of adding a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// Waits.
    Queued,
    /// The same hello waits already.
    Repeated,
    /// The queue is full, of this client, of its customer or in all: this part is dropped, which
    /// may be of another client.
    Dropped(FiveTuple, Part),
}

/// The queue of one worker.
#[derive(Debug)]
pub(super) struct HandshakeQueue {
    datagrams: VecDeque<Waiting>,
    /// Datagrams of each customer that has any.
    of_customers: HashMap<Prefix, usize>,
    /// True where each address is one customer's.
    is_by_customer: bool,
}

impl Waiting {
    fn customer(&self) -> Prefix {
        Prefix::customer(self.five_tuple.client.0.ip())
    }

    /// Returns true after [`HANDSHAKE_WAIT_MAX`].
    pub(super) fn is_stale(&self, now: Instant) -> bool {
        now.saturating_since(self.came) >= HANDSHAKE_WAIT_MAX
    }

    /// Returns true for this hello, received once more from the same client.
    fn is_repeated_by(&self, part: Part) -> bool {
        matches!(part, Part::Hello { .. }) && self.part == part
    }
}

impl HandshakeQueue {
    /// An empty queue. Where many customers are behind an address, none has a limit of its own.
    pub(super) fn new(is_by_customer: bool) -> Self {
        Self { datagrams: VecDeque::new(), of_customers: HashMap::new(), is_by_customer }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// Appends a datagram that came along `five_tuple`, if there is room.
    pub(super) fn push(
        &mut self,
        now: Instant,
        five_tuple: FiveTuple,
        part: Part,
        bytes: &[u8],
    ) -> Pushed {
        let dropped = Pushed::Dropped(five_tuple, part);
        let customer = Prefix::customer(five_tuple.client.0.ip());
        let of_customer = self.of_customers.get(&customer).copied().unwrap_or(0);
        if of_customer > 0 {
            let mut of_client = 0;
            for other in self.datagrams.iter_mut().filter(|other| other.five_tuple == five_tuple) {
                if other.is_repeated_by(part) {
                    other.came = now;
                    return Pushed::Repeated;
                }
                of_client += 1;
            }
            if of_client >= HANDSHAKES_WAITING_PER_CLIENT {
                return dropped;
            }
        }
        let is_customer_full =
            self.is_by_customer && of_customer >= HANDSHAKES_WAITING_PER_CUSTOMER;
        if is_customer_full || bytes.len() > HANDSHAKE_DATAGRAM_MAX {
            return dropped;
        }
        let mut pushed = Pushed::Queued;
        if self.datagrams.len() >= HANDSHAKES_WAITING {
            let Some(other) = self.newest_of_most(of_customer).and_then(|at| self.remove(at))
            else {
                return dropped;
            };
            pushed = Pushed::Dropped(other.five_tuple, other.part);
        }
        *self.of_customers.entry(customer).or_default() += 1;
        self.datagrams.push_back(Waiting { five_tuple, part, bytes: bytes.into(), came: now });
        pushed
    }

    /// The newest datagram of the customer that has most, if that still has more than `count`
    /// without it.
    fn newest_of_most(&self, count: usize) -> Option<usize> {
        let most = self.of_customers.iter().max_by_key(|(_, count)| **count);
        let (customer, _) = most.filter(|(_, most)| self.is_by_customer && **most > count + 1)?;
        self.datagrams.iter().rposition(|waiting| waiting.customer() == *customer)
    }

    /// Takes out the first datagram from `position` on that is stale, or that `may_be_served`.
    /// `position` is then that of the next one.
    pub(super) fn take_next(
        &mut self,
        now: Instant,
        position: &mut usize,
        mut may_be_served: impl FnMut(Prefix, Part) -> bool,
    ) -> Option<Waiting> {
        while let Some(waiting) = self.datagrams.get(*position) {
            if waiting.is_stale(now) || may_be_served(waiting.customer(), waiting.part) {
                return self.remove(*position);
            }
            *position += 1;
        }
        None
    }

    /// Takes out the oldest.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        self.remove(0)
    }

    /// Takes the datagram at a position out.
    fn remove(&mut self, position: usize) -> Option<Waiting> {
        let waiting = self.datagrams.remove(position)?;
        let customer = waiting.customer();
        if let Some(count) = self.of_customers.get_mut(&customer) {
            *count -= 1;
            if *count == 0 {
                self.of_customers.remove(&customer);
            }
        }
        Some(waiting)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use turn_types::{ClientAddr, ServerAddr, Transport};

    use super::*;

    const NOW: Instant = Instant::ZERO;

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

    const RECORDS: Part = Part::Records(SocketId(7));

    fn push(queue: &mut HandshakeQueue, five_tuple: FiveTuple, part: Part) -> Pushed {
        queue.push(NOW, five_tuple, part, b"bytes")
    }

    /// Fills the queue by customers that have so many places each.
    fn full_of(each: usize) -> HandshakeQueue {
        let mut queue = HandshakeQueue::new(true);
        for number in 0..HANDSHAKES_WAITING {
            let client = from(0, (number / each) as u16, (number % each) as u16);
            assert_eq!(push(&mut queue, client, RECORDS), Pushed::Queued);
        }
        queue
    }

    #[test]
    fn datagrams_come_out_in_their_order_and_nothing_is_left() {
        let mut queue = HandshakeQueue::new(true);
        for number in 0..9 {
            let part = if number % 2 == 0 { hello(1) } else { RECORDS };
            assert_eq!(queue.push(NOW, from(0, number % 3, number), part, &[number as u8]), {
                Pushed::Queued
            });
        }
        for number in 0..9 {
            let waiting = queue.pop().unwrap();
            assert_eq!(
                (waiting.five_tuple, &*waiting.bytes),
                (from(0, number % 3, number), &[number as u8][..])
            );
        }
        assert!(queue.is_empty() && queue.of_customers.is_empty());
    }

    /// Takes out all datagrams for which `has_time` is true.
    fn take_all(
        queue: &mut HandshakeQueue,
        now: Instant,
        has_time: impl Fn(Prefix, Part) -> bool,
    ) -> Vec<FiveTuple> {
        let mut position = 0;
        let next = || queue.take_next(now, &mut position, &has_time);
        std::iter::from_fn(next).map(|waiting| waiting.five_tuple).collect()
    }

    #[test]
    fn who_may_be_served_overtakes_others_and_not_itself() {
        let mut queue = HandshakeQueue::new(true);
        let (flooder, other) = (|port| from(0, 0, port), |port| from(0, 1, port));
        for port in 0..3 {
            push(&mut queue, flooder(port), hello(1));
            push(&mut queue, other(port), RECORDS);
        }
        let customer = Prefix::customer(other(0).client.0.ip());
        assert_eq!(take_all(&mut queue, NOW, |_, _| false), []);
        let taken = take_all(&mut queue, NOW, |by, part| by == customer && part == RECORDS);
        assert_eq!(taken, [other(0), other(1), other(2)]);
        let taken = take_all(&mut queue, NOW, |_, part| part == hello(1));
        assert_eq!(taken, [flooder(0), flooder(1), flooder(2)]);
        assert!(queue.is_empty());
    }

    #[test]
    fn what_nobody_repeats_is_taken_out_when_it_is_stale_and_nothing_else_is() {
        let mut queue = HandshakeQueue::new(false);
        let [gone, here, new] = [1, 2, 3].map(|port| from(0, 0, port));
        push(&mut queue, gone, hello(1));
        push(&mut queue, here, hello(1));
        let later = NOW + Duration::from_secs(1);
        assert_eq!(queue.push(later, new, RECORDS, b"bytes"), Pushed::Queued);
        assert_eq!(queue.push(later, here, hello(1), b"bytes"), Pushed::Repeated);
        let stale = take_all(&mut queue, NOW + HANDSHAKE_WAIT_MAX, |_, _| false);
        assert_eq!(stale, [gone]);
        let rest = take_all(&mut queue, later, |_, _| true);
        assert_eq!(rest, [here, new]);
    }

    #[test]
    fn a_hello_that_comes_again_keeps_its_place() {
        let mut queue = HandshakeQueue::new(true);
        let (alice, bob) = (from(0, 0, 1), from(0, 0, 2));
        assert_eq!(push(&mut queue, alice, hello(1)), Pushed::Queued);
        assert_eq!(push(&mut queue, bob, hello(1)), Pushed::Queued);
        let later = NOW + Duration::from_secs(1);
        assert_eq!(queue.push(later, alice, hello(1), b"bytes"), Pushed::Repeated);
        // Another handshake, and parts that look the same but differ.
        assert_eq!(push(&mut queue, alice, hello(2)), Pushed::Queued);
        assert_eq!(push(&mut queue, alice, RECORDS), Pushed::Queued);
        assert_eq!(push(&mut queue, alice, RECORDS), Pushed::Queued);
        assert_eq!(queue.pop().unwrap().five_tuple, alice);
        assert_eq!(queue.pop().unwrap().five_tuple, bob);
        assert_eq!(queue.datagrams.len(), 3);
    }

    #[test]
    fn a_client_has_a_few_places_and_its_customer_some() {
        let mut queue = HandshakeQueue::new(true);
        for port in 0..=u16::MAX {
            for place in 0..=HANDSHAKES_WAITING_PER_CLIENT {
                let client = from(0, 0, port);
                let pushed = push(&mut queue, client, RECORDS);
                let is_full = place == HANDSHAKES_WAITING_PER_CLIENT
                    || queue.datagrams.len() >= HANDSHAKES_WAITING_PER_CUSTOMER
                        && pushed != Pushed::Queued;
                let dropped = Pushed::Dropped(client, RECORDS);
                assert_eq!(pushed, if is_full { dropped } else { Pushed::Queued });
            }
        }
        assert_eq!(queue.datagrams.len(), HANDSHAKES_WAITING_PER_CUSTOMER);
        assert_eq!(push(&mut queue, from(0, 1, 0), hello(1)), Pushed::Queued);
    }

    #[test]
    fn behind_an_address_of_many_customers_clients_and_the_whole_are_bounded() {
        let mut queue = HandshakeQueue::new(false);
        for number in 0..HANDSHAKES_WAITING {
            let port = (number / HANDSHAKES_WAITING_PER_CLIENT) as u16;
            assert_eq!(push(&mut queue, from(0, 0, port), RECORDS), Pushed::Queued);
        }
        for newcomer in [from(0, 0, 0), from(0, 0, 9999), from(0, 1, 0)] {
            let dropped = Pushed::Dropped(newcomer, hello(1));
            assert_eq!(push(&mut queue, newcomer, hello(1)), dropped);
        }
    }

    #[test]
    fn for_a_newcomer_the_newest_of_who_has_most_is_dropped() {
        let mut queue = full_of(64);
        let flooder = |customer: u16, port| from(0, customer, port);
        let mut dropped = Vec::new();
        for host in 0..16 {
            let pushed = push(&mut queue, from(1, host, 1), hello(1));
            let Pushed::Dropped(other, RECORDS) = pushed else { panic!("{host}: {pushed:?}") };
            dropped.push(other);
        }
        dropped.sort_by_key(|other| (other.client.0.ip(), other.client.0.port()));
        let newest = (0..8).flat_map(|customer| [62, 63].map(|port| flooder(customer, port)));
        assert_eq!(dropped, newest.collect::<Vec<_>>());
        // Repeating gains nothing.
        let again = push(&mut queue, flooder(0, 63), RECORDS);
        assert_eq!(again, Pushed::Dropped(flooder(0, 63), RECORDS));
        assert_eq!(queue.datagrams.len(), HANDSHAKES_WAITING);
    }

    #[test]
    fn where_all_have_one_place_nobody_is_dropped_for_a_newcomer() {
        let mut queue = full_of(1);
        let newcomer = from(1, 0, 0);
        assert_eq!(push(&mut queue, newcomer, hello(1)), Pushed::Dropped(newcomer, hello(1)));
        assert_eq!(queue.of_customers.len(), HANDSHAKES_WAITING);
    }

    #[test]
    fn what_is_longer_than_handshakes_are_does_not_wait() {
        let mut queue = HandshakeQueue::new(true);
        let (client, bytes) = (from(0, 0, 1), [0; HANDSHAKE_DATAGRAM_MAX + 1]);
        let dropped = Pushed::Dropped(client, RECORDS);
        assert_eq!(queue.push(NOW, client, RECORDS, &bytes), dropped);
        assert_eq!(queue.push(NOW, client, RECORDS, &bytes[1..]), Pushed::Queued);
    }
}
