//! A call with numbered packets in both directions, of which each has to arrive once and unaltered.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use stun_wire::ChannelNumber;
use test_support::eventually;
use turn_types::IpFamily;

use crate::{Caller, Config, Host, Lab};

/// Silence after which no more packets are expected: longer than any pause of a server.
const SILENCE: Duration = Duration::from_secs(5);

/// Highest number of packets on the way in a direction. The buffer of a socket holds about 270: a
/// pause of the server loses no packet.
const ON_THE_WAY_MAX: u32 = 200;

/// A call through a channel.
#[derive(Debug)]
pub struct Call {
    /// The client.
    pub caller: Caller,
    /// Its channel.
    pub channel: ChannelNumber,
    /// The peer, connected to the relayed address.
    pub peer: UdpSocket,
}

impl Call {
    /// A call of the first user of a server in the lab.
    ///
    /// # Panics
    /// The server refuses it.
    #[must_use]
    pub fn new(lab: &Lab, config: &Config, family: IpFamily) -> Self {
        let addresses = match family {
            IpFamily::V4 => lab.v4,
            IpFamily::V6 => lab.v6,
        };
        let socket = lab.socket(Host::Client, (addresses.client, 0));
        let server = SocketAddr::new(addresses.listen, 3478);
        let mut caller = Caller::allocate(socket, server, config.accounts[0], family);
        let peer = lab.socket(Host::Peer, (addresses.peer, 0));
        let channel = caller.bind(peer.local_addr().expect("an address"));
        peer.connect(caller.relayed()).expect("the relayed address");
        Self { caller, channel, peer }
    }

    /// Sends both ways, a packet `every` so often, until told to stop, and counts how many packets
    /// each side has sent. Sending pauses while 200 packets have not arrived at
    /// [`Self::missing_at_peer`] or [`Self::missing_at_client`].
    ///
    /// # Panics
    /// The system refuses, or was called with this `sent` before.
    pub fn send(&self, every: Duration, stop: &AtomicBool, sent: &Sent) {
        let mut number = 0_u32;
        while !stop.load(Ordering::Relaxed) {
            if number >= sent.arrived() + ON_THE_WAY_MAX {
                sleep(every);
                continue;
            }
            self.caller.send(self.channel, &packet(number, b'c'));
            // While nobody serves an error may come back.
            drop(self.peer.send(&packet(number, b'p')));
            number += 1;
            sent.so_far.store(number, Ordering::Relaxed);
            sleep(every);
        }
        sent.all.set(number).expect("once");
    }

    /// The numbers of the client's packets that never come to the peer, which may not overtake each
    /// other if they are `ordered`.
    ///
    /// # Panics
    /// A packet is altered, comes twice, or out of order.
    #[must_use]
    #[track_caller]
    pub fn missing_at_peer(&self, ordered: bool, sent: &Sent) -> Vec<u32> {
        self.peer.set_read_timeout(Some(SILENCE)).expect("a time");
        let receive = || {
            let mut bytes = [0; 2000];
            self.peer.recv(&mut bytes).ok().map(|len| bytes[..len].to_vec())
        };
        missing((b'c', ordered), receive, (sent, &sent.at_peer))
    }

    /// The same of the peer's packets at the client.
    ///
    /// # Panics
    /// As [`Self::missing_at_peer`].
    #[must_use]
    #[track_caller]
    pub fn missing_at_client(&self, ordered: bool, sent: &Sent) -> Vec<u32> {
        missing((b'p', ordered), || self.caller.receive(SILENCE), (sent, &sent.at_client))
    }
}

#[track_caller]
fn missing(
    (from, ordered): (u8, bool),
    receive: impl Fn() -> Option<Vec<u8>>,
    (sent, arrived): (&Sent, &AtomicU32),
) -> Vec<u32> {
    let mut times: BTreeMap<u32, u32> = BTreeMap::new();
    let mut before = None;
    loop {
        let done = sent.count();
        if done.is_some_and(|count| times.len() as u32 == count) {
            break;
        }
        let Some(bytes) = receive() else {
            if done.is_some() {
                break;
            }
            continue;
        };
        let number = u32::from_be_bytes(bytes[..4].try_into().expect("a number"));
        assert_eq!(bytes, packet(number, from), "altered");
        let is_behind = before.is_some_and(|before| number < before);
        assert!(!(ordered && is_behind), "{number} behind {before:?}");
        before = Some(number);
        arrived.fetch_max(number + 1, Ordering::Relaxed);
        *times.entry(number).or_default() += 1;
    }
    assert!(times.values().all(|times| *times == 1), "a packet came twice");
    (0..sent.count().unwrap_or_default()).filter(|number| !times.contains_key(number)).collect()
}

/// Tells senders to stop when it goes, also in a panic.
#[derive(Debug)]
pub struct Stop<'a>(&'a AtomicBool);

impl<'a> Stop<'a> {
    /// Sets `stop` when it goes.
    #[must_use]
    pub const fn at_end(stop: &'a AtomicBool) -> Self {
        Self(stop)
    }
}

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Number of packets that a call has sent in each direction.
#[derive(Debug, Default)]
pub struct Sent {
    so_far: AtomicU32,
    /// Number of the next packet at the peer: one more than the highest that arrived.
    at_peer: AtomicU32,
    /// The same at the client.
    at_client: AtomicU32,
    all: OnceLock<u32>,
}

impl Sent {
    /// The number until now; one more may be on its way.
    #[must_use]
    pub fn so_far(&self) -> u32 {
        self.so_far.load(Ordering::Relaxed)
    }

    /// Waits until so many more packets have arrived at both ends.
    ///
    /// # Panics
    /// This takes more than 30 s.
    #[track_caller]
    pub fn wait_for_more(&self, packets: u32) {
        let enough = self.arrived() + packets;
        eventually("more packets arrive", || self.arrived() >= enough);
    }

    /// Number of the next packet at the slower end.
    fn arrived(&self) -> u32 {
        let [at_peer, at_client] =
            [&self.at_peer, &self.at_client].map(|at| at.load(Ordering::Relaxed));
        at_peer.min(at_client)
    }

    /// The number in all, when no more are sent.
    #[must_use]
    pub fn count(&self) -> Option<u32> {
        self.all.get().copied()
    }
}

fn packet(number: u32, from: u8) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.resize(160 + (number % 700) as usize, from);
    bytes
}
