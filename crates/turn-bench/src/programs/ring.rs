//! Flows in a ring: a frame that leaves by one is a frame of the next.
//!
//! A test run hands a program its own frame back, again and again. So the frame that a flow makes
//! must be one of the next flow, and the last flow's one of the first:
//!
//! ```text
//! to peers    X0 > Y0  becomes  X1 > Y1  becomes  X2 > Y2 …     4 bytes shorter each time
//! to clients  Y2 > X2  becomes  Y1 > X1  becomes  Y0 > X0 …     4 bytes longer each time
//! ```
//!
//! Flow `i` has the client `Xi`, the server's address `Yi`, the relayed address `Xi+1` and the peer
//! `Yi+1`. A client's frame has nested ChannelData headers, one for each flow of its trip.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use turn_types::{Direction, Instant};
use xdp_relay::Flow;

use super::frame;

/// The hosts: of prefixes that are set aside for benchmarks (RFC 2544, RFC 5180).
pub(super) const X: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(198, 18, 1, 2), Ipv6Addr::new(0x2001, 2, 0, 1, 0, 0, 0, 2));
pub(super) const Y: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(198, 18, 2, 2), Ipv6Addr::new(0x2001, 2, 0, 2, 0, 0, 0, 2));

/// First port of X, with one for each flow; Y has one port for all.
const PORTS_FROM: u16 = 10_000;
const PORT: u16 = 3478;
/// Flows there are ports for.
pub(super) const FLOWS_MAX: u32 = (u16::MAX - PORTS_FROM) as u32 + 1;

const CHANNEL: u16 = 0x4000;
/// As many times as a frame can be relayed before it runs out of hops, and some.
const HOPS: u8 = 255;
/// Bytes that are relayed: a frame of sound is about so long. The programs do not look at them.
const PAYLOAD: usize = 160;

/// The families of a flow, at the client and at the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Families {
    V4,
    V6,
    /// Alternating: IPv4 to IPv6, and back by the next flow.
    Mixed,
}

impl Families {
    pub(super) const ALL: [Self; 3] = [Self::V4, Self::V6, Self::Mixed];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4-IPv4",
            Self::V6 => "IPv6-IPv6",
            Self::Mixed => "IPv4-IPv6 and IPv6-IPv4",
        }
    }
}

/// The flows of a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    pub(super) families: Families,
    /// An even number, so that families take turns all the way round.
    pub(super) flows: u32,
    pub(super) bytes_per_second: u64,
}

impl Ring {
    /// A flow of it, which never ends.
    pub(super) fn flow(&self, number: u32) -> Flow {
        Flow {
            client: self.x(number),
            server: self.y(number),
            channel: CHANNEL,
            relayed: self.x(number + 1),
            peer: self.y(number + 1),
            hairpin: false,
            to_peer_until: Instant::FAR_FUTURE,
            to_client_until: Instant::FAR_FUTURE,
            bytes_per_second: self.bytes_per_second,
        }
    }

    /// A frame for `times` flows from this one on, and its bytes behind the IP header after them.
    pub(super) fn trip(&self, direction: Direction, from: u32, times: u32) -> (Vec<u8>, Vec<u8>) {
        let mut filler = 0;
        let frame = |done, filler| self.frame(direction, from, (times, done), filler);
        // One of 65,536 checksums looks as if it were still to be made, and is treated otherwise.
        while (0..times).any(|done| frame::looks_unfinished(&frame(done, filler))) {
            filler += 1;
        }
        (frame(0, filler), frame::behind_ip(&frame(times, filler)).to_vec())
    }

    fn frame(&self, direction: Direction, from: u32, at: (u32, u32), filler: u8) -> Vec<u8> {
        let (times, done) = at;
        let payload = [filler; PAYLOAD];
        let hops = HOPS.saturating_sub(u8::try_from(done).unwrap_or(u8::MAX));
        match direction {
            Direction::ToPeer => {
                let payload = frame::nested(CHANNEL, times - done, &payload);
                let at = from + done;
                frame::datagram(self.x(at), self.y(at), hops, &payload)
            }
            Direction::ToClient => {
                let payload = frame::nested(CHANNEL, done, &payload);
                // Rounded up, so that the difference is not negative.
                let at = from + times.next_multiple_of(self.flows) - done;
                frame::datagram(self.y(at), self.x(at), hops, &payload)
            }
        }
    }

    /// The client of flow `number`, and relayed address of the one before.
    pub(super) fn x(&self, number: u32) -> SocketAddr {
        let number = number % self.flows;
        SocketAddr::new(self.of(X, number), PORTS_FROM + number as u16)
    }

    /// The server address of flow `number`, and peer of the one before.
    pub(super) fn y(&self, number: u32) -> SocketAddr {
        SocketAddr::new(self.of(Y, number % self.flows), PORT)
    }

    fn of(&self, (v4, v6): (Ipv4Addr, Ipv6Addr), number: u32) -> IpAddr {
        match self.families {
            Families::V4 => v4.into(),
            Families::V6 => v6.into(),
            Families::Mixed if number.is_multiple_of(2) => v4.into(),
            Families::Mixed => v6.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_is_closed() {
        for families in Families::ALL {
            let ring = Ring { families, flows: 4, bytes_per_second: 0 };
            for number in 0..4 {
                let (flow, next) = (ring.flow(number), ring.flow((number + 1) % 4));
                assert_eq!((flow.relayed, flow.peer), (next.client, next.server));
            }
        }
    }

    #[test]
    fn frames_grow_and_shrink_by_a_header_each_time() {
        let ring = Ring { families: Families::V4, flows: 2, bytes_per_second: 0 };
        let lens = |direction| {
            let (frame, becomes) = ring.trip(direction, 0, 5);
            (frame.len(), becomes.len())
        };
        assert_eq!(lens(Direction::ToPeer), (42 + 5 * 4 + PAYLOAD, 8 + PAYLOAD));
        assert_eq!(lens(Direction::ToClient), (42 + PAYLOAD, 8 + 5 * 4 + PAYLOAD));
    }
}
