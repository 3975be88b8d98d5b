//! Conversion of a channel to routes for the programs, including the changes of checksums.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use turn_types::Instant;

use crate::bpf::layout::{HAIRPIN, PROBE, RouteKey, RouteValue, TO_RING, TO_V6, address, key};

/// Length of a ChannelData header in bytes.
const CHANNEL_HEADER_LEN: u16 = 4;

/// Protocol number of UDP in a pseudo header.
const UDP: u16 = 17;

/// Maximum lag of the programs' clock: a tick of the kernel. Routes expire earlier by this time,
/// and then the sockets serve the flow.
const CLOCK_LAG: Duration = Duration::from_millis(10);

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// Size of the largest packet charged to a bucket, in bytes: the largest UDP payload with the
/// headers of IPv6 and UDP. Every bucket has the capacity for one such packet.
const PACKET_MAX: u64 = 65_507 + 48;

/// Identifier of a flow whose datagrams are delivered to a worker's ring. Unique within a worker,
/// never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowCookie(pub u64);

/// Bound channel, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Source address of the client's ChannelData.
    pub client: SocketAddr,
    /// Destination address of the client's ChannelData on this server.
    pub server: SocketAddr,
    /// Channel number: 0x4000 to 0x7FFF.
    pub channel: u16,
    /// Relayed address, in the address family of `peer`.
    pub relayed: SocketAddr,
    /// Address of the peer.
    pub peer: SocketAddr,
    /// True if the peer is a relayed address of this host. Packets to the peer then continue to
    /// another client.
    pub hairpin: bool,
    /// Expiry of the direction to the peer.
    pub to_peer_until: Instant,
    /// Expiry of the direction to the client.
    pub to_client_until: Instant,
    /// Rate that the allocation may send in each direction, in bytes per second with the headers of
    /// IP and UDP. 0 means unlimited.
    pub bytes_per_second: u64,
}

/// Parameters of a route that are not part of the flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteSlots {
    pub(crate) flow: u32,
    pub(crate) bucket: u32,
    pub(crate) worker: u8,
    pub(crate) flow_label: u32,
    /// True for routes of the self-test.
    pub(crate) probe: bool,
}

/// Key and route for each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Directions {
    pub(crate) to_peer: (RouteKey, RouteValue),
    pub(crate) to_client: (RouteKey, RouteValue),
}

impl Directions {
    /// Returns true if a refresh is enough to change the entries of `self` to those of `other`.
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
        // Removing a header reduces two lengths: that of the datagram and that of the pseudo
        // header.
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

    /// Returns the key of the peer's datagrams.
    pub(crate) fn key_of_peer(&self) -> RouteKey {
        key(self.peer, self.relayed, 0)
    }

    /// Returns key and route of the single entry that delivers the peer's datagrams to the worker's
    /// ring. The worker identifies the flow by the flow cookie.
    pub(crate) fn ring_route(
        &self,
        place: RouteSlots,
        flow_cookie: FlowCookie,
    ) -> (RouteKey, RouteValue) {
        let (key, value) = self.directions(place).to_client;
        (key, RouteValue { flags: value.flags | TO_RING, bound: flow_cookie.0, ..value })
    }
}

/// Returns the expiry of a route, adjusted to the programs' clock.
fn until(end: Instant) -> u64 {
    end.as_nanos().saturating_sub(CLOCK_LAG.as_nanos() as u64)
}

/// Rate of a bucket, in nanoseconds. The bucket holds the traffic of one second, but at least the
/// largest datagram.
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
        // Nanoseconds for 65,536 bytes. At least 1, because 0 means unlimited.
        let cost = clamp((NANOS_PER_SECOND << 16) / rate).max(1);
        let held = u128::from(bytes_per_second.max(PACKET_MAX));
        Self { cost, window: clamp(held * NANOS_PER_SECOND / rate) }
    }
}

/// Sum of 16-bit words in ones' complement, from which Internet checksums are computed (RFC 1071).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sum(u16);

impl Sum {
    fn of(bytes: &[u8]) -> Self {
        bytes
            .chunks_exact(2)
            .fold(Self(0), |sum, word| sum.add(u16::from_be_bytes([word[0], word[1]])))
    }

    /// Returns the sum of any number of bytes. An odd last byte is padded with zero.
    pub(crate) fn of_many(bytes: &[u8]) -> Self {
        // Words in the machine's byte order have an equal sum with swapped bytes (RFC 1071 §2).
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

    /// Returns the sum of two addresses and their ports: the part of a checksum that depends on the
    /// addresses.
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

/// Returns the sum of the pseudo header of an inbound datagram, without the length.
pub(crate) fn pseudo(from: SocketAddr, to: SocketAddr) -> Sum {
    of_ip(from.ip()).plus(of_ip(to.ip())).add(UDP)
}
