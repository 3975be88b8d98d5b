//! A channel as routes for the programs, with the changes of checksums on each.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use turn_types::Instant;

use crate::bpf::layout::{HAIRPIN, PROBE, RouteKey, RouteValue, TO_RING, TO_V6, address, key};

/// Bytes of a ChannelData header.
const CHANNEL_HEADER_LEN: u16 = 4;

/// The number of UDP in a pseudo header.
const UDP: u16 = 17;

/// Most by which the programs' clock lags, a tick of the kernel: a route ends early by this much,
/// and sockets serve the rest.
const CLOCK_LAG: Duration = Duration::from_millis(10);

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// Largest packet that is charged, the largest UDP payload with the headers of IPv6 and UDP: a
/// bucket always holds one.
const PACKET_MAX: u64 = 65_507 + 48;

/// Identifies the flow of datagrams that are delivered to a worker's ring. Unique within a worker,
/// never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowCookie(pub u64);

/// A bound channel, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Source of the client's ChannelData.
    pub client: SocketAddr,
    /// Server address that it is sent to.
    pub server: SocketAddr,
    /// The number of its channel: 0x4000 to 0x7FFF.
    pub channel: u16,
    /// Relayed address; of the family of `peer`.
    pub relayed: SocketAddr,
    /// The peer.
    pub peer: SocketAddr,
    /// The peer is a relayed address of this host: packets to it continue to another client.
    pub hairpin: bool,
    /// Expiry of the direction to the peer.
    pub to_peer_until: Instant,
    /// Expiry of the direction to the client.
    pub to_client_until: Instant,
    /// Bytes per second, with the headers of IP and UDP, that its allocation may send in each
    /// direction; 0 is unlimited.
    pub bytes_per_second: u64,
}

/// Parameters of a route that are not part of the flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteSlots {
    pub(crate) flow: u32,
    pub(crate) bucket: u32,
    pub(crate) worker: u8,
    pub(crate) flow_label: u32,
    /// The programs are tried with it.
    pub(crate) probe: bool,
}

/// A key and a route for each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Directions {
    pub(crate) to_peer: (RouteKey, RouteValue),
    pub(crate) to_client: (RouteKey, RouteValue),
}

impl Directions {
    /// True if entries of `self` become those of `other` by a refresh.
    pub(crate) fn differ_by_refresh(&self, other: &Self) -> bool {
        let lasting = |(key, value): (RouteKey, RouteValue)| {
            (key, RouteValue { until: 0, bound: 0, ..value })
        };
        lasting(self.to_peer) == lasting(other.to_peer)
            && lasting(self.to_client) == lasting(other.to_client)
    }
}

impl Flow {
    pub(crate) fn directions(&self, place: RouteSlots) -> Directions {
        let Self { client, server, channel, relayed, peer, .. } = *self;
        // A header less means two lengths (of the datagram and of the pseudo header) that are less.
        let header = Sum::of(&channel.to_be_bytes()).add(2 * CHANNEL_HEADER_LEN);
        let (outer, inner) = (Sum::between(client, server), Sum::between(relayed, peer));
        let to_peer = RouteValue {
            until: until(self.to_peer_until),
            pseudo: pseudo(client, server).bytes(),
            udp_change: inner.less(outer).less(header).bytes(),
            ..self.value(relayed, peer, place)
        };
        let to_client = RouteValue {
            channel: channel.to_be_bytes(),
            until: until(self.to_client_until),
            pseudo: pseudo(peer, relayed).bytes(),
            udp_change: outer.plus(header).less(inner).bytes(),
            ..self.value(server, client, place)
        };
        Directions {
            to_peer: (key(client, server, channel), to_peer),
            to_client: (self.key_of_peer(), to_client),
        }
    }

    fn value(&self, source: SocketAddr, destination: SocketAddr, place: RouteSlots) -> RouteValue {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        RouteValue {
            source: address(source.ip()),
            destination: address(destination.ip()),
            source_port: source.port().to_be_bytes(),
            destination_port: destination.port().to_be_bytes(),
            channel: [0; 2],
            flags: flag(destination.is_ipv6(), TO_V6)
                | flag(self.hairpin, HAIRPIN)
                | flag(place.probe, PROBE),
            worker: place.worker,
            until: 0,
            bound: RouteValue::bounded(
                (self.bytes_per_second > 0).then_some(place.bucket),
                place.flow_label,
            ),
            flow: place.flow,
            pseudo: [0; 2],
            udp_change: [0; 2],
        }
    }

    /// Key of the peer's datagrams.
    pub(crate) fn key_of_peer(&self) -> RouteKey {
        key(self.peer, self.relayed, 0)
    }

    /// One entry: the peer's datagrams go to the worker, which knows them by the ticket.
    pub(crate) fn ring_route(
        &self,
        place: RouteSlots,
        flow_cookie: FlowCookie,
    ) -> (RouteKey, RouteValue) {
        let (key, value) = self.directions(place).to_client;
        (key, RouteValue { flags: value.flags | TO_RING, bound: flow_cookie.0, ..value })
    }
}

/// Expiry of a route by the programs' clock.
fn until(end: Instant) -> u64 {
    end.as_nanos().saturating_sub(CLOCK_LAG.as_nanos() as u64)
}

/// A rate, in nanoseconds of a bucket that holds a second's worth, and the largest datagram always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) cost: u64,
    pub(crate) window: u64,
}

impl Limit {
    pub(crate) fn of(bytes_per_second: u64) -> Self {
        if bytes_per_second == 0 {
            return Self { cost: 0, window: 0 };
        }
        let rate = u128::from(bytes_per_second);
        let clamp = |nanos: u128| u64::try_from(nanos).unwrap_or(u64::MAX);
        // Of 65,536 bytes; at least 1, so that no rate reads as unlimited.
        let cost = clamp((NANOS_PER_SECOND << 16) / rate).max(1);
        let held = u128::from(bytes_per_second.max(PACKET_MAX));
        Self { cost, window: clamp(held * NANOS_PER_SECOND / rate) }
    }
}

/// The sum of 16-bit words that Internet checksums are made of (RFC 1071).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sum(u16);

impl Sum {
    fn of(bytes: &[u8]) -> Self {
        bytes
            .chunks_exact(2)
            .fold(Self(0), |sum, word| sum.add(u16::from_be_bytes([word[0], word[1]])))
    }

    /// The same of as many bytes as there are, of which the last may have no other.
    pub(crate) fn of_many(bytes: &[u8]) -> Self {
        // Words of the machine's order sum to the same, swapped (RFC 1071 §2).
        let words = bytes.chunks_exact(4);
        let mut last = [0; 4];
        last[..words.remainder().len()].copy_from_slice(words.remainder());
        let sum: u64 = words
            .filter_map(|word| word.first_chunk().copied())
            .chain([last])
            .map(|word| u64::from(u32::from_ne_bytes(word)))
            .sum();
        let [a, b, c, d] = [sum, sum >> 16, sum >> 32, sum >> 48].map(|part| part as u16);
        let folded = Self(a).add(b).add(c).add(d);
        Self(u16::from_be_bytes(folded.0.to_ne_bytes()))
    }

    /// Sum of the pseudo header's addresses and of the ports between two addresses.
    fn between(one: SocketAddr, other: SocketAddr) -> Self {
        of_ip(one.ip()).plus(of_ip(other.ip())).add(one.port()).add(other.port())
    }

    pub(crate) const fn add(self, word: u16) -> Self {
        let (sum, carried) = self.0.overflowing_add(word);
        Self(sum + carried as u16)
    }

    pub(crate) const fn plus(self, other: Self) -> Self {
        self.add(other.0)
    }

    const fn less(self, other: Self) -> Self {
        self.add(!other.0)
    }

    pub(crate) const fn bytes(self) -> [u8; 2] {
        self.0.to_be_bytes()
    }
}

fn of_ip(ip: IpAddr) -> Sum {
    match ip {
        IpAddr::V4(v4) => Sum::of(&v4.octets()),
        IpAddr::V6(v6) => Sum::of(&v6.octets()),
    }
}

/// Sum of the pseudo header of an inbound datagram, without its length.
pub(crate) fn pseudo(from: SocketAddr, to: SocketAddr) -> Sum {
    of_ip(from.ip()).plus(of_ip(to.ip())).add(UDP)
}
