//! Types shared by user space and the programs. `bpf/routes.h` declares these types in C. Both
//! declarations must be changed together.

use std::net::{IpAddr, SocketAddr};

/// Key of a packet (`struct route_key`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteKey {
    pub(crate) remote: [u8; 16],
    pub(crate) local: [u8; 16],
    pub(crate) remote_port: [u8; 2],
    pub(crate) local_port: [u8; 2],
    /// Channel number of ChannelData. 0 means a datagram from a peer.
    pub(crate) channel: [u8; 2],
    pub(crate) zero: [u8; 2],
}

/// Forwarding of a packet (`struct route`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteValue {
    pub(crate) source: [u8; 16],
    pub(crate) destination: [u8; 16],
    pub(crate) source_port: [u8; 2],
    pub(crate) destination_port: [u8; 2],
    /// Channel number of the header to prepend. 0 means that the header is removed.
    pub(crate) channel: [u8; 2],
    /// Flags: TO_V6, HAIRPIN, PROBE, TO_RING.
    pub(crate) flags: u8,
    pub(crate) worker: u8,
    pub(crate) until: u64,
    /// Bucket and flow label, built by [`Self::bounded`]. For TO_RING, the flow cookie.
    pub(crate) bound: u64,
    pub(crate) flow: u32,
    /// Sum of the inbound pseudo header, in the byte order of the packet, like `udp_change`.
    pub(crate) pseudo: [u8; 2],
    pub(crate) udp_change: [u8; 2],
}

/// Route flag `ROUTE_TO_V6`: the outbound packet is IPv6.
pub(crate) const TO_V6: u8 = 1;
/// Route flag `ROUTE_HAIRPIN`: the peer is a relayed address of this host.
pub(crate) const HAIRPIN: u8 = 2;
/// Route flag `ROUTE_SELF_TEST`: the route belongs to the self-test.
pub(crate) const PROBE: u8 = 4;
/// Route flag `ROUTE_TO_RING`: packets are delivered to the worker's ring.
pub(crate) const TO_RING: u8 = 8;

/// Bucket index of a route without a limit.
const UNLIMITED: u32 = u32::MAX;

/// Network interface (`struct link`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkValue {
    pub(crate) mac: [u8; 6],
    /// Hooks whose packets may leave by the interface: LEAVE_XDP, LEAVE_TC.
    pub(crate) leave: u8,
    /// Flags: LINK_KNOWN, LINK_PARTIAL. 0 means that the interface is unknown.
    pub(crate) known: u8,
}

impl LinkValue {
    /// Value of an interface that is unknown to the programs.
    pub(crate) const UNKNOWN: Self = Self { mac: [0; 6], leave: 0, known: 0 };
}

/// Offsets of words in `struct entry`: `struct route`, the key, the generation, and the evidence.
pub(crate) mod entry {
    pub(crate) const UNTIL: usize = 5;
    /// Bucket and flow label, or the flow cookie. The tap writes the flow label, in the upper half.
    pub(crate) const BOUND: usize = 6;
    pub(crate) const KEY: usize = 8;
    /// Generation in the lower half (this machine is little-endian). The upper half is 1 while
    /// packets are in the stack.
    pub(crate) const GENERATION: usize = 13;
    pub(crate) const PROVEN: usize = 14;
    pub(crate) const NEXT_HOP: usize = 15;
    /// Number of words.
    pub(crate) const WORDS: usize = 16;
}

/// Number of words in `struct route`, and in a key.
const ROUTE_WORDS: usize = entry::KEY;
const KEY_WORDS: usize = entry::GENERATION - entry::KEY;

impl RouteValue {
    /// Builds the word of the bucket that limits a route, if there is a limit, and of the flow
    /// label.
    pub(crate) fn bounded(bucket: Option<u32>, flow_label: u32) -> u64 {
        u64::from(flow_label) << 32 | u64::from(bucket.unwrap_or(UNLIMITED))
    }

    /// Returns the route as words, in the layout that the programs read.
    pub(crate) const fn words(self) -> [u64; ROUTE_WORDS] {
        // SAFETY: `Self` is `repr(C)` and consists of integers and bytes without padding, of the
        // size asserted below. Every byte is initialised, and any bytes are valid words.
        unsafe { std::mem::transmute(self) }
    }
}

impl RouteKey {
    /// Key that no packet has.
    pub(crate) const NONE: Self = Self {
        remote: [0; 16],
        local: [0; 16],
        remote_port: [0; 2],
        local_port: [0; 2],
        channel: [0; 2],
        zero: [0; 2],
    };

    /// Returns the key as words, in the layout that the programs read.
    pub(crate) const fn words(self) -> [u64; KEY_WORDS] {
        // SAFETY: `Self` is `repr(C)` and consists of bytes, of the size asserted below. Every byte
        // is initialised, and any bytes are valid words.
        unsafe { std::mem::transmute(self) }
    }
}

const _: () = assert!(size_of::<RouteKey>() == 8 * KEY_WORDS);
const _: () = assert!(size_of::<RouteValue>() == 8 * ROUTE_WORDS);
const _: () = assert!(std::mem::offset_of!(RouteValue, until) == 8 * entry::UNTIL);
const _: () = assert!(std::mem::offset_of!(RouteValue, bound) == 8 * entry::BOUND);
const _: () = assert!(size_of::<LinkValue>() == 8);

// SAFETY: the type consists only of bytes, without padding.
unsafe impl aya::Pod for RouteKey {}
// SAFETY: the type consists only of bytes, without padding.
unsafe impl aya::Pod for LinkValue {}

pub(crate) const LEAVE_XDP: u8 = 1;
pub(crate) const LEAVE_TC: u8 = 2;

pub(crate) const LINK_KNOWN: u8 = 1;
pub(crate) const LINK_PARTIAL: u8 = 2;

/// Offsets of words in `struct cell`.
pub(crate) mod cell {
    pub(crate) const TO_PEER_PACKETS: usize = 0;
    pub(crate) const TO_PEER_BYTES: usize = 1;
    pub(crate) const TO_CLIENT_PACKETS: usize = 2;
    pub(crate) const TO_CLIENT_BYTES: usize = 3;
    pub(crate) const TO_PEER_OVER: usize = 4;
    pub(crate) const TO_CLIENT_OVER: usize = 5;
    pub(crate) const SEEN: usize = 6;
    /// Number of words, including an unused last word.
    pub(crate) const WORDS: usize = 8;
}

/// Offsets of fields, and size, of `struct ring_datagram`, the header of a payload.
pub(crate) mod ring_datagram {
    pub(crate) const FLOW_COOKIE: usize = 0;
    pub(crate) const LEN: usize = 8;
    pub(crate) const CHECK: usize = 10;
    pub(crate) const TTL: usize = 12;
    pub(crate) const TOS: usize = 13;
    pub(crate) const PARTIAL: usize = 14;
    pub(crate) const SIZE: usize = 16;
}

/// Offsets of words in `struct bucket`. The first two words are the states of the directions.
pub(crate) mod bucket {
    pub(crate) const COST: usize = 2;
    pub(crate) const WINDOW: usize = 3;
    /// Number of words.
    pub(crate) const WORDS: usize = 4;
}

/// Size in bytes of `struct scratch`, which each processor has.
pub(crate) const SCRATCH_BYTES: usize = 4104;

/// Offsets of words in `struct punt_state`.
pub(crate) mod punt_state {
    pub(crate) const FIRST: usize = 0;
    pub(crate) const LAST: usize = 1;
    /// Number of packets that entered the stack in the lower half, and that left the stack in the
    /// upper half.
    pub(crate) const NUMBERS: usize = 3;
    /// Lowest difference of the two numbers, stored in the lower half. Only the programs use the
    /// upper half.
    pub(crate) const LOWEST: usize = 4;
    /// Number of times at which packets entered, reason of the sequence, and the flag `settles`.
    pub(crate) const START: usize = 5;
    /// Time at which a packet last left.
    pub(crate) const LEFT_AT: usize = 6;
    /// Time at which a packet last left altered.
    pub(crate) const ALTERED: usize = 7;
    /// First of the words for probes.
    pub(crate) const PROBES: usize = 8;
    /// Number of words.
    pub(crate) const WORDS: usize = 12;
}

/// Number of the reason `PASS_UNPROVEN`.
pub(crate) const UNPROVEN: u16 = 14;

/// Number of words of each of the two bitmaps of `struct port_filter`.
pub(crate) const PORT_FILTER_WORDS: usize = 65_536 / 64;

/// Number of leases, and so the maximum number of workers (`WORKERS_MAX`).
pub(crate) const WORKERS_MAX: usize = 256;

/// Names in metrics of the reasons why a packet with a known route passes to user space
/// (`enum pass`).
pub(crate) const PASSES: [&str; 18] = [
    "expired",
    "proof_renewal",
    "ttl",
    "checksum",
    "hairpin",
    "no_route",
    "no_neighbour",
    "too_long",
    "link",
    "merged",
    "room",
    "ring",
    "stale",
    "processor",
    "unproven",
    "moved",
    "altered",
    "overtaken",
];

/// Index of the number of packets taken with partial checksums (`PARTIAL`), which is not a reason.
pub(crate) const PARTIAL: u32 = PASSES.len() as u32;

/// Returns a next hop in one word, as computed by `next_hop_of` of the programs.
pub(crate) const fn way(interface: u32, mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    (interface as u64) << 48 | u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// Converts an address to the programs' format. IPv4 is stored as `::ffff:a.b.c.d`.
pub(crate) const fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Builds the key of a packet from `remote` to `local`.
pub(crate) const fn key(remote: SocketAddr, local: SocketAddr, channel: u16) -> RouteKey {
    RouteKey {
        remote: address(remote.ip()),
        local: address(local.ip()),
        remote_port: remote.port().to_be_bytes(),
        local_port: local.port().to_be_bytes(),
        channel: channel.to_be_bytes(),
        zero: [0; 2],
    }
}
