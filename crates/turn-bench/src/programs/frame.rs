//! Frames as they come to a program, made from scratch.

use std::net::{IpAddr, SocketAddr};

use etherparse::checksum::Sum16BitWords;
use etherparse::{IpHeaders, IpNumber, Ipv4Header, Ipv6Header, PacketBuilder};

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
/// Bytes of a ChannelData header.
pub(super) const CHANNEL_HEADER: usize = 4;

/// A UDP datagram in a frame from and to the address zero, which is the loopback's. Empty if the
/// payload does not fit into a datagram.
pub(super) fn datagram(from: SocketAddr, to: SocketAddr, hops: u8, payload: &[u8]) -> Vec<u8> {
    let ip = match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let (source, destination) = (source.octets(), destination.octets());
            let rest = Ipv4Header { dont_fragment: false, ..Ipv4Header::default() };
            let header = Ipv4Header { time_to_live: hops, source, destination, ..rest };
            IpHeaders::Ipv4(header, Default::default())
        }
        (source, destination) => {
            let (source, destination) = (octets(source), octets(destination));
            let rest = Ipv6Header::default();
            let header = Ipv6Header { hop_limit: hops, source, destination, ..rest };
            IpHeaders::Ipv6(header, Default::default())
        }
    };
    let headers = PacketBuilder::ethernet2([0; 6], [0; 6]).ip(ip).udp(from.port(), to.port());
    let mut frame = Vec::with_capacity(headers.size(payload.len()));
    if headers.write(&mut frame, payload).is_err() {
        frame.clear();
    }
    frame
}

/// The bytes behind the IP header, which follow from the datagram alone. Empty for other frames.
pub(super) fn behind_ip(frame: &[u8]) -> &[u8] {
    let ip = match frame.get(ETHERNET - 2..ETHERNET) {
        Some([8, 0]) => IPV4,
        Some([0x86, 0xDD]) => IPV6,
        Some(_) | None => return &[],
    };
    frame.get(ETHERNET + ip..).unwrap_or_default()
}

/// Returns `true` when the checksum is that of the pseudo header alone, as virtual links leave it
/// for the card to complete.
pub(super) fn looks_unfinished(frame: &[u8]) -> bool {
    let udp = behind_ip(frame);
    let (Some(len), Some(sum)) = (udp.get(4..6), udp.get(6..8)) else { return false };
    let addresses = if frame.len() - udp.len() == ETHERNET + IPV4 { 8 } else { 32 };
    let at = frame.len() - udp.len() - addresses;
    let pseudo = Sum16BitWords::new().add_slice(&frame[at..][..addresses]);
    let pseudo = pseudo.add_2bytes([0, IpNumber::UDP.0]).add_slice(len);
    sum == (!pseudo.ones_complement()).to_ne_bytes()
}

/// A payload in so many ChannelData headers, one within the other.
pub(super) fn nested(channel: u16, times: u32, payload: &[u8]) -> Vec<u8> {
    let headers = times as usize * CHANNEL_HEADER;
    let mut whole = Vec::with_capacity(headers + payload.len());
    for header in 1..=times as usize {
        let len = headers + payload.len() - header * CHANNEL_HEADER;
        whole.extend(channel.to_be_bytes());
        whole.extend((len as u16).to_be_bytes());
    }
    whole.extend(payload);
    whole
}

/// The frame of a datagram over IPv4 made one of TCP: as far as the programs look, it is.
pub(super) fn as_tcp(mut frame: Vec<u8>) -> Vec<u8> {
    frame[ETHERNET + 9] = IpNumber::TCP.0;
    frame
}

/// The same frame, of a protocol that is not IP: that of ARP.
pub(super) fn as_arp(mut frame: Vec<u8>) -> Vec<u8> {
    frame[ETHERNET - 2..ETHERNET].copy_from_slice(&[8, 6]);
    frame
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_header_says_what_is_behind_it() {
        let mut rest = &nested(0x4001, 3, b"abc")[..];
        for _ in 0..3 {
            assert_eq!(rest[..2], [0x40, 1]);
            assert_eq!(usize::from(u16::from_be_bytes([rest[2], rest[3]])), rest.len() - 4);
            rest = &rest[4..];
        }
        assert_eq!(rest, b"abc");
    }

    #[test]
    fn an_unfinished_checksum_is_that_of_the_pseudo_header() {
        for (from, to) in [("198.18.1.2:1", "198.18.2.2:2"), ("[2001:2::1]:1", "[2001:2::2]:2")] {
            let mut frame = datagram(from.parse().unwrap(), to.parse().unwrap(), 64, b"odd");
            assert_eq!(behind_ip(&frame)[8..], *b"odd");
            assert!(!looks_unfinished(&frame));
            let udp = frame.len() - 8 - 3;
            let addresses = if udp == ETHERNET + IPV4 { 8 } else { 32 };
            let pseudo = [&frame[udp - addresses..udp], &[0, 17, 0, 11]].concat();
            let words = pseudo.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
            let sum: u32 = words.sum();
            let sum = (sum & 0xFFFF) + (sum >> 16);
            frame[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes()[2..]);
            assert!(looks_unfinished(&frame));
        }
    }
}
