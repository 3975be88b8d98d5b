//! Frames with a UDP datagram, with checksums that are computed from scratch.

use std::net::{IpAddr, SocketAddr};

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;
const UDP_NUMBER: u8 = 17;

/// UDP datagram of a test frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram<'a> {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) ttl: u8,
    pub(super) payload: &'a [u8],
}

impl Datagram<'_> {
    /// Builds the frame with a valid checksum. Link-layer source and destination are zero.
    pub(super) fn frame(&self) -> Vec<u8> {
        self.frame_of(self.udp())
    }

    /// Builds the frame with a partial checksum: only the sum of the pseudo header.
    pub(super) fn frame_with_partial_checksum(&self) -> Vec<u8> {
        let mut udp = self.udp();
        let sum = !checksum(&self.pseudo(udp.len() as u16));
        udp[6..8].copy_from_slice(&sum.to_be_bytes());
        self.frame_of(udp)
    }

    fn frame_of(&self, udp: Vec<u8>) -> Vec<u8> {
        let len = udp.len() as u16;
        let (kind, mut ip) = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let mut ip = vec![0x45, 0];
                ip.extend((len + IPV4 as u16).to_be_bytes());
                ip.extend([0, 0, 0, 0, self.ttl, UDP_NUMBER, 0, 0]);
                ip.extend(from.octets());
                ip.extend(to.octets());
                let check = checksum(&ip).to_be_bytes();
                ip[10..12].copy_from_slice(&check);
                (0x0800_u16, ip)
            }
            (from, to) => {
                let mut ip = vec![0x60, 0, 0, 0];
                ip.extend(len.to_be_bytes());
                ip.extend([UDP_NUMBER, self.ttl]);
                ip.extend(octets(from));
                ip.extend(octets(to));
                (0x86DD, ip)
            }
        };
        let mut frame = vec![0; ETHERNET - 2];
        frame.extend(kind.to_be_bytes());
        frame.append(&mut ip);
        frame.extend(udp);
        frame
    }

    fn udp(&self) -> Vec<u8> {
        let len = (UDP + self.payload.len()) as u16;
        let mut udp = Vec::new();
        udp.extend(self.from.port().to_be_bytes());
        udp.extend(self.to.port().to_be_bytes());
        udp.extend(len.to_be_bytes());
        udp.extend([0, 0]);
        udp.extend(self.payload);
        let check = match checksum(&[&self.pseudo(len)[..], &udp].concat()) {
            0 => 0xFFFF,
            sum => sum,
        };
        udp[6..8].copy_from_slice(&check.to_be_bytes());
        udp
    }

    fn pseudo(&self, len: u16) -> Vec<u8> {
        [
            octets(self.from.ip()),
            octets(self.to.ip()),
            vec![0, UDP_NUMBER],
            len.to_be_bytes().to_vec(),
        ]
        .concat()
    }
}

/// Returns the frame without the IPv4 identification, and with the result of the check instead of
/// the header checksum.
pub(super) fn without_identification(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if frame.len() >= ETHERNET + IPV4 && frame[12..14] == [8, 0] {
        // The checksum over a header that includes a valid checksum is zero.
        let fits = checksum(&frame[ETHERNET..ETHERNET + IPV4]) == 0;
        frame[ETHERNET + 4..ETHERNET + 6].fill(0);
        frame[ETHERNET + 10..ETHERNET + 12].fill(u8::from(fits));
    }
    frame
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// Returns the Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let sum: u32 = bytes.chunks(2).map(word).sum();
    let sum = (sum & 0xFFFF) + (sum >> 16);
    !((sum + (sum >> 16)) as u16)
}
