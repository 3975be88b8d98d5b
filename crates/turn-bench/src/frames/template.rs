//! Header templates of a flow's frames, and the constant part of their UDP checksum.

use std::net::IpAddr;

use anyhow::{Result, bail};
use etherparse::{EtherType, Ethernet2Header, IpNumber, Ipv4Header, Ipv6Header, UdpHeader};

use super::FrameFlow;
use crate::packet::{HEADER, Header};

/// Bytes of headers that a template has room for; as in `bpf/source.h`.
const HEADERS_MAX: usize = 96;

/// A template as it lies in the map: headers, then the sum, in the host's byte order.
pub(super) type Template = [u8; HEADERS_MAX + 8];

const ETHERNET: usize = 14;
const UDP: usize = 8;
const CHANNEL_DATA: usize = 4;

/// Layout of the frames of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    ipv6: bool,
    channel: bool,
}

impl Shape {
    /// The shape of all flows.
    ///
    /// # Errors
    /// They are of both families, or some have a channel and some have none: frames of one source
    /// are of one length.
    pub(super) fn of(flows: &[FrameFlow]) -> Result<Self> {
        let shape = |flow: &FrameFlow| Self {
            ipv6: flow.source.is_ipv6(),
            channel: flow.channel.is_some(),
        };
        let Some(first) = flows.first().map(shape) else { bail!("no flow to make frames of") };
        for flow in flows {
            if flow.source.is_ipv6() != flow.destination.is_ipv6() {
                bail!("from {} to {}: not of one family", flow.source, flow.destination);
            }
            if shape(flow) != first {
                bail!("flows of one source are of one family, all with a channel or all without");
            }
        }
        Ok(first)
    }

    const fn ip(self) -> usize {
        if self.ipv6 { 40 } else { 20 }
    }

    /// Offset of the UDP header.
    pub(super) const fn udp_at(self) -> usize {
        ETHERNET + self.ip()
    }

    /// Offset of the packet.
    pub(super) const fn packet_at(self) -> usize {
        self.udp_at() + UDP + if self.channel { CHANNEL_DATA } else { 0 }
    }

    /// Bytes before the filler.
    pub(super) const fn headers(self) -> usize {
        self.packet_at() + HEADER
    }

    /// Bytes of a frame with packets of `size` bytes.
    pub(super) const fn frame(self, size: u16) -> usize {
        self.packet_at() + size as usize
    }
}

/// The template of a flow, for packets of `size` bytes that belong to `run`.
pub(super) fn template(flow: &FrameFlow, shape: Shape, size: u16, run: u32) -> Template {
    let mut headers = Vec::with_capacity(HEADERS_MAX);
    let udp_length = shape.frame(size) - shape.udp_at();
    // A packet is at most a link's MTU, which is 16 bits.
    let udp_length = u16::try_from(udp_length).unwrap_or(u16::MAX);

    let ether_type = if shape.ipv6 { EtherType::IPV6 } else { EtherType::IPV4 };
    let (source, destination) = (flow.source_mac.0, flow.destination_mac.0);
    headers.extend(Ethernet2Header { source, destination, ether_type }.to_bytes());
    match (flow.source.ip(), flow.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut ip = Ipv4Header {
                total_len: udp_length.saturating_add(20),
                dont_fragment: true,
                time_to_live: 64,
                protocol: IpNumber::UDP,
                source: source.octets(),
                destination: destination.octets(),
                ..Ipv4Header::default()
            };
            ip.header_checksum = ip.calc_header_checksum();
            headers.extend(ip.to_bytes());
        }
        (source, destination) => {
            let ip = Ipv6Header {
                payload_length: udp_length,
                next_header: IpNumber::UDP,
                hop_limit: 64,
                source: octets(source),
                destination: octets(destination),
                ..Ipv6Header::default()
            };
            headers.extend(ip.to_bytes());
        }
    }
    let addresses = if shape.ipv6 { 32 } else { 8 };
    let mut covered = sum(&headers[headers.len() - addresses..]);
    covered += u64::from(IpNumber::UDP.0) + u64::from(udp_length);

    let udp = UdpHeader {
        source_port: flow.source.port(),
        destination_port: flow.destination.port(),
        length: udp_length,
        checksum: 0,
    };
    headers.extend(udp.to_bytes());
    if let Some(channel) = flow.channel {
        headers.extend(channel.to_be_bytes());
        headers.extend(size.to_be_bytes());
    }
    headers.extend(Header { run, flow: flow.number, sequence: 0, sent: 0 }.encode());
    covered += sum(&headers[shape.udp_at()..]);

    let mut template = [0; HEADERS_MAX + 8];
    template[..headers.len()].copy_from_slice(&headers);
    template[HEADERS_MAX..].copy_from_slice(&covered.to_ne_bytes());
    template
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The sum of 16-bit words; a last odd byte is the high half of one.
fn sum(bytes: &[u8]) -> u64 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u64::from);
    bytes.chunks(2).map(word).sum()
}
