//! Addresses that are not ordinary hosts on the internet. The tables contain IANA's special-purpose
//! registries for IPv4 and IPv6 (as of 2025-10-09), and further ranges that are unfit for peers.
//!
//! Entries that the registries call globally reachable are listed too. Such entries are anycast
//! services, sinkholes, translators and identifiers, and none is a peer.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Prefix of a family, as printed in the registries.
pub(super) struct Entry {
    network: IpAddr,
    len: u8,
}

impl Entry {
    /// Returns true if the prefix contains `ip`.
    pub(super) const fn contains(&self, ip: IpAddr) -> bool {
        match (self.network, ip) {
            (IpAddr::V4(network), IpAddr::V4(ip)) => {
                (network.to_bits() ^ ip.to_bits()).leading_zeros() >= self.len as u32
            }
            (IpAddr::V6(network), IpAddr::V6(ip)) => {
                (network.to_bits() ^ ip.to_bits()).leading_zeros() >= self.len as u32
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

const fn v4(octets: [u8; 4], len: u8) -> Entry {
    let [a, b, c, d] = octets;
    Entry { network: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), len }
}

const fn v6(head: [u16; 4], last: u16, len: u8) -> Entry {
    let [a, b, c, d] = head;
    Entry { network: IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, last)), len }
}

/// Teredo and 6to4, which RFC 8656 §21.4 forbids at both ends.
pub(super) const TUNNELS: [Entry; 2] = [
    v6([0x2001, 0, 0, 0], 0, 32), // Teredo, RFC 4380
    v6([0x2002, 0, 0, 0], 0, 16), // 6to4, RFC 3056
];

/// Addresses that no rule can allow: not a single host, malformed, or forbidden by RFC 8656.
pub(super) const NEVER: [Entry; 8] = [
    v4([0, 0, 0, 0], 8), // this network; 0.0.0.0 reaches the host itself, RFC 791 §3.2
    v4([224, 0, 0, 0], 4), // multicast, RFC 1112 §4
    v4([255, 255, 255, 255], 32), // limited broadcast, RFC 919 §7
    v6([0, 0, 0, 0], 0, 128), // unspecified, RFC 4291 §2.5.2
    // IPv4 as IPv6: malformed
    Entry { network: IpAddr::V6(Ipv4Addr::UNSPECIFIED.to_ipv6_mapped()), len: 96 },
    v6([0x2001, 0, 0, 0], 0, 32), // Teredo, RFC 8656 §21.4
    v6([0x2002, 0, 0, 0], 0, 16), // 6to4, RFC 8656 §21.4
    v6([0xff00, 0, 0, 0], 0, 8),  // multicast, RFC 4291 §2.7
];

/// IANA IPv4 Special-Purpose Address Registry, followed by ranges missing in the registry.
const SPECIAL_V4: [Entry; 28] = [
    v4([0, 0, 0, 0], 8),          // this network, RFC 791
    v4([0, 0, 0, 0], 32),         // this host on this network, RFC 1122
    v4([10, 0, 0, 0], 8),         // private use, RFC 1918
    v4([100, 64, 0, 0], 10),      // shared address space, RFC 6598
    v4([127, 0, 0, 0], 8),        // loopback, RFC 1122
    v4([169, 254, 0, 0], 16),     // link-local, RFC 3927; the metadata services of clouds
    v4([172, 16, 0, 0], 12),      // private use, RFC 1918
    v4([192, 0, 0, 0], 24),       // IETF protocol assignments, RFC 6890
    v4([192, 0, 0, 0], 29),       // IPv4 service continuity, RFC 7335
    v4([192, 0, 0, 8], 32),       // dummy address, RFC 7600
    v4([192, 0, 0, 9], 32),       // Port Control Protocol anycast, RFC 7723
    v4([192, 0, 0, 10], 32),      // TURN anycast, RFC 8155
    v4([192, 0, 0, 170], 32),     // NAT64/DNS64 discovery, RFC 8880
    v4([192, 0, 0, 171], 32),     // NAT64/DNS64 discovery, RFC 8880
    v4([192, 0, 2, 0], 24),       // documentation, RFC 5737
    v4([192, 31, 196, 0], 24),    // AS112, RFC 7535
    v4([192, 52, 193, 0], 24),    // AMT, RFC 7450
    v4([192, 88, 99, 0], 24),     // 6to4 relay anycast, ended, RFC 7526
    v4([192, 88, 99, 2], 32),     // 6a44 relay anycast, RFC 6751
    v4([192, 168, 0, 0], 16),     // private use, RFC 1918
    v4([192, 175, 48, 0], 24),    // AS112 direct delegation, RFC 7534
    v4([198, 18, 0, 0], 15),      // benchmarking, RFC 2544
    v4([198, 51, 100, 0], 24),    // documentation, RFC 5737
    v4([203, 0, 113, 0], 24),     // documentation, RFC 5737
    v4([240, 0, 0, 0], 4),        // reserved, RFC 1112
    v4([255, 255, 255, 255], 32), // limited broadcast, RFC 8190
    v4([224, 0, 0, 0], 4),        // not in the registry: multicast, RFC 5771
    v4([168, 63, 129, 16], 32),   // not in the registry: Azure host services at a public address
];

/// IANA IPv6 Special-Purpose Address Registry, followed by ranges missing in the registry.
const SPECIAL_V6: [Entry; 28] = [
    v6([0, 0, 0, 0], 1, 128), // loopback, RFC 4291
    v6([0, 0, 0, 0], 0, 128), // unspecified, RFC 4291
    // IPv4-mapped, RFC 4291
    Entry { network: IpAddr::V6(Ipv4Addr::UNSPECIFIED.to_ipv6_mapped()), len: 96 },
    v6([0x64, 0xff9b, 0, 0], 0, 96), // NAT64, well-known prefix, RFC 6052
    v6([0x64, 0xff9b, 1, 0], 0, 48), // NAT64, local use, RFC 8215
    v6([0x100, 0, 0, 0], 0, 64),     // discard-only, RFC 6666
    v6([0x100, 0, 0, 1], 0, 64),     // dummy prefix, RFC 9780
    v6([0x2001, 0, 0, 0], 0, 23),    // IETF protocol assignments, RFC 2928
    v6([0x2001, 0, 0, 0], 0, 32),    // Teredo, RFC 4380
    v6([0x2001, 1, 0, 0], 1, 128),   // Port Control Protocol anycast, RFC 7723
    v6([0x2001, 1, 0, 0], 2, 128),   // TURN anycast, RFC 8155
    v6([0x2001, 1, 0, 0], 3, 128),   // DNS-SD service registration anycast, RFC 9665
    v6([0x2001, 2, 0, 0], 0, 48),    // benchmarking, RFC 5180
    v6([0x2001, 3, 0, 0], 0, 32),    // AMT, RFC 7450
    v6([0x2001, 4, 0x112, 0], 0, 48), // AS112, RFC 7535
    v6([0x2001, 0x10, 0, 0], 0, 28), // ORCHID, ended, RFC 4843
    v6([0x2001, 0x20, 0, 0], 0, 28), // ORCHIDv2, RFC 7343
    v6([0x2001, 0x30, 0, 0], 0, 28), // drone remote id tags, RFC 9374
    v6([0x2001, 0xdb8, 0, 0], 0, 32), // documentation, RFC 3849
    v6([0x2002, 0, 0, 0], 0, 16),    // 6to4, RFC 3056
    v6([0x2620, 0x4f, 0x8000, 0], 0, 48), // AS112 direct delegation, RFC 7534
    v6([0x3fff, 0, 0, 0], 0, 20),    // documentation, RFC 9637
    v6([0x5f00, 0, 0, 0], 0, 16),    // segment routing identifiers, RFC 9602
    v6([0xfc00, 0, 0, 0], 0, 7),     // unique local, RFC 4193
    v6([0xfe80, 0, 0, 0], 0, 10),    // link-local, RFC 4291
    // Not in the registry:
    v6([0, 0, 0, 0], 0, 8), // reserved by the IETF, with all that embed IPv4, RFC 4291 §2.4
    v6([0xfec0, 0, 0, 0], 0, 10), // site-local, ended, RFC 3879
    v6([0xff00, 0, 0, 0], 0, 8), // multicast, RFC 4291 §2.7
];

/// Returns true if `ip` is refused unless a rule allows it.
pub(super) fn is_special(ip: IpAddr) -> bool {
    let table: &[Entry] = match ip {
        IpAddr::V4(_) => &SPECIAL_V4,
        IpAddr::V6(_) => &SPECIAL_V6,
    };
    table.iter().any(|entry| entry.contains(ip))
}
