//! TURN clients with real sockets: a socket or a connection, an allocation and a channel each.
//!
//! [`open`] logs all of them in at the same time; during a run the receiving thread keeps them
//! alive ([`Session::take`], [`Session::drive`]); [`close`] releases them.
//!
//! ```text
//! setup.rs     opening and releasing many of them      login.rs     credentials
//! security.rs  versions and cipher suites on offer     error.rs     failures, and advice
//! ```

mod error;
mod login;
mod security;
mod setup;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result};
use client_driver::{Endpoint, Link, Wire};
use linux_net::random_bytes;
use stun_wire::ChannelNumber;
use turn_client::{
    AllocateOptions, Client, ClientConfig, Families, Incoming, RequestError, Retransmission,
};
use turn_types::{Instant, IpFamily, PeerAddr, ServerAddr};

pub use error::SessionError;
pub use login::{Credentials, Login, LoginArgs};
pub(crate) use security::{dtls, endpoint};
use setup::{Want, close_links, open_links};

use crate::traffic::Transport;

/// Default number of concurrent Allocate requests: enough to keep any server busy, few enough not
/// to overflow its socket.
pub const IN_FLIGHT: u32 = 64;

/// Send buffers of all connections together, in bytes, and the bounds of one: enough for the data
/// in flight, and little enough that backpressure shows soon.
const SEND_BUFFERS: usize = 4 << 20;
const SEND_BUFFER_MIN: usize = 32 << 10;
const SEND_BUFFER_MAX: usize = 256 << 10;

/// Retransmission of requests as RFC 8489 recommends, but given up after 7.5 s instead of 39.5, so
/// that a silent server is reported soon.
const RETRANSMISSION: Retransmission = Retransmission {
    rto: Duration::from_millis(500),
    sends_max: 4,
    last_wait: 8,
    reliable_timeout: Duration::from_millis(7500),
};

/// Sessions to open.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The server.
    pub server: SocketAddr,
    /// Transport between clients and server.
    pub transport: Transport,
    /// Source address of the clients; `None` leaves it to the route.
    pub local: Option<IpAddr>,
    /// Login of the clients.
    pub login: Login,
    /// Peer of the channels. Allocations are of its address family.
    pub peer: SocketAddr,
    /// Each session has a peer of its own: the first one has `peer`, the next one the next address.
    pub peer_each: bool,
    /// Number of sessions, 1 or more.
    pub sessions: u32,
    /// Concurrent Allocate requests, 1 or more.
    pub in_flight: u32,
    /// Receive buffer of each UDP socket in bytes; 0 is the system's default.
    pub receive_buffer: usize,
    /// Equal datagrams may arrive merged (`UDP_GRO`).
    pub gro: bool,
}

impl SessionOptions {
    /// One session over UDP, with defaults.
    #[must_use]
    pub const fn new(server: SocketAddr, login: Login, peer: SocketAddr) -> Self {
        Self {
            server,
            transport: Transport::Udp,
            local: None,
            login,
            peer,
            peer_each: false,
            sessions: 1,
            in_flight: IN_FLIGHT,
            receive_buffer: 0,
            gro: true,
        }
    }

    /// The peer of a session.
    fn peer_of(&self, number: u32) -> SocketAddr {
        if !self.peer_each {
            return self.peer;
        }
        let ip = match self.peer.ip() {
            IpAddr::V4(v4) => IpAddr::from(v4.to_bits().wrapping_add(number).to_be_bytes()),
            IpAddr::V6(v6) => {
                IpAddr::from(v6.to_bits().wrapping_add(u128::from(number)).to_be_bytes())
            }
        };
        SocketAddr::new(ip, self.peer.port())
    }

    fn endpoint(&self) -> Result<Endpoint> {
        Ok(Endpoint {
            receive_buffer: self.receive_buffer,
            send_buffer: (SEND_BUFFERS / self.sessions.max(1) as usize)
                .clamp(SEND_BUFFER_MIN, SEND_BUFFER_MAX),
            gro: self.gro,
            ..endpoint(self.server, self.transport, self.local)?
        })
    }
}

/// The configuration of a client with these credentials and a seed of its own.
pub(crate) fn client_config(endpoint: &Endpoint, credentials: &Credentials) -> ClientConfig {
    ClientConfig {
        username: credentials.username.clone(),
        password: credentials.password.clone(),
        transport: endpoint.transport.protocol(),
        retransmission: RETRANSMISSION,
        ..ClientConfig::new(ServerAddr(endpoint.server), "", "", random_bytes())
    }
}

/// Requests an allocation of this family.
pub(crate) fn allocate(
    client: &mut Client,
    now: Instant,
    family: IpFamily,
) -> Result<(), RequestError> {
    let families = match family {
        // Servers of RFC 5766 know no families, and relay over IPv4.
        IpFamily::V4 => Families::Unsaid,
        IpFamily::V6 => Families::V6,
    };
    client.allocate(now, AllocateOptions { families, ..AllocateOptions::default() })
}

/// A client with an allocation, and a channel to the peer.
#[derive(Debug)]
pub struct Session {
    /// The socket or connection to the server.
    pub wire: Wire,
    /// The client that keeps the allocation.
    pub client: Client,
    /// The relayed address.
    pub relayed: SocketAddr,
    /// The channel to the peer.
    pub channel: ChannelNumber,
    /// The peer.
    pub peer: SocketAddr,
}

impl Session {
    /// Handles a datagram from the server, or a message of its stream. Data is the caller's; after
    /// anything else call [`Session::drive`].
    pub fn take<'d>(&mut self, now: Instant, datagram: &'d [u8]) -> Incoming<'d> {
        self.client.handle_datagram(now, datagram)
    }

    /// Sends refreshes and retransmissions that are due. Call it after [`Session::take`] and at
    /// [`Session::next_timeout`].
    ///
    /// # Errors
    /// The allocation, its permission or its channel is lost.
    pub fn drive(&mut self, now: Instant) -> Result<(), SessionError> {
        if self.next_timeout().is_some_and(|due| due <= now) {
            self.client.handle_timeout(now);
        }
        while let Some(request) = self.client.poll_transmit() {
            // Retransmitted like a lost datagram. A broken connection is reported by receiving.
            let _ = self.wire.send(request);
        }
        while let Some(event) = self.client.poll_event() {
            if let Some(error) = SessionError::at_runtime(&event) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// The next deadline of [`Session::drive`].
    #[must_use]
    pub const fn next_timeout(&self) -> Option<Instant> {
        self.client.poll_timeout()
    }
}

/// Opens all the sessions, or none.
///
/// # Errors
/// The server's refusal, with the number of open sessions and advice; too few descriptors or ports.
pub fn open(options: &SessionOptions) -> Result<Vec<Session>> {
    open_links(options, Want::Channel)?
        .into_iter()
        .zip(0..)
        .map(|(link, number)| {
            let peer = options.peer_of(number);
            let channel = link.client.channel_of(PeerAddr(peer)).context("the channel is gone")?;
            let relayed = link.relayed().context("the allocation is gone")?;
            Ok(Session { wire: link.wire, client: link.client, relayed, channel, peer })
        })
        .collect()
}

/// A client with an allocation without permission and channel.
#[derive(Debug)]
pub struct Idle(Link);

/// Opens allocations without a channel, of the family of `options.peer`; all or none.
///
/// # Errors
/// As [`open`].
pub fn open_idle(options: &SessionOptions) -> Result<Vec<Idle>> {
    Ok(open_links(options, Want::Allocation)?.into_iter().map(Idle).collect())
}

/// As [`close`].
pub fn close_idle(idle: Vec<Idle>) -> usize {
    close_links(idle.into_iter().map(|Idle(link)| link).collect())
}

/// Releases all the allocations, in bounded time, and returns how many releases the server did not
/// confirm: those allocations expire.
pub fn close(sessions: Vec<Session>) -> usize {
    let links = sessions.into_iter().map(|Session { wire, client, .. }| Link { wire, client });
    close_links(links.collect())
}
