//! A TURN client that a test drives step by step.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use stun_wire::{CHANNEL_HEADER_LEN, ChannelNumber, channel_data};
use turn_client::{AllocateOptions, Client, ClientConfig, Event, Families, Incoming};
use turn_types::{IpFamily, PeerAddr, ServerAddr};

use crate::Account;

/// Longest time for an answer of the server.
const PATIENCE: Duration = Duration::from_secs(20);

/// As long as a datagram can be.
const DATAGRAM_MAX: usize = 65_535;

/// A client with an allocation. It acts only in calls, and refreshes nothing.
#[derive(Debug)]
pub struct Caller {
    client: Client,
    /// Connected to the server.
    pub socket: UdpSocket,
    start: Instant,
    relayed: SocketAddr,
}

impl Caller {
    /// Allocates a relayed address of a family at a server, for the shortest time that it grants.
    ///
    /// # Panics
    /// When the server refuses, or does not answer.
    #[must_use]
    #[track_caller]
    pub fn allocate(
        socket: UdpSocket,
        server: SocketAddr,
        account: Account,
        family: IpFamily,
    ) -> Self {
        socket.connect(server).unwrap_or_else(|error| panic!("{server}: {error}"));
        let config =
            ClientConfig::new(ServerAddr(server), account.name, account.password, seed(&socket));
        let mut caller = Self {
            client: Client::new(config),
            socket,
            start: Instant::now(),
            relayed: SocketAddr::from(([0; 4], 0)),
        };
        let families = match family {
            IpFamily::V4 => Families::V4,
            IpFamily::V6 => Families::V6,
        };
        let options =
            AllocateOptions { families, lifetime_secs: Some(1), ..AllocateOptions::default() };
        let asked = caller.client.allocate(caller.now(), options);
        asked.unwrap_or_else(|error| panic!("{error}"));
        caller.relayed = caller.wait("an allocation", |event| {
            let Event::Allocated(allocation) = event else { return None };
            allocation.relayed_of(family).map(|relayed| relayed.0)
        });
        caller
    }

    /// The relayed address.
    #[must_use]
    pub const fn relayed(&self) -> SocketAddr {
        self.relayed
    }

    /// Binds a channel to a peer.
    ///
    /// # Panics
    /// When the server refuses, or does not answer.
    #[track_caller]
    pub fn bind(&mut self, peer: SocketAddr) -> ChannelNumber {
        let channel = self.client.bind_channel(self.now(), PeerAddr(peer));
        let channel = channel.unwrap_or_else(|error| panic!("{error}"));
        self.wait("a channel", |event| matches!(event, Event::ChannelReady { .. }).then_some(()));
        channel
    }

    /// Asks for a channel to a peer, and returns the error code if it is refused.
    ///
    /// # Panics
    /// When the server does not answer.
    #[track_caller]
    pub fn refusal(&mut self, peer: SocketAddr) -> Option<u16> {
        let asked = self.client.bind_channel(self.now(), PeerAddr(peer));
        asked.unwrap_or_else(|error| panic!("{error}"));
        self.wait("a channel or a refusal", |event| {
            if let Event::Refused { code, .. } = event {
                return Some(Some(*code));
            }
            matches!(event, Event::ChannelReady { .. }).then_some(None)
        })
    }

    /// Gives the allocation back.
    ///
    /// # Panics
    /// When the server refuses, or does not answer.
    #[track_caller]
    pub fn release(&mut self) {
        let asked = self.client.release(self.now());
        asked.unwrap_or_else(|error| panic!("{error}"));
        self.wait("the end", |event| matches!(event, Event::Released).then_some(()));
    }

    /// Sends a payload as ChannelData. A datagram that the path cannot take is lost.
    ///
    /// # Panics
    /// For a payload of more than 65,535 bytes.
    pub fn send(&self, channel: ChannelNumber, payload: &[u8]) {
        let mut datagram = vec![0; CHANNEL_HEADER_LEN + payload.len()];
        let len = self.client.write_channel_data(&mut datagram, channel, payload);
        let len = len.unwrap_or_else(|| panic!("{} bytes are no payload", payload.len()));
        drop(self.socket.send(&datagram[..len]));
    }

    /// The payload of the next ChannelData that comes within `patience`.
    #[must_use]
    pub fn receive(&self, patience: Duration) -> Option<Vec<u8>> {
        let deadline = Instant::now() + patience;
        loop {
            let datagram = receive(&self.socket, deadline)?;
            if let Ok(frame) = channel_data(&datagram) {
                return Some(frame.data.to_vec());
            }
        }
    }

    fn now(&self) -> turn_types::Instant {
        turn_types::Instant::ZERO + self.start.elapsed()
    }

    #[track_caller]
    fn wait<T>(&mut self, what: &str, wanted: impl Fn(&Event) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            while let Some(bytes) = self.client.poll_transmit() {
                drop(self.socket.send(bytes));
            }
            while let Some(event) = self.client.poll_event() {
                if let Some(found) = wanted(&event) {
                    return found;
                }
                let went_wrong = matches!(event, Event::Refused { .. } | Event::Failed { .. });
                assert!(!went_wrong, "waiting for {what}: {event:?}");
            }
            assert!(Instant::now() < deadline, "waiting for {what}: nothing came");
            let step = (Instant::now() + Duration::from_millis(100)).min(deadline);
            if let Some(datagram) = receive(&self.socket, step) {
                // Data of peers is ignored meanwhile.
                let _: Incoming<'_> = self.client.handle_datagram(self.now(), &datagram);
            }
            self.client.handle_timeout(self.now());
        }
    }
}

/// The next datagram until the deadline.
fn receive(socket: &UdpSocket, deadline: Instant) -> Option<Vec<u8>> {
    let mut datagram = vec![0; DATAGRAM_MAX];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // The kernel knows no wait of 0.
        let wait = left.max(Duration::from_millis(1));
        socket.set_read_timeout(Some(wait)).unwrap_or_else(|error| panic!("{error}"));
        match socket.recv(&mut datagram) {
            Ok(len) => {
                datagram.truncate(len);
                return Some(datagram);
            }
            // An error may tell of the server's being away, and it may come back.
            Err(_) if left.is_zero() => return None,
            Err(_) => std::thread::sleep(Duration::from_micros(100)),
        }
    }
}

/// Transaction ids need not be unpredictable in a lab; two clients have different ones.
fn seed(socket: &UdpSocket) -> [u8; 32] {
    let port = socket.local_addr().map_or(0, |at| at.port());
    let mut seed = [7; 32];
    seed[..2].copy_from_slice(&port.to_be_bytes());
    seed
}
