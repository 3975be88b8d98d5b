//! Hostile users: allocations, kernel flows, and connections to a silent peer.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use stun_wire::{AttributeType, ChannelNumber, Method};

use super::Attack;
use crate::link::{Datagrams, Link, tcp, udp};
use crate::operations::channel_data;
use crate::stun::{Login, request};

/// Allocations per second of one thread.
const ALLOCATIONS: u32 = 200;

/// Allocations that a thread keeps open.
const OPEN: usize = 700;

/// Clients with channels: per second, in all, and channels of each.
const FLOW_CLIENTS_PER_SECOND: u32 = 10;
const FLOW_CLIENTS: usize = 24;
const CHANNELS: u16 = 64;

/// Clients with connections: per second, in all, and Connect requests of each.
const CONNECT_CLIENTS_PER_SECOND: u32 = 10;
const CONNECT_CLIENTS: usize = 40;
const CONNECTS: u16 = 64;

/// Wait for an answer. A client without one tries again.
const PATIENCE: Duration = Duration::from_millis(300);

/// Opens allocations and keeps them.
pub(crate) fn allocations(mut attack: Attack) {
    let mut open = VecDeque::new();
    attack.repeat(ALLOCATIONS, |attack| {
        open.extend(user(attack, 17).map(|user| user.link));
        while open.len() > OPEN {
            open.pop_front();
        }
    });
}

/// Binds channels to a silent peer and sends data by all, so that each claims a kernel slot.
pub(crate) fn flows(mut attack: Attack) {
    let mut open: Vec<Link> = Vec::new();
    let mut next = 0;
    attack.repeat(FLOW_CLIENTS_PER_SECOND, |attack| {
        if open.len() < FLOW_CLIENTS {
            let Some(mut user) = user(attack, 17) else { return };
            for number in 0..CHANNELS {
                let peer = SocketAddr::new(attack.places.silent_peer, 5000 + number);
                user.ask(attack, Method::CHANNEL_BIND, |builder| {
                    builder.channel_number(channel(number));
                    builder.xor_address(AttributeType::XOR_PEER_ADDRESS, peer);
                });
            }
            open.push(user.link);
        }
        next = (next + 1) % open.len();
        for number in 0..CHANNELS {
            drop(open[next].send(&channel_data(channel(number), b"attack")));
        }
    });
}

/// Connects to a silent peer (RFC 6062): each request waits for half a minute.
pub(crate) fn connects(mut attack: Attack) {
    let mut open: VecDeque<Link> = VecDeque::new();
    attack.repeat(CONNECT_CLIENTS_PER_SECOND, |attack| {
        let Some(mut user) = user(attack, 6) else { return };
        for number in 0..CONNECTS {
            let peer = SocketAddr::new(attack.places.silent_peer, 5000 + number);
            user.ask(attack, Method::CONNECT, |builder| {
                builder.xor_address(AttributeType::XOR_PEER_ADDRESS, peer);
            });
        }
        open.push_back(user.link);
        while open.len() > CONNECT_CLIENTS {
            open.pop_front();
        }
    });
}

/// A user with an allocation.
struct User {
    link: Link,
    login: Login,
    nonce: String,
}

impl User {
    /// Sends a request and does not wait.
    fn ask(
        &mut self,
        attack: &mut Attack,
        method: Method,
        fill: impl FnOnce(&mut stun_wire::MessageBuilder<'_>),
    ) {
        let login = Some((&self.login, self.nonce.as_str()));
        drop(self.link.send(&request(method, &mut attack.noise, login, fill)));
    }
}

/// The next user, with a relay of a transport; `None` if the server refuses.
fn user(attack: &mut Attack, transport: u8) -> Option<User> {
    let from = attack.attacker.address(&mut attack.noise);
    let login = attack.attacker.login(&mut attack.noise);
    let server = attack.places.turn(from);
    let mut link = if transport == 6 {
        Link::reliable(tcp(from, server).ok()?)
    } else {
        Link::lossy(Datagrams(udp(from, server).ok()?))
    };
    let deadline = Instant::now() + PATIENCE;
    let noise = &mut attack.noise;
    // One challenge for each address: the answers to unauthenticated clients have budgets.
    let nonce = match attack.nonces.remove(&from) {
        Some(nonce) => link.allocate_with(transport, (&login, nonce), noise, deadline),
        None => link.allocate(transport, &login, noise, deadline),
    };
    let nonce = nonce.ok()?;
    attack.nonces.insert(from, nonce.clone());
    Some(User { link, login, nonce })
}

fn channel(number: u16) -> ChannelNumber {
    ChannelNumber::new(0x4000 + number).expect("a channel")
}
