//! Policy of receive coalescing (UDP GRO).
//!
//! Coalesced packets belong to the sockets alone: the program at tc passes them on, since each datagram of a burst
//! has a header of its own. Without that program a burst is several times cheaper coalesced. With it, it is not:
//! the program takes each packet for less than a socket takes its share of a burst, and packets that queue in
//! front of slow sockets are coalesced more and more. So a socket with routes at tc does not coalesce.
//!
//! It does all the same while many packets reach it in spite of its routes: from senders on this machine with
//! segmentation offload, from other relay sockets of this server, through an interface without a program, or for
//! any other reason for which the program passes them. Each socket is judged alone.

use std::cell::Cell;
use std::net::SocketAddr;

use turn_types::Instant;

use crate::io::UdpIo;
use crate::limits::{COALESCING_FOR, STOP_AGAIN_AFTER, UNCOALESCED_MAX, UNCOALESCED_WITHIN};

/// Coalescing state of one socket.
#[derive(Debug, Default)]
pub(crate) struct GroPolicy(Cell<State>);

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// On: no program at tc has a route of the socket.
    #[default]
    Unrouted,
    /// On until this time, though a program has routes.
    Until(Instant),
    /// Off since a second began, in which so many datagrams reached the socket.
    Off { since: Instant, datagrams: u64 },
}

impl GroPolicy {
    /// Notes that a program at tc has a route of the socket.
    pub(crate) fn routed(&self, now: Instant) {
        if matches!(self.0.get(), State::Unrouted) {
            self.0.set(State::Until(now));
        }
    }

    /// Notes that no program has a route of the socket any more.
    pub(crate) fn unrouted(&self, socket: &impl UdpIo) {
        match self.0.replace(State::Unrouted) {
            State::Off { .. } => socket.coalesce(true),
            State::Unrouted | State::Until(_) => {}
        }
    }

    /// Judges by the number of `datagrams` of a batch that are cheaper coalesced, and by whether the socket can
    /// stop.
    pub(crate) fn received(&self, now: Instant, datagrams: u64, socket: &impl UdpIo) {
        self.0.set(match self.0.get() {
            State::Until(until) if until <= now => {
                if socket.stop_coalescing() {
                    State::Off { since: now, datagrams: 0 }
                } else {
                    State::Until(now + STOP_AGAIN_AFTER)
                }
            }
            State::Off { since, datagrams: before } if now < since + UNCOALESCED_WITHIN => {
                let datagrams = before + datagrams;
                if datagrams > UNCOALESCED_MAX {
                    socket.coalesce(true);
                    State::Until(now + COALESCING_FOR)
                } else {
                    State::Off { since, datagrams }
                }
            }
            State::Off { .. } => State::Off { since: now, datagrams },
            state @ (State::Unrouted | State::Until(_)) => state,
        });
    }
}

/// Count of datagrams of a batch that follow one of the same sender: coalescing would have made them cheaper.
#[derive(Debug, Default)]
pub(crate) struct Consecutive {
    last: Option<SocketAddr>,
    datagrams: u64,
}

impl Consecutive {
    /// Counts a relayed datagram; others are no reason to change anything.
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

    use linux_net::{Flow, RxBatch, SendSocket, SendStats, TxBatch, UdpOptions, UdpSocket};
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
        let policy = GroPolicy::default();
        let mut second = 0;
        // Whether it asks after having been brought so many, in a second of their own.
        let mut asks = |datagrams| {
            second += 1;
            policy.received(at(second), 1, &relay);
            policy.received(at(second), datagrams - 1, &relay);
            messages_of_a_burst(&relay, 8) == 1
        };
        assert!(asks(2), "no program has a route of it");
        policy.routed(at(0));
        assert!(!asks(2));
        assert!(!asks(UNCOALESCED_MAX), "some are left to it");
        policy.routed(at(0));
        assert!(!asks(2), "one more route is nothing new");
        assert!(asks(UNCOALESCED_MAX + 1), "the program takes none");
        let again = COALESCING_FOR.as_secs();
        assert!((1..again).all(|_| asks(2)));
        assert!(!asks(2), "it may take them now");
        policy.unrouted(&relay);
        assert_eq!(messages_of_a_burst(&relay, 8), 1, "it has no route any more");
    }

    #[test]
    fn what_merging_would_have_made_cheaper_is_counted() {
        let [alice, bob] = [1, 2].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        let count = |senders: &[SocketAddr]| {
            let mut consecutive = Consecutive::default();
            senders.iter().for_each(|from| consecutive.relayed(*from));
            consecutive.datagrams()
        };
        assert_eq!(count(&[alice, bob].repeat(100)), 0);
        assert_eq!(count(&[alice, alice, alice, bob, bob, alice]), 3);
    }

    #[test]
    fn a_socket_at_which_something_waits_is_not_looked_at_all_the_time() {
        let (relay, policy) = (socket(), GroPolicy::default());
        policy.routed(at(1));
        std::net::UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .send_to(b"waits", relay.local_addr())
            .unwrap();
        policy.received(at(1), 1, &relay);
        assert_eq!(RxBatch::new(1).recv(&relay).unwrap(), 1);
        policy.received(at(1), 1, &relay);
        assert_eq!(messages_of_a_burst(&relay, 8), 1, "it asks until it is looked at again");
        policy.received(at(1) + STOP_AGAIN_AFTER, 1, &relay);
        assert_eq!(messages_of_a_burst(&relay, 8), 8);
    }
}
