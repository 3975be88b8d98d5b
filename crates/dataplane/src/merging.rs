//! Whether sockets ask the kernel to merge packets that come together (UDP GRO).
//!
//! Merged packets are the sockets' alone: the program at tc leaves them to them, for each datagram of a
//! burst has a header of its own. Where sockets do all, a burst is several times cheaper merged. Where the
//! program relays, it is not: it takes each packet for less than a socket takes its share of a burst, and
//! what waits in front of sockets that cannot follow is merged more and more. So there sockets do not ask.
//!
//! A socket asks all the same while many packets come to it though the program has its routes: from senders
//! on this machine that hand over several as one, from other relay sockets of this server, by an interface
//! without a program, or for any reason that the program has to leave them. Each socket is judged by
//! itself.

use std::cell::Cell;
use std::net::SocketAddr;

use linux_net::UdpSocket;
use turn_types::Instant;

use crate::limits::{CEASE_AGAIN_AFTER, MERGING_FOR, UNMERGED_MAX, UNMERGED_WITHIN};

/// Whether a socket asks.
#[derive(Debug, Default)]
pub(crate) struct Merging(Cell<Asks>);

#[derive(Clone, Copy, Debug, Default)]
enum Asks {
    /// No program at tc has a route of it.
    #[default]
    Always,
    /// A program has, and may as well try again from then on.
    Until(Instant),
    /// Since a second began, in which so many came all the same.
    Not { since: Instant, datagrams: u64 },
}

impl Merging {
    /// A program at tc has a route now of which packets come to the socket.
    pub(crate) fn routed(&self, now: Instant) {
        if matches!(self.0.get(), Asks::Always) {
            self.0.set(Asks::Until(now));
        }
    }

    /// No program has a route of the socket any more.
    pub(crate) fn unrouted(&self, socket: &UdpSocket) {
        match self.0.replace(Asks::Always) {
            Asks::Not { .. } => socket.merge(true),
            Asks::Always | Asks::Until(_) => {}
        }
    }

    /// Judges by what the system brought, `datagrams` that are cheaper merged, and by whether the socket
    /// could cease.
    pub(crate) fn received(&self, now: Instant, datagrams: u64, socket: &UdpSocket) {
        self.0.set(match self.0.get() {
            Asks::Until(until) if until <= now => {
                if socket.cease_merging() {
                    Asks::Not { since: now, datagrams: 0 }
                } else {
                    Asks::Until(now + CEASE_AGAIN_AFTER)
                }
            }
            Asks::Not { since, datagrams: before } if now < since + UNMERGED_WITHIN => {
                let datagrams = before + datagrams;
                if datagrams > UNMERGED_MAX {
                    socket.merge(true);
                    Asks::Until(now + MERGING_FOR)
                } else {
                    Asks::Not { since, datagrams }
                }
            }
            Asks::Not { .. } => Asks::Not { since: now, datagrams },
            asks @ (Asks::Always | Asks::Until(_)) => asks,
        });
    }
}

/// Counts datagrams of a batch that follow one from the same sender: what merging would have made cheaper.
/// Datagrams of many senders, however many, are not.
#[derive(Debug, Default)]
pub(crate) struct InARow {
    last: Option<SocketAddr>,
    datagrams: u64,
}

impl InARow {
    /// A datagram that was relayed: others are nobody's reason to change anything.
    pub(crate) fn relayed(&mut self, from: SocketAddr) {
        self.datagrams += u64::from(self.last.replace(from) == Some(from));
    }

    /// Returns the count.
    pub(crate) const fn datagrams(&self) -> u64 {
        self.datagrams
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use linux_net::{Flow, RxBatch, SendSocket, SendStats, TxBatch, UdpOptions};
    use turn_types::IpMeta;

    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn socket() -> UdpSocket {
        UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::default()).unwrap().0
    }

    /// As how many messages a socket receives a peer's burst of so many datagrams.
    fn messages_of_a_burst(relay: &UdpSocket, datagrams: u32) -> usize {
        let peer = socket();
        let to = Flow {
            socket: SendSocket(0),
            to: relay.local_addr(),
            from: None,
            meta: IpMeta::DEFAULT,
        };
        let mut burst = TxBatch::new();
        for tag in 0..datagrams {
            let part = burst.arena_write(&[7; 100]).unwrap();
            burst.push(to, &[part], tag).unwrap();
        }
        let mut rx = RxBatch::new(64);
        burst.flush(&rx, &peer, &mut SendStats::default(), |_, error| panic!("{error:?}"));
        rx.recv(relay).unwrap()
    }

    #[test]
    fn a_socket_asks_while_the_system_brings_it_much() {
        let relay = socket();
        let merging = Merging::default();
        let mut second = 0;
        // Whether it asks after having been brought so many, in a second of their own.
        let mut asks = |datagrams| {
            second += 1;
            merging.received(at(second), 1, &relay);
            merging.received(at(second), datagrams - 1, &relay);
            messages_of_a_burst(&relay, 8) == 1
        };
        assert!(asks(2), "no program has a route of it");
        merging.routed(at(0));
        assert!(!asks(2));
        assert!(!asks(UNMERGED_MAX), "some are left to it");
        merging.routed(at(0));
        assert!(!asks(2), "one more route is nothing new");
        assert!(asks(UNMERGED_MAX + 1), "the program takes none");
        let again = MERGING_FOR.as_secs();
        assert!((1..again).all(|_| asks(2)));
        assert!(!asks(2), "it may take them now");
        merging.unrouted(&relay);
        assert_eq!(messages_of_a_burst(&relay, 8), 1, "it has no route any more");
    }

    #[test]
    fn what_merging_would_have_made_cheaper_is_counted() {
        let [alice, bob] = [1, 2].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        let count = |senders: &[SocketAddr]| {
            let mut in_a_row = InARow::default();
            senders.iter().for_each(|from| in_a_row.relayed(*from));
            in_a_row.datagrams()
        };
        assert_eq!(count(&[alice, bob].repeat(100)), 0);
        assert_eq!(count(&[alice, alice, alice, bob, bob, alice]), 3);
    }

    #[test]
    fn a_socket_at_which_something_waits_is_not_looked_at_all_the_time() {
        let (relay, merging) = (socket(), Merging::default());
        merging.routed(at(1));
        std::net::UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .send_to(b"waits", relay.local_addr())
            .unwrap();
        merging.received(at(1), 1, &relay);
        assert_eq!(RxBatch::new(1).recv(&relay).unwrap(), 1);
        merging.received(at(1), 1, &relay);
        assert_eq!(messages_of_a_burst(&relay, 8), 1, "it asks until it is looked at again");
        merging.received(at(1) + CEASE_AGAIN_AFTER, 1, &relay);
        assert_eq!(messages_of_a_burst(&relay, 8), 8);
    }
}
