//! Policy of receive coalescing (UDP GRO).
//!
//! Receiving a burst of one sender costs several times less with coalescing. Packets of many
//! alternating senders gain nothing, and may lose time. If the kernel polls a network card at
//! intervals (`gro_flush_timeout`), the kernel delays each packet for a coalescing socket. The
//! delay lasts until the sender's next packet, or for a tick of the kernel's clock.
//!
//! So a socket coalesces while datagrams of one sender follow each other. An overloaded socket
//! coalesces as well, because longer messages are worth the delay. From time to time the socket
//! stops coalescing, to measure again.
//!
//! Coalesced packets are relayed only by the sockets. The program at tc passes such packets on,
//! because each datagram of a burst needs a separate header. The program relays a packet at less
//! cost than a socket relays one packet of a burst. Packets that queue at slow sockets are
//! coalesced more and more.
//!
//! So a socket with routes at tc coalesces only while many packets reach the socket despite the
//! routes. The sources of such packets are senders on this machine with segmentation offload, other
//! relay sockets of this server, or interfaces without a program. The program may pass packets for
//! other reasons as well. The policy is separate for each socket.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use turn_types::Instant;

use crate::io::UdpIo;
use crate::limits::{
    ALIKE_MANY, ALIKE_MIN, ALIKE_OVER, COALESCED_LATE, COALESCING_FOR, COALESCING_FULL_FOR,
    COALESCING_ROUTED_FOR, FULL_CALLS_MIN, MESSAGES_PER_RECEIVE, STOP_AGAIN_AFTER, UNCOALESCED_MAX,
    UNCOALESCED_WITHIN,
};

/// Coalescing state of one socket.
#[derive(Debug)]
pub(crate) struct GroPolicy(Cell<State>);

#[derive(Clone, Copy, Debug)]
struct State {
    mode: Mode,
    /// True if a program at tc has a route of the socket.
    is_routed: bool,
}

#[derive(Clone, Copy, Debug)]
enum Mode {
    /// Permanently disabled by configuration.
    Never,
    /// Enabled until this time.
    On(Instant),
    /// Disabled, with the arrivals since then.
    Off(Window),
}

/// Arrivals of at most a second.
#[derive(Clone, Copy, Debug)]
struct Window {
    since: Instant,
    datagrams: u64,
    alike: u64,
    /// Datagrams that a program with routes should have relayed.
    passed: u64,
    /// Number of consecutive full receive calls.
    full_calls: u32,
}

impl Default for GroPolicy {
    /// Returns the policy of a socket that coalesces now.
    fn default() -> Self {
        Self::with(Mode::On(Instant::ZERO))
    }
}

impl GroPolicy {
    const fn with(mode: Mode) -> Self {
        Self(Cell::new(State { mode, is_routed: false }))
    }

    /// Returns the policy of a socket that does not coalesce now. If `may` is false, the socket
    /// never coalesces.
    pub(crate) const fn off(may: bool) -> Self {
        Self::with(if may { Mode::Off(Window::at(Instant::ZERO)) } else { Mode::Never })
    }

    /// Returns the policy of a socket of another process, which may coalesce: merged datagrams may
    /// wait. If `may` is false, the socket never coalesces.
    pub(crate) fn imported(may: bool) -> Self {
        if may { Self::default() } else { Self::off(false) }
    }

    /// Notes that a program at tc has a route of the socket.
    pub(crate) fn routed(&self, now: Instant) {
        let State { mode, is_routed } = self.0.get();
        let mode = match mode {
            Mode::On(_) if !is_routed => Mode::On(now),
            Mode::Never | Mode::On(_) | Mode::Off(_) => mode,
        };
        self.0.set(State { mode, is_routed: true });
    }

    /// Notes that no program has a route of the socket any more.
    pub(crate) fn unrouted(&self) {
        self.0.set(State { is_routed: false, ..self.0.get() });
    }

    /// Updates the policy after a received batch.
    pub(crate) fn received(&self, now: Instant, batch: &Arrivals, socket: &impl UdpIo) {
        let State { mode, is_routed } = self.0.get();
        let mode = match mode {
            Mode::On(until) if until <= now => {
                if socket.stop_coalescing() {
                    Mode::Off(Window::at(now + COALESCED_LATE))
                } else {
                    Mode::On(now + STOP_AGAIN_AFTER)
                }
            }
            Mode::Off(window) => {
                let window = window.with(now, batch, is_routed);
                match window.coalesces_for(now, is_routed) {
                    Some(time) => {
                        socket.coalesce(true);
                        Mode::On(now + time)
                    }
                    None => Mode::Off(window),
                }
            }
            Mode::Never | Mode::On(_) => return,
        };
        self.0.set(State { mode, is_routed });
    }
}

impl Window {
    const fn at(since: Instant) -> Self {
        Self { since, datagrams: 0, alike: 0, passed: 0, full_calls: 0 }
    }

    fn with(self, now: Instant, batch: &Arrivals, is_routed: bool) -> Self {
        // A full queue is measured in calls instead of seconds. A queue that remains full is
        // detected immediately.
        let full_calls = if batch.is_full() { self.full_calls.saturating_add(1) } else { 0 };
        // Datagrams that the kernel coalesced earlier still arrive in bursts.
        if now < self.since {
            return Self { full_calls, ..self };
        }
        let is_over = now >= self.since + UNCOALESCED_WITHIN;
        let before = if is_over { Self::at(now) } else { self };
        Self {
            since: before.since,
            datagrams: before.datagrams + batch.datagrams,
            alike: before.alike + batch.alike,
            passed: before.passed + if is_routed { batch.passed } else { 0 },
            full_calls,
        }
    }

    /// Returns the time for which a socket should coalesce after these arrivals. Returns `None` if
    /// the socket should not coalesce.
    fn coalesces_for(&self, now: Instant, is_routed: bool) -> Option<Duration> {
        if is_routed {
            return (self.passed > UNCOALESCED_MAX).then_some(COALESCING_ROUTED_FOR);
        }
        let is_known = self.datagrams >= ALIKE_MANY
            || self.datagrams >= ALIKE_MIN && now >= self.since + ALIKE_OVER;
        if is_known && 2 * self.alike >= self.datagrams {
            Some(COALESCING_FOR)
        } else {
            (self.full_calls >= FULL_CALLS_MIN).then_some(COALESCING_FULL_FOR)
        }
    }
}

/// Datagrams of one receive call, with the properties that coalescing depends on.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    messages: usize,
    datagrams: u64,
    /// Sender and destination of the last message. A socket with one address does not report the
    /// destination.
    last: Option<(SocketAddr, Option<IpAddr>)>,
    /// True if the datagram before the next datagram has an equal sender and destination.
    is_followed: bool,
    /// Number of datagrams that follow a datagram of the same sender. Coalescing makes these
    /// datagrams cheaper.
    alike: u64,
    /// Datagrams that a program with routes should have relayed.
    passed: u64,
}

impl Arrivals {
    /// Starts a message.
    pub(crate) fn message(&mut self, from: SocketAddr, to: Option<IpAddr>) {
        self.messages += 1;
        self.is_followed = self.last.replace((from, to)) == Some((from, to));
    }

    /// Counts a datagram of the message. Returns true if the datagram follows a datagram of the
    /// same sender.
    pub(crate) fn datagram(&mut self) -> bool {
        self.datagrams += 1;
        let is_alike = std::mem::replace(&mut self.is_followed, true);
        self.alike += u64::from(is_alike);
        is_alike
    }

    /// Counts a datagram that the program at tc should have relayed.
    pub(crate) fn passed(&mut self) {
        self.passed += 1;
    }

    const fn is_full(&self) -> bool {
        self.messages >= MESSAGES_PER_RECEIVE
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use linux_net::{Flow, RxBatch, SendSocket, SendStats, TxBatch, UdpOptions, UdpSocket};
    use turn_types::IpMeta;

    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn socket() -> UdpSocket {
        UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::default()).unwrap().0
    }

    /// Returns the number of messages in which a socket receives a burst of `datagrams` datagrams.
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

    /// Returns the arrivals of one receive call: `each` datagrams of each of the senders, one
    /// sender after the other.
    fn arrivals(senders: &[u16], each: u64) -> Arrivals {
        let mut arrivals = Arrivals::default();
        for sender in senders {
            for _ in 0..each {
                arrivals.message(SocketAddr::from(([192, 0, 2, 1], *sender)), None);
                arrivals.datagram();
                arrivals.passed();
            }
        }
        arrivals
    }

    fn asks(relay: &UdpSocket) -> bool {
        messages_of_a_burst(relay, 8) == 1
    }

    #[test]
    fn bursts_are_coalesced_and_packets_in_turn_are_not() {
        let relay = socket();
        let policy = GroPolicy::default();
        policy.received(at(1), &arrivals(&[1, 2], 1), &relay);
        assert!(!asks(&relay), "it sees first what comes");
        policy.received(at(1), &arrivals(&[1, 2], 100), &relay);
        assert!(!asks(&relay), "that was coalesced before");
        for tenth in 0..100_u64 {
            let now = at(1) + Duration::from_millis(100 * tenth);
            policy.received(now, &arrivals(&[1, 2, 3, 4, 5, 6], 1), &relay);
            assert!(!asks(&relay), "six senders in turn");
        }
        for tenth in 0..10_u64 {
            let now = at(20) + Duration::from_millis(10 * tenth);
            policy.received(now, &arrivals(&[1, 2], 10), &relay);
        }
        assert!(asks(&relay), "bursts of two");
        policy.received(at(20) + COALESCING_FOR / 2, &arrivals(&[1, 2], 1), &relay);
        assert!(asks(&relay), "a pause is no end");
        policy.received(at(21) + COALESCING_FOR, &arrivals(&[1, 2], 1), &relay);
        assert!(!asks(&relay), "it sees again what comes");
    }

    #[test]
    fn a_socket_of_another_process_stops_when_nothing_waits() {
        let before = socket();
        before.merge(true);
        let options = UdpOptions { gro: false, ..UdpOptions::default() };
        let relay = UdpSocket::adopt(before.as_fd().try_clone_to_owned().unwrap(), &options);
        let (relay, policy) = (relay.unwrap(), GroPolicy::imported(true));
        policy.received(at(1), &arrivals(&[1], 1), &relay);
        assert!(!asks(&relay));
        let policy = GroPolicy::imported(false);
        policy.received(at(1), &arrivals(&[1], ALIKE_MANY), &relay);
        assert!(!asks(&relay));
    }

    #[test]
    fn few_datagrams_decide_nothing() {
        let (relay, policy) = (socket(), GroPolicy::off(true));
        for second in 1..100 {
            policy.received(at(second), &arrivals(&[1], ALIKE_MIN - 1), &relay);
        }
        relay.merge(false);
        policy.received(at(100), &arrivals(&[1], ALIKE_MIN - 1), &relay);
        assert!(!asks(&relay));
        policy.received(at(100) + ALIKE_OVER, &arrivals(&[1], 1), &relay);
        assert!(asks(&relay));
    }

    #[test]
    fn a_bulk_transfer_among_calls_does_not_coalesce_the_calls() {
        let (relay, policy) = (socket(), GroPolicy::off(true));
        relay.merge(false);
        let calls: Vec<u16> = (2..=100).collect();
        for round in 0..200 {
            let now = at(1) + round * Duration::from_millis(8);
            // Several calls, the last of which is not full.
            for part in [30, 24] {
                policy.received(now, &arrivals(&[1], part), &relay);
            }
            assert!(!asks(&relay), "its burst comes first in round {round}");
            for part in calls.chunks(30) {
                policy.received(now, &arrivals(part, 1), &relay);
            }
            assert!(!asks(&relay), "ninety-nine others in round {round}");
        }
    }

    #[test]
    fn many_datagrams_decide_at_once() {
        let (relay, policy) = (socket(), GroPolicy::off(true));
        relay.merge(false);
        policy.received(at(1), &arrivals(&[1, 2], ALIKE_MANY / 2), &relay);
        assert!(asks(&relay));
    }

    #[test]
    fn a_socket_that_has_more_than_it_can_take_coalesces() {
        let (relay, policy) = (socket(), GroPolicy::off(true));
        relay.merge(false);
        let senders: Vec<u16> = (0..MESSAGES_PER_RECEIVE as u16).collect();
        let full = arrivals(&senders, 1);
        let mut most = (0..FULL_CALLS_MIN).map(|_| {
            policy.received(at(1), &full, &relay);
            asks(&relay)
        });
        assert_eq!(most.position(|asks| asks), Some(FULL_CALLS_MIN as usize - 1));
        drop(most);
        let later = at(1) + COALESCING_FULL_FOR;
        policy.received(later, &arrivals(&[1, 2], 1), &relay);
        assert!(!asks(&relay), "it was for a moment");
        (0..FULL_CALLS_MIN).for_each(|_| policy.received(later, &full, &relay));
        assert!(asks(&relay), "it still has more than it can take");
        let policy = GroPolicy::off(true);
        relay.merge(false);
        for _ in 0..FULL_CALLS_MIN {
            policy.received(at(1), &full, &relay);
            policy.received(at(1), &arrivals(&[1, 2], 1), &relay);
        }
        assert!(!asks(&relay), "its queue was empty in between");
    }

    #[test]
    fn a_socket_that_may_not_coalesce_never_does() {
        let (relay, policy) = (socket(), GroPolicy::off(false));
        relay.merge(false);
        policy.routed(at(1));
        (1..100).for_each(|second| policy.received(at(second), &arrivals(&[1], 999), &relay));
        assert!(!asks(&relay));
    }

    #[test]
    fn a_socket_with_routes_coalesces_while_the_system_brings_it_much() {
        let (relay, policy) = (socket(), GroPolicy::off(true));
        relay.merge(false);
        let mut second = 0;
        // Returns true if the socket coalesces after this number of datagrams, in a separate
        // second.
        let mut asks = |datagrams| {
            second += 1;
            policy.received(at(second), &arrivals(&[1], 1), &relay);
            policy.received(at(second), &arrivals(&[1], datagrams - 1), &relay);
            messages_of_a_burst(&relay, 8) == 1
        };
        assert!(asks(ALIKE_MANY), "no program has a route of it");
        policy.routed(at(0));
        assert!(!asks(2));
        assert!(!asks(UNCOALESCED_MAX), "some are left to it");
        policy.routed(at(0));
        assert!(!asks(2), "one more route is nothing new");
        assert!(asks(UNCOALESCED_MAX + 1), "the program takes none");
        let again = COALESCING_ROUTED_FOR.as_secs();
        assert!((1..again).all(|_| asks(2)));
        assert!(!asks(2), "it may take them now");
        policy.unrouted();
        assert!(asks(ALIKE_MANY), "it has no route any more");
    }

    #[test]
    fn datagrams_that_follow_one_of_the_same_sender_are_counted() {
        let [alice, bob] = [1, 2].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        let count = |messages: &[(SocketAddr, usize)]| {
            let mut arrivals = Arrivals::default();
            for (from, datagrams) in messages {
                arrivals.message(*from, None);
                for _ in 0..*datagrams {
                    arrivals.datagram();
                }
            }
            (arrivals.datagrams, arrivals.alike)
        };
        assert_eq!(count(&[(alice, 1), (bob, 1)].repeat(100)), (200, 0));
        assert_eq!(count(&[(alice, 1), (alice, 1), (bob, 3), (bob, 1), (alice, 1)]), (7, 4));
    }

    #[test]
    fn a_socket_at_which_something_waits_is_not_looked_at_all_the_time() {
        let (relay, policy) = (socket(), GroPolicy::default());
        std::net::UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .send_to(b"waits", relay.local_addr())
            .unwrap();
        let one = arrivals(&[1], 1);
        policy.received(at(1), &one, &relay);
        assert_eq!(RxBatch::new(1).recv(&relay).unwrap(), 1);
        policy.received(at(1), &one, &relay);
        assert_eq!(messages_of_a_burst(&relay, 8), 1, "it asks until it is looked at again");
        policy.received(at(1) + STOP_AGAIN_AFTER, &one, &relay);
        assert_eq!(messages_of_a_burst(&relay, 8), 8);
    }
}
