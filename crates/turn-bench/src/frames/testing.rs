//! Helpers of the programs' tests: frames written and read by independent code.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use aya::programs::{TestRun as _, Xdp};
use aya::{Ebpf, TestRunOptions};

use super::template::{Shape, fold, sum, template};
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
    let shape = Shape::of(&[*flow]).unwrap();
    let mut frame = vec![0; shape.frame(size)];
    let template = template(flow, shape, size, header.run);
    frame[..shape.headers()].copy_from_slice(&template[..shape.headers()]);
    frame[shape.packet_at()..shape.headers()].copy_from_slice(&header.encode());
    write_checksum(&mut frame);
    frame
}

/// Writes the UDP checksum anew.
fn write_checksum(frame: &mut [u8]) {
    let at = udp_at(frame);
    frame[at + 6..at + 8].fill(0);
    let checksum = !fold(udp_sum(frame));
    let checksum = if checksum == 0 { 0xffff } else { checksum };
    frame[at + 6..at + 8].copy_from_slice(&checksum.to_be_bytes());
}

fn udp_at(frame: &[u8]) -> usize {
    if frame[12..14] == [0x86, 0xdd] { 54 } else { 34 }
}

/// The sum of the pseudo-header and of all from the UDP header on.
fn udp_sum(frame: &[u8]) -> u64 {
    let at = udp_at(frame);
    let addresses = if at == 54 { &frame[22..54] } else { &frame[26..34] };
    sum(addresses) + 17 + (frame.len() - at) as u64 + sum(&frame[at..])
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
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let (source, destination): (IpAddr, IpAddr) = match word(12) {
        0x0800 => {
            assert_eq!(frame[14], 0x45);
            assert_eq!(fold(sum(&frame[14..34])), 0xffff, "IP checksum");
            assert_eq!(usize::from(word(16)), frame.len() - 14, "IP length");
            assert_eq!(frame[23], 17);
            let address = |at: usize| Ipv4Addr::from(*frame[at..].first_chunk().unwrap());
            (address(26).into(), address(30).into())
        }
        0x86dd => {
            assert_eq!(frame[14] >> 4, 6);
            assert_eq!(usize::from(word(18)), frame.len() - 54, "IP length");
            assert_eq!(frame[20], 17);
            let address = |at: usize| Ipv6Addr::from(*frame[at..].first_chunk::<16>().unwrap());
            (address(22).into(), address(38).into())
        }
        other => panic!("type {other:#x}"),
    };
    let udp = udp_at(frame);
    assert_eq!(usize::from(word(udp + 4)), frame.len() - udp, "UDP length");
    assert_ne!(word(udp + 6), 0, "no UDP checksum");
    assert_eq!(fold(udp_sum(frame)), 0xffff, "UDP checksum");
    Read {
        destination_mac: Mac(*frame.first_chunk().unwrap()),
        source_mac: Mac(*frame[6..].first_chunk().unwrap()),
        source: (source, word(udp)).into(),
        destination: (destination, word(udp + 2)).into(),
        payload: frame[udp + 8..].to_vec(),
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
