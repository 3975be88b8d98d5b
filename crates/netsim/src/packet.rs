//! Packets.

use std::fmt;
use std::net::SocketAddr;

/// A UDP datagram or an ICMP error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Source, as seen at the packet's present hop.
    pub src: SocketAddr,
    /// Destination, as seen at the packet's present hop.
    pub dst: SocketAddr,
    /// Content.
    pub body: Body,
    /// Do not fragment: a packet larger than an MTU is dropped, and ICMP reports it to the sender.
    pub dont_fragment: bool,
}

/// Content of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A datagram's payload.
    Udp(Vec<u8>),
    /// An error about an earlier packet.
    Icmp(Icmp),
}

/// An ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmp {
    /// ICMP type, of the family of the addresses.
    pub kind: u8,
    /// ICMP code.
    pub code: u8,
    /// Next-hop MTU of "too big" errors, otherwise 0.
    pub data: u32,
    /// Source of the packet the error is about.
    pub about_src: SocketAddr,
    /// Destination of the packet the error is about.
    pub about_dst: SocketAddr,
}

impl Packet {
    /// A datagram that may be fragmented.
    #[must_use]
    pub const fn udp(src: SocketAddr, dst: SocketAddr, payload: Vec<u8>) -> Self {
        Self { src, dst, body: Body::Udp(payload), dont_fragment: false }
    }

    /// "Port unreachable" about this packet, for its sender. `None` about an ICMP error: errors
    /// cause no errors.
    #[must_use]
    pub const fn port_unreachable(&self) -> Option<Self> {
        // Type 3 code 3 (RFC 792), type 1 code 4 (RFC 4443).
        let (kind, code) = if self.src.is_ipv4() { (3, 3) } else { (1, 4) };
        self.icmp_back(kind, code, 0)
    }

    /// "Too big" about this packet, for its sender.
    #[must_use]
    pub const fn too_big(&self, mtu: u32) -> Option<Self> {
        // Type 3 code 4 (RFC 1191), type 2 code 0 (RFC 4443).
        let (kind, code) = if self.src.is_ipv4() { (3, 4) } else { (2, 0) };
        self.icmp_back(kind, code, mtu)
    }

    const fn icmp_back(&self, kind: u8, code: u8, data: u32) -> Option<Self> {
        if matches!(self.body, Body::Icmp(_)) {
            return None;
        }
        let icmp = Icmp { kind, code, data, about_src: self.src, about_dst: self.dst };
        Some(Self { src: self.dst, dst: self.src, body: Body::Icmp(icmp), dont_fragment: false })
    }

    /// Size on the wire: payload, UDP header and IP header without options.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        let ip_header = if self.src.is_ipv4() { 20 } else { 40 };
        ip_header
            + match &self.body {
                Body::Udp(payload) => 8 + payload.len(),
                // An ICMP header and the first 28 or 48 bytes of the packet it is about.
                Body::Icmp(_) => 8 + ip_header + 8,
            }
    }
}

/// One line for the trace of a failed run.
impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {} ", self.src, self.dst)?;
        match &self.body {
            Body::Udp(payload) => {
                write!(f, "{} bytes:", payload.len())?;
                payload.iter().take(8).try_for_each(|byte| write!(f, " {byte:02x}"))
            }
            Body::Icmp(icmp) => write!(
                f,
                "icmp {}/{} about {} -> {}",
                icmp.kind, icmp.code, icmp.about_src, icmp.about_dst
            ),
        }
    }
}
