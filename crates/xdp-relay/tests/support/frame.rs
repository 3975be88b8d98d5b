//! Encoder and decoder of frames, written from scratch. Every checksum is computed over its
//! complete range. The decoder is as strict as the stack before a UDP socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use turn_types::IpMeta;

pub type Mac = [u8; 6];

pub const ETHERNET: usize = 14;
pub const IPV4: usize = 20;
pub const IPV6: usize = 40;
pub const UDP: usize = 8;
pub const UDP_NUMBER: u8 = 17;
pub const TYPE_V4: [u8; 2] = [0x08, 0x00];
pub const TYPE_V6: [u8; 2] = [0x86, 0xDD];

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_OR_OFFSET: u16 = 0x3FFF;

/// Link-layer source and destination of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Macs {
    pub to: Mac,
    pub from: Mac,
}

/// UDP datagram, with the independent fields of the IP header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub ttl: u8,
    pub tos: u8,
    /// DF flag of IPv4.
    pub dont_fragment: bool,
    /// Identification of IPv4.
    pub id: u16,
    /// Flow label of IPv6.
    pub label: u32,
    pub payload: Vec<u8>,
}

/// Content of the UDP checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    Right,
    /// No checksum.
    Zero,
    /// The sum of the pseudo header, as checksum offload on a virtual link leaves the field.
    Pseudo,
    /// Invalid by this difference: the sum over the datagram, below 0xFFFF, instead of zero.
    Wrong(u16),
}

impl Datagram {
    /// Builds the datagram as sent by a relay.
    pub const fn relayed(from: SocketAddr, to: SocketAddr, meta: IpMeta, payload: Vec<u8>) -> Self {
        let IpMeta { ttl, tos, dont_fragment } = meta;
        Self { from, to, ttl, tos, dont_fragment, id: 0, label: 0, payload }
    }

    /// Returns the fields of the IP header that a relay copies. Sockets do not receive DF.
    pub const fn meta(&self) -> IpMeta {
        IpMeta { ttl: self.ttl, tos: self.tos, dont_fragment: false }
    }

    pub const fn is_v4(&self) -> bool {
        self.to.is_ipv4()
    }

    /// Returns the length of the IP packet.
    pub const fn ip_len(&self) -> usize {
        let header = if self.is_v4() { IPV4 } else { IPV6 };
        header + UDP + self.payload.len()
    }

    /// Returns the sum of the pseudo header.
    pub fn pseudo(&self) -> u16 {
        let len = (UDP + self.payload.len()) as u16;
        let pseudo = [
            octets(self.from.ip()),
            octets(self.to.ip()),
            vec![0, UDP_NUMBER],
            len.to_be_bytes().to_vec(),
        ];
        sum(&pseudo.concat())
    }

    /// Returns the UDP header with `check` as the checksum, and the payload.
    fn udp_with(&self, check: u16) -> Vec<u8> {
        let len = (UDP + self.payload.len()) as u16;
        let words = [self.from.port(), self.to.port(), len, check];
        let mut udp: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        udp.extend(&self.payload);
        udp
    }

    /// Returns the sum over pseudo header and datagram with this checksum. The sum is below 0xFFFF,
    /// and 0 for a valid checksum.
    pub fn error(&self, check: u16) -> u16 {
        let all = u32::from(self.pseudo()) + u32::from(sum(&self.udp_with(check)));
        (all % 0xFFFF) as u16
    }

    /// Returns the checksum, which is 0 only for [`Check::Zero`].
    pub fn checksum(&self, check: Check) -> u16 {
        match check {
            Check::Zero => 0,
            Check::Pseudo => self.pseudo(),
            Check::Right => self.checksum(Check::Wrong(0)),
            Check::Wrong(by) => {
                match (u32::from(by) + 0xFFFF - u32::from(self.error(0))) % 0xFFFF {
                    0 => 0xFFFF,
                    some => some as u16,
                }
            }
        }
    }

    pub fn frame(&self, macs: Macs, check: Check) -> Vec<u8> {
        let udp = self.udp_with(self.checksum(check));
        let mut frame = [macs.to, macs.from].concat();
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                frame.extend(TYPE_V4);
                frame.extend([0x45, self.tos]);
                frame.extend(((IPV4 + udp.len()) as u16).to_be_bytes());
                frame.extend(self.id.to_be_bytes());
                let flags = if self.dont_fragment { DONT_FRAGMENT } else { 0 };
                frame.extend(flags.to_be_bytes());
                frame.extend([self.ttl, UDP_NUMBER, 0, 0]);
                frame.extend(from.octets());
                frame.extend(to.octets());
                mend_ipv4(&mut frame);
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                frame.extend(TYPE_V6);
                let first = 6 << 28 | u32::from(self.tos) << 20 | self.label;
                frame.extend(first.to_be_bytes());
                frame.extend((udp.len() as u16).to_be_bytes());
                frame.extend([UDP_NUMBER, self.ttl]);
                frame.extend(from.octets());
                frame.extend(to.octets());
            }
            (from, to) => panic!("from {from} to {to}"),
        }
        frame.extend(udp);
        frame
    }
}

/// Recomputes the header checksum of an IPv4 frame.
pub fn mend_ipv4(frame: &mut [u8]) {
    let end = ETHERNET + usize::from(frame[ETHERNET] & 0xF) * 4;
    frame[ETHERNET + 10..ETHERNET + 12].fill(0);
    let check = !sum(&frame[ETHERNET..end]);
    frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&check.to_be_bytes());
}

/// Datagram as a socket would receive it, if the UDP checksum were valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub macs: Macs,
    pub datagram: Datagram,
    /// Checksum in the header.
    pub check: u16,
    /// Bytes of the frame after the IP packet.
    pub trailer: Vec<u8>,
}

impl Seen {
    /// Returns true if the checksum may be an offloaded checksum.
    pub fn is_partial(&self) -> bool {
        self.check == self.datagram.pseudo()
    }
}

/// Decodes a frame like the stack. Returns `None` if the frame does not reach a socket.
pub fn read(frame: &[u8]) -> Option<Seen> {
    let macs = Macs { to: *frame.first_chunk()?, from: *frame[6..].first_chunk()? };
    let ip = frame.get(ETHERNET..)?;
    match *frame[12..].first_chunk::<2>()? {
        TYPE_V4 => read_v4(macs, ip),
        TYPE_V6 => read_v6(macs, ip),
        _ => None,
    }
}

fn read_v4(macs: Macs, ip: &[u8]) -> Option<Seen> {
    let header_len = usize::from(ip.first()? & 0xF) * 4;
    let header = ip.get(..header_len)?;
    if ip[0] >> 4 != 4 || header_len < IPV4 || sum(header) != 0xFFFF {
        return None;
    }
    let flags = word(ip, 6)?;
    let packet = ip.get(..usize::from(word(ip, 2)?))?;
    let udp = packet.get(header_len..)?;
    if ip[9] != UDP_NUMBER || flags & MORE_OR_OFFSET != 0 {
        return None;
    }
    let address = |at: usize| Some(Ipv4Addr::from(*ip[at..].first_chunk::<4>()?));
    let (from, to) = (address(12)?, address(16)?);
    if from.is_multicast() || from.is_broadcast() || from.is_loopback() {
        return None;
    }
    let datagram = Datagram {
        from: SocketAddr::new(from.into(), word(udp, 0)?),
        to: SocketAddr::new(to.into(), word(udp, 2)?),
        ttl: ip[8],
        tos: ip[1],
        dont_fragment: flags & DONT_FRAGMENT != 0,
        id: word(ip, 4)?,
        label: 0,
        payload: udp_payload(udp)?,
    };
    let (check, trailer) = (word(udp, 6)?, ip[packet.len()..].to_vec());
    Some(Seen { macs, datagram, check, trailer })
}

fn read_v6(macs: Macs, ip: &[u8]) -> Option<Seen> {
    if ip.len() < IPV6 || ip[0] >> 4 != 6 || ip[6] != UDP_NUMBER {
        return None;
    }
    let len = IPV6 + usize::from(word(ip, 4)?);
    let udp = ip.get(IPV6..len)?;
    let address = |at: usize| Some(Ipv6Addr::from(*ip[at..].first_chunk::<16>()?));
    let (from, to) = (address(8)?, address(24)?);
    // IPv4-mapped addresses are invalid over IPv6, and the stack drops such a packet.
    if from.to_ipv4_mapped().is_some() || to.to_ipv4_mapped().is_some() {
        return None;
    }
    let first = u32::from_be_bytes(*ip.first_chunk()?);
    let datagram = Datagram {
        from: SocketAddr::new(from.into(), word(udp, 0)?),
        to: SocketAddr::new(to.into(), word(udp, 2)?),
        ttl: ip[7],
        tos: (first >> 20) as u8,
        dont_fragment: false,
        id: 0,
        label: first & 0xF_FFFF,
        payload: udp_payload(udp)?,
    };
    let check = word(udp, 6)?;
    // IPv6 does not permit datagrams without a checksum (RFC 8200 §8.1).
    (check != 0).then(|| Seen { macs, datagram, check, trailer: ip[len..].to_vec() })
}

fn udp_payload(udp: &[u8]) -> Option<Vec<u8>> {
    udp.get(UDP..usize::from(word(udp, 4)?)).map(<[u8]>::to_vec)
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the sum of 16-bit words in ones' complement (RFC 1071).
fn sum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}
