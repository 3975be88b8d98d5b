//! Random clients with channels, and frames of networks, clients, peers and attackers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use netsim::Rng;
use stun_wire::{Class, MessageBuilder, Method, TransactionId};

use super::frame::{Check, Datagram, ETHERNET, IPV4, IPV6, Macs, TYPE_V4, TYPE_V6, UDP, mend_ipv4};
use super::network::{GATEWAY, OWN_V4, OWN_V6, address, near};
use super::oracle::rules;
use super::world::{COMES, PORT, World};

/// Channel that is or was bound.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub client: SocketAddr,
    pub server: SocketAddr,
    pub channel: u16,
    pub relayed: SocketAddr,
    pub peer: SocketAddr,
    /// True if the client's data is relayed.
    pub to_peer: bool,
    /// True if the peer's data is relayed.
    pub to_client: bool,
    /// True if the peer is a relayed address.
    pub hairpin: bool,
}

impl Known {
    /// Returns the inbound datagram.
    pub fn comes(&self, to_client: bool, data: &[u8]) -> Datagram {
        let (from, to) =
            if to_client { (self.peer, self.relayed) } else { (self.client, self.server) };
        let payload = if to_client { data.to_vec() } else { self.framed(data) };
        plain(from, to, payload)
    }

    /// Returns a frame with the inbound datagram.
    pub fn frame(&self, to_client: bool, data: &[u8]) -> Vec<u8> {
        self.comes(to_client, data).frame(COMES, Check::Right)
    }

    /// Returns the outbound datagram, except for a hairpin.
    pub fn leaves(&self, to_client: bool, data: &[u8]) -> Datagram {
        let (from, to) =
            if to_client { (self.server, self.client) } else { (self.relayed, self.peer) };
        let payload = if to_client { self.framed(data) } else { data.to_vec() };
        let comes = self.comes(to_client, data);
        Datagram { ttl: comes.ttl - 1, ..plain(from, to, payload) }
    }

    fn framed(&self, data: &[u8]) -> Vec<u8> {
        let len = data.len() as u16;
        [&self.channel.to_be_bytes()[..], &len.to_be_bytes(), data].concat()
    }
}

pub const fn plain(from: SocketAddr, to: SocketAddr, payload: Vec<u8>) -> Datagram {
    Datagram { from, to, ttl: 64, tos: 0, dont_fragment: false, id: 0x1234, label: 0, payload }
}

/// Client of an address family, near or behind the gateway, with a dual allocation.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    pub at: SocketAddr,
    pub server: SocketAddr,
    pub relayed: [SocketAddr; 2],
    next: u16,
}

impl Client {
    pub fn new(world: &mut World, rng: &mut Rng, v6: bool) -> Self {
        let link = rng.index(2);
        let server = address(if v6 { OWN_V6[link] } else { OWN_V4[link] });
        let ip = match (rng.below(2), v6) {
            (0, _) => near(0, rng.within(2..GATEWAY.into()) as u8)[usize::from(v6)],
            (_, false) => Ipv4Addr::from(0x6440_0000 + rng.below(1 << 22) as u32).into(),
            (_, true) => v6_in([0x2001, 0xdb8, 0x64], rng),
        };
        let at = SocketAddr::new(ip, port(rng));
        let server = SocketAddr::new(server, PORT);
        let relayed = world.oracle.allocate(at, server);
        Self { at, server, relayed, next: 0x4000 + rng.below(16) as u16 }
    }

    /// Binds a channel.
    pub fn bind(&mut self, world: &mut World, peer: SocketAddr) -> Known {
        let channel = self.next;
        // Includes numbers that RFC 8656 does not permit any more, up to the last number of RFC
        // 5766.
        self.next = match channel {
            0x4012 => 0x7FFE,
            0x7FFE => 0x4013,
            usual => usual + 1,
        };
        world.oracle.bind((self.at, self.server), channel, peer);
        Known {
            client: self.at,
            server: self.server,
            channel,
            relayed: self.relayed[usize::from(peer.is_ipv6())],
            peer,
            to_peer: true,
            to_client: true,
            hairpin: self.relayed.iter().any(|own| own.ip() == peer.ip()),
        }
    }
}

/// Creates a client and a peer of every pair of families, all near: four channels.
pub fn four(world: &mut World) -> Vec<Known> {
    let mut rng = Rng::new(4);
    let mut all = Vec::new();
    for v6 in [false, true] {
        let mut client = Client::new(world, &mut rng, v6);
        for peer in near(1, 7) {
            all.push(client.bind(world, SocketAddr::new(peer, 5000)));
        }
    }
    all
}

fn port(rng: &mut Rng) -> u16 {
    rng.within(1..0x1_0000) as u16
}

fn v6_in(prefix: [u16; 3], rng: &mut Rng) -> IpAddr {
    let mut segments = [0; 8];
    segments[..3].copy_from_slice(&prefix);
    for segment in &mut segments[3..] {
        // Zeros and ones are the edge cases of sums.
        *segment = match rng.below(4) {
            0 => 0,
            1 => 0xFFFF,
            _ => rng.next_u64() as u16,
        };
    }
    Ipv6Addr::from(segments).into()
}

/// Returns peers of a family: on the link, and reached by the gateway.
fn peers(rng: &mut Rng, v6: bool) -> [SocketAddr; 3] {
    let close = near(1, rng.within(2..GATEWAY.into()) as u8)[usize::from(v6)];
    let (one, other): (IpAddr, IpAddr) = if v6 {
        (v6_in([0x2600, 0, 0xFFFF], rng), v6_in([0x2001, 0xdb8, 0x77], rng))
    } else {
        let one = Ipv4Addr::from(0x0800_0000 + rng.below(1 << 24) as u32);
        (one.into(), Ipv4Addr::new(203, 0, 113, rng.within(1..255) as u8).into())
    };
    [close, one, other].map(|ip| SocketAddr::new(ip, port(rng)))
}

/// Fills a world that started some seconds ago with channels of all kinds, and advances to the
/// present.
pub fn populate(world: &mut World, rng: &mut Rng) -> Vec<Known> {
    let own = world.oracle.policy.relay.iter().map(|relay| relay.local).collect::<Vec<_>>();
    let usual = world.oracle.policy.lifetimes;
    let second = Duration::from_secs(1);
    let mut all = Vec::new();
    // Expired channels, and bound channels whose permissions have expired.
    for channel_too in [true, false] {
        world.oracle.apply(|policy| {
            policy.lifetimes.permission = second;
            policy.lifetimes.channel = if channel_too { second } else { usual.channel };
        });
        for v6 in [false, true] {
            let mut client = Client::new(world, rng, v6);
            for peer in [peers(rng, false), peers(rng, true)].concat() {
                let bound = client.bind(world, peer);
                all.push(Known { to_peer: !channel_too, to_client: false, ..bound });
            }
        }
    }
    world.oracle.apply(|policy| policy.lifetimes = usual);

    let mut clients: Vec<Client> =
        (0..8).map(|number| Client::new(world, rng, number % 2 == 1)).collect();
    let at: Vec<SocketAddr> = clients.iter().map(|client| client.at).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        // Peers that are also clients, of both families.
        let also = [at[(number + 1) % at.len()], at[(number + 2) % at.len()]];
        for peer in [&peers(rng, false)[..], &peers(rng, true), &also].concat() {
            all.push(client.bind(world, peer));
        }
    }
    hairpins(world, &mut clients, &mut all);

    // A client that has removed its allocation, and a peer that the rules forbid now.
    let mut gone = Client::new(world, rng, false);
    for peer in [peers(rng, false), peers(rng, true)].concat() {
        let bound = gone.bind(world, peer);
        all.push(Known { to_peer: false, to_client: false, ..bound });
    }
    world.tell();
    world.oracle.end(gone.at, gone.server);
    let forbidden = clients[0].bind(world, "192.0.2.7:7".parse().unwrap());
    all.push(Known { to_peer: false, to_client: false, ..forbidden });
    world.tell();
    let own = [own, [OWN_V4[0], OWN_V6[0]].map(address).to_vec()].concat();
    world.oracle.apply(|policy| policy.peer_rules = rules(&["192.0.2.0/24"], &own));
    world.present();
    world.tell();
    all
}

/// Adds allocations that are peers of each other, of every pair of families. Some have a channel in
/// only one direction.
fn hairpins(world: &mut World, clients: &mut [Client], all: &mut Vec<Known>) {
    for (one, other) in [(0, 1), (0, 2), (1, 3), (0, 0), (1, 1)] {
        for family in [0, 1] {
            let peer = clients[other].relayed[family];
            let there = clients[one].bind(world, peer);
            all.push(Known { to_client: false, ..there });
            if one != other {
                let peer = clients[one].relayed[family];
                let back = clients[other].bind(world, peer);
                all.push(Known { to_client: false, ..back });
            }
        }
    }
    for permitted in [false, true] {
        for family in [0, 1] {
            let (one, other) = (clients[4], clients[6 + usize::from(permitted)]);
            let bound = clients[4].bind(world, other.relayed[family]);
            all.push(Known { to_peer: false, to_client: false, ..bound });
            if permitted {
                world.oracle.permit(other.at, other.server, one.relayed[family]);
            }
        }
    }
}

/// Frame with a mutation.
#[derive(Clone, Debug)]
pub struct Made {
    pub bytes: Vec<u8>,
    pub flow: Known,
    pub to_client: bool,
    pub special: &'static str,
    /// True if the kernel must relay the frame when the rules relay it.
    pub ordinary: bool,
}

/// Mutations of a frame. The first name means no mutation.
pub const SPECIAL: [&str; 25] = [
    "nothing",
    "trailer",
    "padding",
    "zero padding",
    "channel header",
    "other channel",
    "cut payload",
    "cut frame",
    "options",
    "fragment",
    "header checksum",
    "tag",
    "type",
    "protocol",
    "stun",
    "sender",
    "receiver",
    "address",
    "udp length",
    "ip length",
    "both lengths",
    "bits",
    "mapped",
    "garbage",
    "version",
];

pub fn make(rng: &mut Rng, flows: &[Known]) -> Made {
    let flow = *rng.pick(flows);
    let to_client = rng.below(2) == 0;
    let mut datagram = datagram(rng, &flow, to_client);
    let check = check(rng, &flow, to_client, &mut datagram);
    let special = if rng.below(2) == 0 { "nothing" } else { *rng.pick(&SPECIAL) };
    change_datagram(rng, special, &mut datagram);
    let mut macs = COMES;
    if special == "address" {
        macs.to = *rng.pick(&[[0xFF; 6], [1, 0, 0x5E, 0, 0, 1], [0, 0, 0, 0, 0, 1]]);
    }
    let mut bytes = datagram.frame(macs, check);
    change_frame(rng, special, &mut bytes, macs, &datagram);
    let live = if to_client { flow.to_client } else { flow.to_peer };
    let hops = if flow.hairpin { 2 } else { 1 };
    let ordinary =
        live && datagram.ttl > hops && matches!(special, "nothing" | "trailer" | "zero padding");
    Made { bytes, flow, to_client, special, ordinary }
}

fn datagram(rng: &mut Rng, flow: &Known, to_client: bool) -> Datagram {
    let len = match rng.below(10) {
        0 | 1 => rng.below(9),
        2 | 3 => rng.within(1380..1473),
        _ => rng.below(1473),
    };
    let mut data = rng.bytes(len as usize);
    match rng.below(10) {
        0 => data.fill(0),
        1 => data.fill(0xFF),
        _ => {}
    }
    let ttl = match rng.below(5) {
        0 => *rng.pick(&[0, 1, 2, 3, 255]),
        _ => rng.within(2..256) as u8,
    };
    Datagram {
        ttl,
        tos: rng.next_u64() as u8,
        dont_fragment: rng.below(2) == 0,
        id: rng.next_u64() as u16,
        label: rng.below(1 << 20) as u32,
        ..flow.comes(to_client, &data)
    }
}

/// Chooses the content of the checksum. May adjust the payload to get a special sum.
fn check(rng: &mut Rng, flow: &Known, to_client: bool, datagram: &mut Datagram) -> Check {
    let header = if to_client { 0 } else { 4 };
    let tunable = datagram.payload.len() >= header + 2;
    match rng.below(20) {
        0 => Check::Zero,
        1 => Check::Pseudo,
        2 => Check::Wrong(rng.within(1..0xFFFF) as u16),
        // Errors of one bit, and sums that fold to zero.
        3 => Check::Wrong(1 << rng.below(16)),
        // Valid, with all ones in place of zero.
        4 if tunable => {
            tune(datagram, header, |datagram| datagram.error(0));
            Check::Right
        }
        // Valid as the checksum of the outbound datagram.
        5 if tunable => {
            tune(datagram, header, |datagram| {
                flow.leaves(to_client, &datagram.payload[header..]).error(0)
            });
            Check::Right
        }
        // Valid, and equal to an offloaded checksum by chance.
        6 if tunable => {
            tune(datagram, header, |datagram| datagram.error(datagram.pseudo()));
            Check::Right
        }
        _ => Check::Right,
    }
}

/// Sets two bytes of the payload so `error` becomes zero.
fn tune(datagram: &mut Datagram, at: usize, error: impl Fn(&Datagram) -> u16) {
    datagram.payload[at..at + 2].fill(0);
    let wanted = (0xFFFF - error(datagram)) % 0xFFFF;
    datagram.payload[at..at + 2].copy_from_slice(&wanted.to_be_bytes());
    assert_eq!(error(datagram), 0);
}

/// Applies a mutation to a datagram. The checksum is computed afterwards.
fn change_datagram(rng: &mut Rng, special: &str, datagram: &mut Datagram) {
    let payload = &mut datagram.payload;
    let number = rng.next_u64();
    match special {
        "padding" => {
            let len = 1 + (number % 8) as usize;
            let zeros = payload.len() + rng.index(len + 1);
            payload.resize(zeros, 0);
            payload.extend(rng.bytes(len));
        }
        "zero padding" => payload.resize(payload.len().next_multiple_of(4), 0),
        "channel header" if payload.len() >= 4 => {
            let len = u16::from_be_bytes([payload[2], payload[3]]);
            let by = 1 + (number % 8) as u16;
            let len = if number & 0x100 == 0 { len.wrapping_add(by) } else { len.wrapping_sub(by) };
            payload[2..4].copy_from_slice(&len.to_be_bytes());
        }
        "other channel" if payload.len() >= 4 => {
            let other = [0x40, number as u8 % 32, (number >> 8) as u8, (number >> 16) as u8];
            let pair = [[other[0], other[1]], [other[2], other[3]], [0x7F, 0xFF], [0x3F, 0xFF]];
            let pair = *rng.pick(&pair);
            payload[..2].copy_from_slice(&pair);
        }
        "cut payload" => payload.truncate((number % 5) as usize),
        "stun" => {
            payload.resize(64, 0);
            let mut id = [0; 12];
            rng.fill(&mut id);
            let id = TransactionId(id);
            let request = MessageBuilder::new(payload, Class::Request, Method::BINDING, id);
            let len = request.finish().unwrap();
            payload.truncate(len);
        }
        "sender" => {
            let other = match number % 4 {
                0 => port(rng),
                1 => datagram.from.port() ^ 1,
                2 => PORT,
                _ => {
                    let ip = peers(rng, datagram.from.is_ipv6())[1].ip();
                    datagram.from.set_ip(ip);
                    datagram.from.port()
                }
            };
            datagram.from.set_port(other);
        }
        "receiver" if number.is_multiple_of(2) => datagram.to.set_port(port(rng)),
        "receiver" => {
            let own = if datagram.is_v4() { OWN_V4 } else { OWN_V6 };
            let own = own[rng.index(2)];
            datagram.to.set_ip(address(own));
        }
        _ => {}
    }
}

/// Applies a mutation to a frame. Checksums of headers are valid, unless they are the mutation.
fn change_frame(
    rng: &mut Rng,
    special: &str,
    bytes: &mut Vec<u8>,
    macs: Macs,
    datagram: &Datagram,
) {
    let v4 = datagram.is_v4();
    let udp = ETHERNET + if v4 { IPV4 } else { IPV6 };
    match special {
        "trailer" => {
            let len = rng.within(1..47) as usize;
            bytes.extend(rng.bytes(len));
        }
        "cut frame" => bytes.truncate(rng.within(ETHERNET as u64 + 1..bytes.len() as u64) as usize),
        "options" if v4 => options_v4(rng, bytes),
        "options" => headers_v6(rng, bytes),
        "fragment" if v4 => {
            // First fragment, middle fragments, last fragment, and bits without a meaning.
            let flags =
                *rng.pick(&[0x2000_u16, 0x2001, 0x0001, 0x1FFF, 0x6000, 0x3FFF, 0x8000, 0xC000]);
            bytes[ETHERNET + 6..ETHERNET + 8].copy_from_slice(&flags.to_be_bytes());
            mend_ipv4(bytes);
        }
        "header checksum" if v4 => {
            let at = ETHERNET + rng.index(IPV4);
            bytes[at] ^= 1 << rng.below(8);
        }
        "tag" => {
            let tag = *rng.pick(&[[0x81, 0x00, 0x00, 0x05], [0x88, 0xA8, 0x20, 0x07]]);
            bytes.splice(12..12, tag);
        }
        "type" => {
            let other = [[0x08, 0x06], [0x88, 0xCC], TYPE_V4, TYPE_V6, [0, 60], [0xFF, 0xFF]];
            let other = *rng.pick(&other);
            bytes[12..14].copy_from_slice(&other);
        }
        "protocol" => {
            let number = *rng.pick(&[1, 6, 58, 132, 136, 255]);
            bytes[if v4 { ETHERNET + 9 } else { ETHERNET + 6 }] = number;
            if v4 {
                mend_ipv4(bytes);
            }
        }
        "udp length" => shift(rng, &mut bytes[udp + 4..udp + 6]),
        "ip length" if v4 => {
            shift(rng, &mut bytes[ETHERNET + 2..ETHERNET + 4]);
            mend_ipv4(bytes);
        }
        "ip length" => shift(rng, &mut bytes[ETHERNET + 4..ETHERNET + 6]),
        "both lengths" => {
            // Equal values for both lengths: longer or shorter than the packet, or shorter than a
            // header.
            let len = match rng.below(2) {
                0 => rng.below(UDP as u64 + 1) as usize,
                _ => bytes.len() - udp + rng.index(60) - 30.min(bytes.len() - udp),
            };
            let ip_len = if v4 { IPV4 + len } else { len };
            let at = if v4 { ETHERNET + 2 } else { ETHERNET + 4 };
            bytes[at..at + 2].copy_from_slice(&(ip_len as u16).to_be_bytes());
            bytes[udp + 4..udp + 6].copy_from_slice(&(len as u16).to_be_bytes());
            if v4 {
                mend_ipv4(bytes);
            }
        }
        "version" => {
            bytes[ETHERNET] = rng.next_u64() as u8;
            if v4 && bytes[ETHERNET] & 0xF < 6 {
                mend_ipv4(bytes);
            }
        }
        "bits" => {
            for _ in 0..=rng.below(3) {
                // Headers are changed more often than payload.
                let most = if rng.below(2) == 0 { udp + UDP + 4 } else { bytes.len() };
                let at = rng.index(most.min(bytes.len()));
                bytes[at] ^= 1 << rng.below(8);
            }
        }
        "mapped" if v4 => *bytes = mapped(datagram).frame(macs, Check::Right),
        "garbage" => {
            let len = rng.within(ETHERNET as u64 + 1..200) as usize;
            rng.fill(&mut bytes[ETHERNET..]);
            bytes.truncate(len);
        }
        _ => {}
    }
}

/// Changes a length to zero, to a slightly larger or smaller value, or to a random value.
fn shift(rng: &mut Rng, len: &mut [u8]) {
    let before = u16::from_be_bytes([len[0], len[1]]);
    let other = match rng.below(4) {
        0 => 0,
        1 => before.wrapping_add(1 + rng.below(30) as u16),
        2 => before.wrapping_sub(1 + rng.below(30) as u16),
        _ => rng.next_u64() as u16,
    };
    len.copy_from_slice(&other.to_be_bytes());
}

/// Inserts a random number of words of IPv4 options that mean no operation.
fn options_v4(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let words = rng.within(1..11) as u8;
    let at = ETHERNET + IPV4;
    bytes.splice(at..at, vec![1; usize::from(words) * 4]);
    bytes[ETHERNET] += words;
    let len = u16::from_be_bytes([bytes[ETHERNET + 2], bytes[ETHERNET + 3]]);
    let len = len + u16::from(words) * 4;
    bytes[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&len.to_be_bytes());
    mend_ipv4(bytes);
}

/// Inserts an extension header between IPv6 and UDP: hop-by-hop options, destination options, a
/// completed route, or an unfragmented fragment.
fn headers_v6(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let number = *rng.pick(&[0, 60, 43, 44]);
    let at = ETHERNET + IPV6;
    bytes.splice(at..at, [17, 0, 1, 4, 0, 0, 0, 0]);
    bytes[ETHERNET + 6] = number;
    let len = u16::from_be_bytes([bytes[ETHERNET + 4], bytes[ETHERNET + 5]]) + 8;
    bytes[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&len.to_be_bytes());
}

/// Converts a datagram to IPv6 with IPv4-mapped addresses.
pub fn mapped(datagram: &Datagram) -> Datagram {
    let map = |at: SocketAddr| match at.ip() {
        IpAddr::V4(v4) => SocketAddr::new(v4.to_ipv6_mapped().into(), at.port()),
        IpAddr::V6(_) => at,
    };
    let (from, to) = (map(datagram.from), map(datagram.to));
    Datagram { from, to, ..datagram.clone() }
}
