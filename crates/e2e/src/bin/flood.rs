//! Hostile traffic, to be run in the client's host of a lab.
//!
//! `flood SERVER:PORT random N` sends N datagrams of random bytes; `spoofed N PREFIX` sends N
//! Allocate requests, each from another address and port of the /16 that starts with PREFIX (such
//! as 10.88), which must be local here; `truncations` sends every truncation of a valid message of
//! every method, and every message with each byte changed. Each prints the number of datagrams
//! sent.
#![forbid(unsafe_code)]

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::exit;

use stun_wire::{
    AttributeType, ChannelNumber, Class, IntegrityKey, IntegrityKind, MessageBuilder, Method,
    TransactionId,
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let sent = match words.as_slice() {
        [server, "random", count] => random(parse(server), parse(count)),
        [server, "spoofed", count, prefix] => spoofed(parse(server), parse(count), prefix),
        [server, "truncations"] => truncations(parse(server)),
        _ => fail("usage: flood SERVER:PORT (random N | spoofed N PREFIX | truncations)"),
    };
    match sent {
        Ok(sent) => println!("sent {sent}"),
        Err(error) => fail(&error.to_string()),
    }
}

fn random(server: SocketAddr, count: u64) -> std::io::Result<u64> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let mut state = 0x9E37_79B9_7F4A_7C15;
    let mut datagram = [0; 1472];
    for _ in 0..count {
        let len = usize::from(next(&mut state) as u16) % datagram.len();
        for chunk in datagram[..len].chunks_mut(8) {
            chunk.copy_from_slice(&next(&mut state).to_le_bytes()[..chunk.len()]);
        }
        send(&socket, &datagram[..len], server);
    }
    Ok(count)
}

fn spoofed(server: SocketAddr, count: u64, prefix: &str) -> std::io::Result<u64> {
    let base: Ipv4Addr = parse(&format!("{prefix}.0.0"));
    let mut state = 1;
    for n in 0..count {
        // Addresses in turn, ports at random: no source comes twice within 65,536 datagrams.
        let address = Ipv4Addr::from_bits(base.to_bits() | (n as u32 & 0xFFFF));
        let port = 1024 + (next(&mut state) % 60_000) as u16;
        let Ok(socket) = UdpSocket::bind((address, port)) else { continue };
        send(&socket, &allocate(next(&mut state)), server);
    }
    Ok(count)
}

fn truncations(server: SocketAddr) -> std::io::Result<u64> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let mut sent = 0;
    for message in valid_messages() {
        for len in 0..=message.len() {
            send(&socket, &message[..len], server);
            sent += 1;
        }
        for at in 0..message.len() {
            for bit in [0x01, 0x80, 0xFF] {
                let mut changed = message.clone();
                changed[at] ^= bit;
                send(&socket, &changed, server);
                sent += 1;
            }
        }
    }
    Ok(sent)
}

/// A full local queue is no failure: the test is about the datagrams that arrive.
fn send(socket: &UdpSocket, datagram: &[u8], server: SocketAddr) {
    drop(socket.send_to(datagram, server));
}

fn allocate(id: u64) -> Vec<u8> {
    message(Method::ALLOCATE, id, |builder| {
        builder.requested_transport(17);
    })
}

/// One of each method, with all the attributes that a client may send.
fn valid_messages() -> Vec<Vec<u8>> {
    let peer: SocketAddr = ([203, 0, 113, 9], 9).into();
    let number = ChannelNumber::new(0x4000).unwrap_or_else(|| fail("0x4000 is a channel"));
    let peer_v6: SocketAddr = (std::net::Ipv6Addr::LOCALHOST, 9).into();
    let indication = |fill: &dyn Fn(&mut MessageBuilder<'_>)| {
        let mut out = vec![0; 1500];
        let mut builder =
            MessageBuilder::new(&mut out, Class::Indication, Method::SEND, TransactionId([9; 12]));
        fill(&mut builder);
        let len = builder.fingerprint().unwrap_or_else(|| fail("it fits"));
        out.truncate(len);
        out
    };
    vec![
        message(Method::BINDING, 1, |_| ()),
        message(Method::ALLOCATE, 2, |builder| {
            builder.requested_transport(17).lifetime(900).even_port(true).dont_fragment();
        }),
        message(Method::ALLOCATE, 3, |builder| {
            builder.requested_transport(17).additional_address_family(2).reservation_token([7; 8]);
        }),
        message(Method::REFRESH, 4, |builder| {
            builder.lifetime(0).requested_address_family(1);
        }),
        message(Method::CREATE_PERMISSION, 5, |builder| {
            builder.xor_address(AttributeType::XOR_PEER_ADDRESS, peer);
            builder.xor_address(AttributeType::XOR_PEER_ADDRESS, peer_v6);
        }),
        message(Method::CHANNEL_BIND, 6, |builder| {
            builder.channel_number(number).xor_address(AttributeType::XOR_PEER_ADDRESS, peer);
        }),
        indication(&|builder| {
            builder.xor_address(AttributeType::XOR_PEER_ADDRESS, peer).data(b"payload");
        }),
        vec![0x40, 0x00, 0x00, 0x05, 1, 2, 3, 4, 5, 0, 0, 0],
    ]
}

fn message(method: Method, id: u64, fill: impl FnOnce(&mut MessageBuilder<'_>)) -> Vec<u8> {
    let mut out = vec![0; 1500];
    let mut transaction = [0; 12];
    transaction[..8].copy_from_slice(&id.to_be_bytes());
    let mut builder =
        MessageBuilder::new(&mut out, Class::Request, method, TransactionId(transaction));
    fill(&mut builder);
    builder.username("alice").realm("turn.test").nonce("obMatJos2AAAAnot-a-nonce-of-this-server");
    let sealed = builder.integrity(IntegrityKind::Sha1, &IntegrityKey::new(&[7; 16]));
    let len = sealed.fingerprint().unwrap_or_else(|| fail("it fits"));
    out.truncate(len);
    out
}

/// xorshift64*: repeatable noise is sufficient.
fn next(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_F491_4F6C_DD1D)
}

fn parse<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| fail(&format!("cannot read {text}")))
}

fn fail(text: &str) -> ! {
    eprintln!("{text}");
    exit(2)
}
