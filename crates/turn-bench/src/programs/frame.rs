//! Frames as they come to a program, made from scratch.

use std::net::{IpAddr, SocketAddr};

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: u8 = 17;
const TCP: u8 = 6;
/// Bytes of a ChannelData header.
pub(super) const CHANNEL_HEADER: usize = 4;

/// A UDP datagram in a frame from and to the address zero, which is the loopback's.
pub(super) fn datagram(from: SocketAddr, to: SocketAddr, hops: u8, payload: &[u8]) -> Vec<u8> {
    let udp = udp(from, to, payload);
    let len = udp.len() as u16;
    let mut frame = vec![0; ETHERNET - 2];
    match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((len + IPV4 as u16).to_be_bytes());
            frame.extend([0, 0, 0, 0, hops, UDP, 0, 0]);
            frame.extend(source.octets());
            frame.extend(destination.octets());
            let sum = checksum(&frame[ETHERNET..]);
            frame[ETHERNET + 10..][..2].copy_from_slice(&sum.to_be_bytes());
        }
        (source, destination) => {
            frame.extend([0x86, 0xDD, 0x60, 0, 0, 0]);
            frame.extend(len.to_be_bytes());
            frame.extend([UDP, hops]);
            frame.extend(octets(source));
            frame.extend(octets(destination));
        }
    }
    frame.extend(udp);
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

/// Returns `true` when the checksum is that of the pseudo header alone, as virtual links leave it for the
/// card to complete.
pub(super) fn looks_unfinished(frame: &[u8]) -> bool {
    let udp = behind_ip(frame);
    let (Some(len), Some(sum)) = (udp.get(4..6), udp.get(6..8)) else { return false };
    let addresses = if frame.len() - udp.len() == ETHERNET + IPV4 { 8 } else { 32 };
    let at = frame.len() - udp.len() - addresses;
    let pseudo = [&frame[at..][..addresses], &[0, UDP], len].concat();
    sum == (!checksum(&pseudo)).to_be_bytes()
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
    frame[ETHERNET + 9] = TCP;
    frame
}

/// The same frame, of a protocol that is not IP: that of ARP.
pub(super) fn as_arp(mut frame: Vec<u8>) -> Vec<u8> {
    frame[ETHERNET - 2..ETHERNET].copy_from_slice(&[8, 6]);
    frame
}

fn udp(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let len = ((8 + payload.len()) as u16).to_be_bytes();
    let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    let mut udp = [&ports[..], &len, &[0, 0], payload].concat();
    let addresses = [octets(from.ip()), octets(to.ip())].concat();
    let sum = match checksum(&[&addresses[..], &[0, UDP], &len, &udp].concat()) {
        0 => u16::MAX,
        sum => sum,
    };
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    udp
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u64::from);
    let mut sum: u64 = bytes.chunks(2).map(word).sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    // The loop leaves 16 bits.
    !(sum as u16)
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
    fn checksums_fit() {
        let (from, to) = ("198.18.1.2:1".parse().unwrap(), "198.18.2.2:2".parse().unwrap());
        let frame = datagram(from, to, 64, b"odd");
        assert_eq!(checksum(&frame[ETHERNET..ETHERNET + IPV4]), 0);
        let udp = behind_ip(&frame);
        let pseudo = [&frame[26..34], &[0, UDP, 0, udp.len() as u8], udp].concat();
        assert_eq!(checksum(&pseudo), 0);
        assert_eq!(&udp[8..], b"odd");
        assert!(!looks_unfinished(&frame));
        let mut unfinished = frame.clone();
        let sum = !checksum(&pseudo[..12]);
        unfinished[40..42].copy_from_slice(&sum.to_be_bytes());
        assert!(looks_unfinished(&unfinished));
    }
}
