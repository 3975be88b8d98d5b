//! A TURN client that a test drives step by step.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use stun_wire::{CHANNEL_HEADER_LEN, ChannelNumber, channel_data};
use turn_client::{AllocateOptions, Allocation, Client, ClientConfig, Event, Families, Incoming};
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
    allocation: Option<Allocation>,
}

/// A datagram of a peer, as it came to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// The peer.
    pub peer: SocketAddr,
    /// The channel that it came by; none: a Data indication.
    pub channel: Option<ChannelNumber>,
    /// The payload.
    pub payload: Vec<u8>,
}

impl Caller {
    /// Allocates a relayed address of a family at a server, for the shortest time that it grants.
    ///
    /// # Panics
    /// The server refuses, or does not answer.
    #[must_use]
    #[track_caller]
    pub fn allocate(
        socket: UdpSocket,
        server: SocketAddr,
        account: Account,
        family: IpFamily,
    ) -> Self {
        let families = match family {
            IpFamily::V4 => Families::V4,
            IpFamily::V6 => Families::V6,
        };
        Self::with_families(socket, server, account, families)
    }

    /// The same of these families.
    ///
    /// # Panics
    /// As [`Self::allocate`].
    #[must_use]
    #[track_caller]
    pub fn with_families(
        socket: UdpSocket,
        server: SocketAddr,
        account: Account,
        families: Families,
    ) -> Self {
        let mut caller = Self::asking(socket, server, account, of(families));
        caller.allocation = Some(caller.wait("an allocation", |event| {
            let Event::Allocated(allocation) = event else { return None };
            Some(*allocation)
        }));
        caller
    }

    /// Asks for a relayed address as [`Self::allocate`].
    ///
    /// # Errors
    /// The error code, if it is refused.
    ///
    /// # Panics
    /// The server does not answer.
    #[track_caller]
    pub fn ask(
        socket: UdpSocket,
        server: SocketAddr,
        account: Account,
        families: Families,
    ) -> Result<Self, u16> {
        Self::ask_with(socket, server, account, of(families))
    }

    /// The same with these options.
    ///
    /// # Errors
    /// The error code, if it is refused.
    ///
    /// # Panics
    /// The server does not answer.
    #[track_caller]
    pub fn ask_with(
        socket: UdpSocket,
        server: SocketAddr,
        account: Account,
        options: AllocateOptions,
    ) -> Result<Self, u16> {
        let mut caller = Self::asking(socket, server, account, options);
        let answer = caller.wait("an answer", |event| {
            if let Event::Refused { code, .. } = event {
                return Some(Err(*code));
            }
            let Event::Allocated(allocation) = event else { return None };
            Some(Ok(*allocation))
        });
        caller.allocation = Some(answer?);
        Ok(caller)
    }

    /// A client that has asked with these options.
    #[track_caller]
    fn asking(
        socket: UdpSocket,
        server: SocketAddr,
        account: Account,
        options: AllocateOptions,
    ) -> Self {
        socket.connect(server).unwrap_or_else(|error| panic!("{server}: {error}"));
        let config =
            ClientConfig::new(ServerAddr(server), account.name, account.password, seed(&socket));
        let mut caller =
            Self { client: Client::new(config), socket, start: Instant::now(), allocation: None };
        let asked = caller.client.allocate(caller.now(), options);
        asked.unwrap_or_else(|error| panic!("{error}"));
        caller
    }

    /// The relayed address, of IPv4 where there are both.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    #[track_caller]
    pub fn relayed(&self) -> SocketAddr {
        let relayed = self.allocation.and_then(|allocation| {
            allocation.relayed.into_iter().flatten().next().map(|relayed| relayed.0)
        });
        relayed.expect("a relayed address")
    }

    /// The token of the port that is reserved behind its own.
    #[must_use]
    pub fn reservation_token(&self) -> Option<[u8; 8]> {
        self.allocation?.reservation_token
    }

    /// The relayed address of this family.
    #[must_use]
    pub fn relayed_of(&self, family: IpFamily) -> Option<SocketAddr> {
        Some(self.allocation?.relayed_of(family)?.0)
    }

    /// Installs a permission.
    ///
    /// # Panics
    /// The server refuses, or does not answer.
    #[track_caller]
    pub fn permit(&mut self, peer: IpAddr) {
        let asked = self.client.permit(self.now(), peer);
        asked.unwrap_or_else(|error| panic!("{error}"));
        let ready = |event: &Event| matches!(event, Event::PermissionReady { .. }).then_some(());
        self.wait("a permission", ready);
    }

    /// Refreshes the allocation.
    ///
    /// # Panics
    /// The server refuses, or does not answer.
    #[track_caller]
    pub fn refresh(&mut self) {
        let asked = self.client.refresh(self.now(), None, 600);
        asked.unwrap_or_else(|error| panic!("{error}"));
        self.wait("a refresh", |event| matches!(event, Event::Refreshed { .. }).then_some(()));
    }

    /// Requests a refresh, without waiting for its answer.
    ///
    /// # Panics
    /// There is no allocation.
    pub fn request_refresh(&mut self) {
        let asked = self.client.refresh(self.now(), None, 600);
        asked.unwrap_or_else(|error| panic!("{error}"));
        while let Some(bytes) = self.client.poll_transmit() {
            drop(self.socket.send(bytes));
        }
    }

    /// Binds a channel to a peer.
    ///
    /// # Panics
    /// The server refuses, or does not answer.
    #[track_caller]
    pub fn bind(&mut self, peer: SocketAddr) -> ChannelNumber {
        self.try_bind(peer).unwrap_or_else(|code| panic!("a channel to {peer} is refused: {code}"))
    }

    /// Binds a channel to a peer.
    ///
    /// # Errors
    /// The error code, if the server refuses.
    ///
    /// # Panics
    /// When the server does not answer.
    #[track_caller]
    pub fn try_bind(&mut self, peer: SocketAddr) -> Result<ChannelNumber, u16> {
        let channel = self.client.bind_channel(self.now(), PeerAddr(peer));
        let channel = channel.unwrap_or_else(|error| panic!("{error}"));
        self.wait("a channel or a refusal", |event| {
            if let Event::Refused { code, .. } = event {
                return Some(Err(*code));
            }
            matches!(event, Event::ChannelReady { .. }).then_some(Ok(channel))
        })
    }

    /// Gives the allocation back.
    ///
    /// # Panics
    /// The server refuses, or does not answer.
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

    /// Sends a payload as a Send indication.
    ///
    /// # Panics
    /// For a payload that does not fit.
    pub fn indicate(&mut self, peer: SocketAddr, payload: &[u8]) {
        let mut datagram = vec![0; DATAGRAM_MAX];
        let len = self.client.write_send_indication(&mut datagram, PeerAddr(peer), payload, false);
        let len = len.unwrap_or_else(|| panic!("{} bytes are no payload", payload.len()));
        drop(self.socket.send(&datagram[..len]));
    }

    /// The next datagram of a peer, by a channel or an indication, that comes within `patience`.
    #[must_use]
    pub fn data(&mut self, patience: Duration) -> Option<Data> {
        let deadline = Instant::now() + patience;
        loop {
            let datagram = receive(&self.socket, deadline)?;
            if let Incoming::Data { peer, payload, channel } =
                self.client.handle_datagram(self.now(), &datagram)
            {
                return Some(Data { peer: peer.0, channel, payload: payload.to_vec() });
            }
        }
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

/// Relayed addresses of these families, for the shortest time that the server grants.
fn of(families: Families) -> AllocateOptions {
    AllocateOptions { families, lifetime_secs: Some(1), ..AllocateOptions::default() }
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
