//! Datagrams of an attack, made in advance, so that sending costs only the system call.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use client_driver::{Endpoint, Link};
use linux_net::{Clock, Epoll, Events, Interest, random_bytes};
use stun_wire::{ChannelNumber, write_channel_header};
use turn_types::{IpFamily, Secret};

use super::Variant;
use crate::session::{Credentials, SessionError, allocate, client_config};

/// Datagrams of garbage, sent in turn.
const GARBAGE: usize = 1024;

/// The largest of them, unfragmented on every path.
const GARBAGE_MAX: usize = 1200;

/// Time for a server to answer the first request.
const PATIENCE: Duration = Duration::from_secs(5);

/// Place of the datagram's number: the transaction id of a STUN message.
const NUMBER: std::ops::Range<usize> = 12..20;

/// Datagrams to be sent in turn.
#[derive(Debug)]
pub(super) struct Datagrams {
    list: Vec<Vec<u8>>,
    /// Each has a transaction id, which is changed for every sending.
    numbered: bool,
}

impl Datagrams {
    /// The datagrams of a variant, for these clients' sockets in turn, with the server's nonces
    /// where they need them.
    pub(super) fn make(
        variant: Variant,
        username: &Arc<str>,
        endpoint: &Endpoint,
        links: &mut [Link],
    ) -> Result<Self> {
        match variant {
            Variant::Garbage => {
                let requests = requests(username, endpoint, links)?;
                Ok(Self { list: garbage(&requests.integrity), numbered: false })
            }
            Variant::Integrity => {
                let requests = requests(username, endpoint, links)?;
                Ok(Self { list: requests.integrity, numbered: true })
            }
            Variant::Unauthenticated | Variant::Spoofed | Variant::Dtls => {
                let requests = requests(username, endpoint, links)?;
                Ok(Self { list: requests.plain, numbered: true })
            }
        }
    }

    /// These, as they are.
    pub(super) const fn of_list(list: Vec<Vec<u8>>) -> Self {
        Self { list, numbered: false }
    }

    /// The datagram with this number. Datagrams with a nonce repeat in the order of their sockets.
    pub(super) fn numbered(&mut self, number: u64) -> &[u8] {
        let at = number % self.list.len() as u64;
        let datagram = &mut self.list[at as usize];
        if self.numbered
            && let Some(place) = datagram.get_mut(NUMBER)
        {
            place.copy_from_slice(&number.to_be_bytes());
        }
        datagram
    }
}

/// An Allocate of each client: as it is sent first, and as it is sent in answer to the challenge,
/// with a wrong password.
struct Requests {
    plain: Vec<Vec<u8>>,
    integrity: Vec<Vec<u8>>,
}

fn requests(username: &Arc<str>, endpoint: &Endpoint, links: &mut [Link]) -> Result<Requests> {
    let mut requests = Requests { plain: Vec::new(), integrity: Vec::new() };
    for link in links {
        let wrong: [u8; 16] = random_bytes();
        let password = Secret::new(Arc::from(format!("{:032x}", u128::from_ne_bytes(wrong))));
        let credentials = Credentials { username: Arc::clone(username), password };
        link.client = turn_client::Client::new(client_config(endpoint, &credentials));
        allocate(&mut link.client, Clock::instant(), IpFamily::V4)?;
        let plain = link.client.poll_transmit().context("a client that asks for nothing")?;
        requests.plain.push(plain.to_vec());
        requests.integrity.push(challenged(link, &requests.plain[requests.plain.len() - 1])?);
    }
    Ok(requests)
}

/// The client's request after the server's challenge.
fn challenged(link: &mut Link, first: &[u8]) -> Result<Vec<u8>> {
    let Link { wire, client } = link;
    let socket = wire.udp()?;
    let epoll = Epoll::new().context("epoll")?;
    epoll.add(socket, 0, Interest::Read).context("epoll")?;
    let mut events = Events::new(1);
    let deadline = Clock::instant() + PATIENCE;
    let mut request = first.to_vec();
    let mut buffer = [0; 2048];
    let mut answered = false;
    loop {
        let _ = socket.send(&request);
        let wait = Duration::from_millis(500);
        epoll.wait(&mut events, Some(wait)).context("epoll")?;
        let mut unreachable = None;
        socket.recv_errors(|error| unreachable = error.icmp.map(|_| error))?;
        if let Some(error) = unreachable {
            return Err(SessionError::Unreachable(error).into());
        }
        while let Some(len) = socket.recv(&mut buffer)? {
            client.handle_datagram(Clock::instant(), &buffer[..len]);
            answered = true;
        }
        if let Some(event) = client.poll_event() {
            match SessionError::at_setup(event) {
                Some(error) => return Err(error.into()),
                None => bail!("the server granted an allocation without credentials"),
            }
        }
        match client.poll_transmit() {
            Some(next) if answered => return Ok(next.to_vec()),
            Some(next) => request = next.to_vec(),
            None if Clock::instant() >= deadline => bail!("no answer to an Allocate"),
            None => {}
        }
    }
}

/// Datagrams that are no message: noise, ChannelData of no channel, and truncated messages. None
/// has an answer.
fn garbage(messages: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut noise = Noise(u64::from_ne_bytes(random_bytes()) | 1);
    (0..GARBAGE)
        .map(|number| match number % 3 {
            0 => {
                let mut datagram = noise.bytes(GARBAGE_MAX);
                // The first two bits of a STUN message are zero.
                if let Some(first) = datagram.first_mut() {
                    *first |= 0x80;
                }
                datagram
            }
            1 => {
                let mut datagram = [vec![0; 4], noise.bytes(GARBAGE_MAX)].concat();
                let len = datagram.len() - 4;
                if let (Some(header), Ok(len)) = (datagram.first_chunk_mut(), u16::try_from(len)) {
                    write_channel_header(header, ChannelNumber::MIN, len);
                }
                datagram
            }
            _ => {
                let message = &messages[number % messages.len()];
                let len = 1 + noise.below(message.len() - 1);
                message[..len].to_vec()
            }
        })
        .collect()
}

/// xorshift64*, for variety.
pub(super) struct Noise(pub(super) u64);

impl Noise {
    pub(super) const fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Less than `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.next() as u8).collect()
    }
}
