//! Helpers of the programs' tests: frames written and read by independent code.

use std::net::{IpAddr, SocketAddr};

use aya::programs::{TestRun as _, Xdp};
use aya::{Ebpf, TestRunOptions};
use etherparse::{NetHeaders, PacketBuilder, PacketHeaders};

use super::{FrameFlow, Mac, Unavailable, available};
use crate::packet::Header;

/// Returns `true` when this process may load programs; otherwise the test counts as skipped.
pub(super) fn privileged() -> bool {
    let reason = match available() {
        Ok(()) => return true,
        Err(Unavailable::Failed(error)) => panic!("{error:#}"),
        Err(reason @ (Unavailable::Privileges(_) | Unavailable::Kernel(_))) => reason,
    };
    test_support::skip(reason);
    false
}

/// A flow of the family, with or without a channel.
pub(super) fn flow(number: u32, ipv6: bool, channel: bool) -> FrameFlow {
    let (source, destination) = if ipv6 {
        ("[fd77:1::2]:40000", "[fd77:1::1]:3478")
    } else {
        ("10.77.1.2:40000", "10.77.1.1:3478")
    };
    let mut source: SocketAddr = source.parse().unwrap();
    source.set_port(40_000 + u16::try_from(number).unwrap());
    FrameFlow {
        number,
        source_mac: Mac([2, 0, 0, 0, 0, 1]),
        destination_mac: Mac([2, 0, 0, 0, 0, 2]),
        source,
        destination: destination.parse().unwrap(),
        channel: channel.then(|| 0x4000 + u16::try_from(number).unwrap()),
    }
}

/// A frame as a flow sends it, with filler up to `size` bytes.
pub(super) fn frame(flow: &FrameFlow, header: Header, size: u16) -> Vec<u8> {
    let channel = flow.channel.map(|channel| [channel.to_be_bytes(), size.to_be_bytes()].concat());
    let mut packet = header.encode().to_vec();
    packet.resize(usize::from(size), 0);
    let payload = [channel.unwrap_or_default(), packet].concat();

    let frame = PacketBuilder::ethernet2(flow.source_mac.0, flow.destination_mac.0);
    let frame = match (flow.source.ip(), flow.destination.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => frame.ipv4(from.octets(), to.octets(), 64),
        (IpAddr::V6(from), IpAddr::V6(to)) => frame.ipv6(from.octets(), to.octets(), 64),
        mixed => panic!("{mixed:?}"),
    };
    let mut bytes = Vec::new();
    let frame = frame.udp(flow.source.port(), flow.destination.port());
    frame.write(&mut bytes, &payload).unwrap();
    bytes
}

/// Fields of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) source_mac: Mac,
    pub(super) destination_mac: Mac,
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    pub(super) payload: Vec<u8>,
}

/// Reads a frame as a strict receiver does.
///
/// # Panics
/// When a length or a checksum is wrong.
pub(super) fn read(frame: &[u8]) -> Read {
    let packet = PacketHeaders::from_ethernet_slice(frame).unwrap();
    let (link, udp) = (packet.link.unwrap().ethernet2().unwrap(), packet.transport.unwrap());
    let udp = udp.udp().unwrap();
    let payload = packet.payload.slice();
    assert_eq!(usize::from(udp.length), 8 + payload.len(), "UDP length");
    let (source, destination, ip, checksum): (IpAddr, IpAddr, _, _) = match packet.net.unwrap() {
        NetHeaders::Ipv4(ip, _) => {
            assert_eq!(ip.header_checksum, ip.calc_header_checksum(), "IP checksum");
            let checksum = udp.calc_checksum_ipv4(&ip, payload).unwrap();
            (ip.source.into(), ip.destination.into(), ip.header_len(), checksum)
        }
        NetHeaders::Ipv6(ip, _) => {
            let checksum = udp.calc_checksum_ipv6(&ip, payload).unwrap();
            (ip.source.into(), ip.destination.into(), ip.header_len(), checksum)
        }
        NetHeaders::Arp(_) => panic!("ARP"),
    };
    assert_eq!(frame.len(), 14 + ip + 8 + payload.len(), "IP length");
    assert_eq!(udp.checksum, checksum, "UDP checksum");
    Read {
        source_mac: Mac(link.source),
        destination_mac: Mac(link.destination),
        source: (source, udp.source_port).into(),
        destination: (destination, udp.destination_port).into(),
        payload: payload.to_vec(),
    }
}

/// The verdicts of XDP programs.
pub(super) const DROP: u32 = 1;
pub(super) const PASS: u32 = 2;
pub(super) const REDIRECT: u32 = 4;

/// Runs a program on one frame; nothing is sent. Returns its verdict and the frame as it is then.
pub(super) fn run(object: &Ebpf, program: &str, frame: &[u8]) -> (u32, Vec<u8>) {
    let program: &Xdp = object.program(program).unwrap().try_into().unwrap();
    let mut out = vec![0; frame.len()];
    let mut options = TestRunOptions::new();
    options.data_in = Some(frame);
    options.data_out = Some(&mut out);
    let result = program.test_run(options).unwrap();
    assert_eq!(result.data_size_out as usize, frame.len());
    (result.return_value, out)
}
