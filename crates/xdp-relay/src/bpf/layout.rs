//! Types shared by user space and the programs. `bpf/routes.h` declares the same in C: change both
//! together.

use std::net::{IpAddr, SocketAddr};

/// Key of a packet (`struct route_key`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteKey {
    pub(crate) remote: [u8; 16],
    pub(crate) local: [u8; 16],
    pub(crate) remote_port: [u8; 2],
    pub(crate) local_port: [u8; 2],
    /// Of ChannelData; 0: a datagram from a peer.
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
    /// Channel of the header to prepend; 0: the header is removed.
    pub(crate) channel: [u8; 2],
    /// TO_V6, HAIRPIN, PROBE, TO_RING.
    pub(crate) flags: u8,
    pub(crate) worker: u8,
    pub(crate) until: u64,
    /// Made by [`Self::bounded`]; for TO_RING, the flow cookie.
    pub(crate) bound: u64,
    pub(crate) flow: u32,
    /// Sums in the order of the packet's bytes.
    pub(crate) pseudo: [u8; 2],
    pub(crate) udp_change: [u8; 2],
}

/// `ROUTE_TO_V6`.
pub(crate) const TO_V6: u8 = 1;
/// `ROUTE_HAIRPIN`.
pub(crate) const HAIRPIN: u8 = 2;
/// `ROUTE_PROBE`.
pub(crate) const PROBE: u8 = 4;
/// `ROUTE_HANDED`.
pub(crate) const TO_RING: u8 = 8;

/// Bucket of a route without a limit.
const UNLIMITED: u32 = u32::MAX;

/// An interface.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkValue {
    pub(crate) mac: [u8; 6],
    /// LEAVE_XDP, LEAVE_TC.
    pub(crate) leave: u8,
    /// 0: not an interface of this host; LINK_KNOWN, LINK_PARTIAL.
    pub(crate) known: u8,
}

impl LinkValue {
    /// Not an interface of this host.
    pub(crate) const UNKNOWN: Self = Self { mac: [0; 6], leave: 0, known: 0 };
}

/// Words of `struct entry`, in its order: `struct route`, the key, the generation, and the
/// evidence.
pub(crate) mod entry {
    pub(crate) const UNTIL: usize = 5;
    /// The bucket and the flow label, or the ticket. The program that sees packets leave writes the
    /// flow label, its upper half.
    pub(crate) const BOUND: usize = 6;
    pub(crate) const KEY: usize = 8;
    /// In its lower half (this machine is little-endian); in the upper one 1 while packets are in
    /// the stack.
    pub(crate) const GENERATION: usize = 13;
    pub(crate) const PROVEN: usize = 14;
    pub(crate) const NEXT_HOP: usize = 15;
    /// Number of words.
    pub(crate) const WORDS: usize = 16;
}

/// Words of `struct route`, and of a key.
const ROUTE_WORDS: usize = entry::KEY;
const KEY_WORDS: usize = entry::GENERATION - entry::KEY;

impl RouteValue {
    /// The word of the bucket that limits a route, if one does, and of its flow label.
    pub(crate) fn bounded(bucket: Option<u32>, flow_label: u32) -> u64 {
        u64::from(flow_label) << 32 | u64::from(bucket.unwrap_or(UNLIMITED))
    }

    /// It as the programs read it.
    pub(crate) const fn words(self) -> [u64; ROUTE_WORDS] {
        // SAFETY: `repr(C)` integers and bytes of the size asserted below, without padding: every
        // byte is initialised, and any bytes are words.
        unsafe { std::mem::transmute(self) }
    }
}

impl RouteKey {
    /// The key of no packet.
    pub(crate) const NONE: Self = Self {
        remote: [0; 16],
        local: [0; 16],
        remote_port: [0; 2],
        local_port: [0; 2],
        channel: [0; 2],
        zero: [0; 2],
    };

    /// It as the programs read it.
    pub(crate) const fn words(self) -> [u64; KEY_WORDS] {
        // SAFETY: `repr(C)` bytes of the size asserted below: every byte is initialised, and any
        // bytes are words.
        unsafe { std::mem::transmute(self) }
    }
}

const _: () = assert!(size_of::<RouteKey>() == 8 * KEY_WORDS);
const _: () = assert!(size_of::<RouteValue>() == 8 * ROUTE_WORDS);
const _: () = assert!(std::mem::offset_of!(RouteValue, until) == 8 * entry::UNTIL);
const _: () = assert!(std::mem::offset_of!(RouteValue, bound) == 8 * entry::BOUND);
const _: () = assert!(size_of::<LinkValue>() == 8);

// SAFETY: bytes alone, and no padding.
unsafe impl aya::Pod for RouteKey {}
// SAFETY: bytes alone, and no padding.
unsafe impl aya::Pod for LinkValue {}

pub(crate) const LEAVE_XDP: u8 = 1;
pub(crate) const LEAVE_TC: u8 = 2;

pub(crate) const LINK_KNOWN: u8 = 1;
pub(crate) const LINK_PARTIAL: u8 = 2;

/// Words of `struct cell`, in its order.
pub(crate) mod cell {
    pub(crate) const TO_PEER_PACKETS: usize = 0;
    pub(crate) const TO_PEER_BYTES: usize = 1;
    pub(crate) const TO_CLIENT_PACKETS: usize = 2;
    pub(crate) const TO_CLIENT_BYTES: usize = 3;
    pub(crate) const TO_PEER_OVER: usize = 4;
    pub(crate) const TO_CLIENT_OVER: usize = 5;
    pub(crate) const SEEN: usize = 6;
    /// Number of words; the programs alone use the last one.
    pub(crate) const WORDS: usize = 8;
}

/// Size of `struct ring_datagram`, the header of a payload, and the offsets of its fields.
pub(crate) mod ring_datagram {
    pub(crate) const FLOW_COOKIE: usize = 0;
    pub(crate) const LEN: usize = 8;
    pub(crate) const CHECK: usize = 10;
    pub(crate) const TTL: usize = 12;
    pub(crate) const TOS: usize = 13;
    pub(crate) const PARTIAL: usize = 14;
    pub(crate) const SIZE: usize = 16;
}

/// Words of `struct bucket`, in its order: the two directions first.
pub(crate) mod bucket {
    pub(crate) const COST: usize = 2;
    pub(crate) const WINDOW: usize = 3;
    /// Number of words.
    pub(crate) const WORDS: usize = 4;
}

/// Bytes of `struct scratch`, of each processor.
pub(crate) const SCRATCH_BYTES: usize = 4104;

/// Words of `struct punt_state`, in its order.
pub(crate) mod punt_state {
    pub(crate) const FIRST: usize = 0;
    pub(crate) const LAST: usize = 1;
    /// Packets that entered the stack; in the upper half those that left it.
    pub(crate) const NUMBERS: usize = 3;
    /// In the lower half; the upper one is the programs' alone.
    pub(crate) const LOWEST: usize = 4;
    /// The number of times, the reason, and whether it settles.
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

/// `PASS_UNPROVEN`.
pub(crate) const UNPROVEN: u16 = 14;

/// Words of one of the two bitmaps of `struct port_filter`.
pub(crate) const PORT_FILTER_WORDS: usize = 65_536 / 64;

/// `WORKERS_MAX`: leases that there are.
pub(crate) const WORKERS_MAX: usize = 256;

/// `enum pass`: why a packet of a known route was left to user space, as metrics call it.
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

/// `PARTIAL`: not a reason, but the number of packets taken with partial checksums.
pub(crate) const PARTIAL: u32 = PASSES.len() as u32;

/// A next hop in one word, as `next_hop_of` computes it.
pub(crate) const fn way(interface: u32, mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    (interface as u64) << 48 | u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// An address as the programs have it: IPv4 as `::ffff:a.b.c.d`.
pub(crate) const fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// A key.
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
