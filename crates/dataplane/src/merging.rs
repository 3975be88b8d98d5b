//! Whether sockets ask the kernel to merge packets that come together (UDP GRO).
//!
//! Merged packets are the sockets' alone: the program at tc leaves them to them, for each datagram of a
//! burst has a header of its own. Where sockets do all, a burst is several times cheaper merged. Where the
//! program relays, it is not: it takes each packet for less than a socket takes its share of a burst, and
//! what waits in front of sockets that cannot follow is merged more and more. So there sockets do not ask.
//!
//! Listeners, to which all clients send, ask all the same while packets come merged whoever asks: from
//! senders on this machine that hand over several as one, or where the system merges for its own sake. A
//! relay socket asks while many packets come to it though the program has its routes: from other relay sockets
//! of this server, by an interface without a program, or for any reason that the program has to leave them.

use std::cell::Cell;

use linux_net::UdpSocket;
use turn_types::Instant;

use crate::limits::{
    CEASE_AGAIN_AFTER, MERGED_SWEEPS, MERGING_FOR, RELAY_MERGING_FOR, UNMERGED_MAX, UNMERGED_WITHIN,
};

/// What listeners' packets were seen to be since the last look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// A program at tc relays flows.
    pub(crate) by_tc: bool,
    /// Packets of their clients came merged.
    pub(crate) came_merged: bool,
}

/// Whether listeners ask.
#[derive(Debug, Default)]
pub(crate) struct Merging {
    by_tc: bool,
    /// Looks in a row by which packets came merged that nobody had asked for.
    unasked: u32,
    /// Until when it is asked for though a program at tc relays.
    until: Option<Instant>,
}

impl Merging {
    /// Whether to ask: also while no flow is the program's.
    pub(crate) const fn is_asked_for(&self) -> bool {
        !self.by_tc || self.until.is_some()
    }

    /// Judges by what was seen.
    pub(crate) fn look(&mut self, now: Instant, seen: Seen) {
        let asked = self.is_asked_for();
        self.by_tc = seen.by_tc;
        self.until = self.until.filter(|until| now < *until && seen.by_tc);
        if asked {
            // What came merged was asked for.
            self.unasked = 0;
            return;
        }
        self.unasked = if seen.came_merged { self.unasked + 1 } else { 0 };
        // Some of what came by the first look may have been merged while it was still asked for.
        if self.unasked >= MERGED_SWEEPS {
            self.until = Some(now + MERGING_FOR);
        }
    }
}

/// Whether a relay socket asks.
#[derive(Debug, Default)]
pub(crate) struct RelayMerging(Cell<Asks>);

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

impl RelayMerging {
    /// A program at tc has a route of the socket now.
    pub(crate) fn routed(&self, now: Instant) {
        if matches!(self.0.get(), Asks::Always) {
            self.0.set(Asks::Until(now));
        }
    }

    /// Judges by what the system brought, `datagrams` of them, and by whether the socket could cease.
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
                    Asks::Until(now + RELAY_MERGING_FOR)
                } else {
                    Asks::Not { since, datagrams }
                }
            }
            Asks::Not { .. } => Asks::Not { since: now, datagrams },
            asks @ (Asks::Always | Asks::Until(_)) => asks,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use linux_net::{Flow, RxBatch, SendSocket, SendStats, TxBatch, UdpOptions};
    use turn_types::Marks;

    use super::*;

    const TC: Seen = Seen { by_tc: true, came_merged: false };
    const MERGED: Seen = Seen { came_merged: true, ..TC };

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    /// Whether it is asked for after each look, one a second.
    fn looks(merging: &mut Merging, from: u64, seen: &[Seen]) -> Vec<bool> {
        let look = |(second, seen): (u64, &Seen)| {
            merging.look(at(second), *seen);
            merging.is_asked_for()
        };
        (from..).zip(seen).map(look).collect()
    }

    #[test]
    fn sockets_alone_ask() {
        let mut merging = Merging::default();
        let seen = Seen { by_tc: false, ..MERGED };
        assert_eq!(looks(&mut merging, 1, &[seen; 4]), [true; 4]);
    }

    #[test]
    fn where_a_program_relays_they_do_not() {
        let mut merging = Merging::default();
        assert!(merging.is_asked_for(), "it relays nothing yet");
        // Merged by the first look: as it was asked for. By the second: what was still on its way.
        assert_eq!(looks(&mut merging, 1, &[MERGED, MERGED, TC, TC]), [false; 4]);
        let none = Seen { by_tc: false, ..TC };
        assert_eq!(looks(&mut merging, 5, &[none]), [true], "it relays nothing now");
    }

    #[test]
    fn what_comes_merged_unasked_is_taken_merged_for_a_while() {
        let mut merging = Merging::default();
        looks(&mut merging, 1, &[MERGED, MERGED]);
        assert_eq!(looks(&mut merging, 3, &[MERGED; 5]), [true; 5]);
        let end = 3 + MERGING_FOR.as_secs();
        assert_eq!(looks(&mut merging, end - 1, &[MERGED]), [true]);
        assert_eq!(looks(&mut merging, end, &[MERGED, MERGED]), [false; 2]);
        assert_eq!(looks(&mut merging, end + 2, &[TC]), [false], "they have ceased");
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
            marks: Marks::DEFAULT,
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
    fn a_relay_socket_asks_while_the_system_brings_it_much() {
        let relay = socket();
        let merging = RelayMerging::default();
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
        let again = RELAY_MERGING_FOR.as_secs();
        assert!((1..again).all(|_| asks(2)));
        assert!(!asks(2), "it may take them now");
    }

    #[test]
    fn a_relay_socket_at_which_something_waits_is_not_looked_at_all_the_time() {
        let (relay, merging) = (socket(), RelayMerging::default());
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
