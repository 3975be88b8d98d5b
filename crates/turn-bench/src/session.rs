//! Real TURN clients: a socket or a connection, an allocation and a channel each.
//!
//! [`open`] logs all of them in at the same time; while a run goes on, whoever receives keeps them
//! alive ([`Session::take`], [`Session::drive`]); [`close`] gives everything back.
//!
//! ```text
//! link.rs         a client and its wire        fleet.rs     many of them, one epoll
//! wire.rs         a socket, or a connection    setup.rs     opening and closing all at the same time
//! connection.rs   one of the next two          trouble.rs   what went wrong, and what to do about it
//! stream.rs       over TCP; tls.rs, TLS        login.rs     who logs in
//! association.rs  over UDP; dtls.rs, DTLS
//! ```

mod association;
mod connection;
mod dtls;
mod fleet;
mod link;
mod login;
mod setup;
mod stream;
mod tls;
mod trouble;
mod wire;

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result};
use stun_wire::ChannelNumber;
use turn_client::{Client, Incoming};
use turn_types::{Instant, PeerAddr};

pub(crate) use connection::RECEIVE_BYTES;
pub use connection::SharedConnection;
pub(crate) use dtls::begin as begin_dtls;
pub(crate) use link::{Link, Place};
pub use login::{Credentials, Login, LoginArgs};
use setup::{Want, close_links, open_links};
pub use trouble::Trouble;
pub use wire::Wire;

use crate::traffic::Transport;

/// Allocations asked for at the same time where nothing else is said: enough to keep any server
/// busy, few enough not to overflow its socket.
pub const IN_FLIGHT: u32 = 64;

/// Send buffers of all connections together, in bytes, and the least and the most of one: enough for
/// what is under way, and little enough that what a server cannot take shows soon.
const SEND_BUFFERS: usize = 4 << 20;
const SEND_BUFFER_MIN: usize = 32 << 10;
const SEND_BUFFER_MAX: usize = 256 << 10;

/// What sessions are wanted.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The server.
    pub server: SocketAddr,
    /// What carries messages to it.
    pub transport: Transport,
    /// The address that clients send from; `None` is whichever the route gives.
    pub local: Option<IpAddr>,
    /// Who logs in.
    pub login: Login,
    /// Whom the channels are for. Allocations are of its family.
    pub peer: SocketAddr,
    /// How many, 1 or more.
    pub sessions: u32,
    /// Allocations asked for at the same time, 1 or more.
    pub in_flight: u32,
    /// Receive buffer of each UDP socket in bytes; 0 is what the system gives.
    pub receive_buffer: usize,
    /// Whether equal datagrams may arrive merged (`UDP_GRO`).
    pub gro: bool,
}

impl SessionOptions {
    /// One session over UDP, with the defaults for everything that has one.
    #[must_use]
    pub const fn new(server: SocketAddr, login: Login, peer: SocketAddr) -> Self {
        Self {
            server,
            transport: Transport::Udp,
            local: None,
            login,
            peer,
            sessions: 1,
            in_flight: IN_FLIGHT,
            receive_buffer: 0,
            gro: true,
        }
    }

    fn place(&self) -> Place {
        Place {
            server: self.server,
            transport: self.transport,
            local: self.local,
            receive_buffer: self.receive_buffer,
            send_buffer: (SEND_BUFFERS / self.sessions.max(1) as usize)
                .clamp(SEND_BUFFER_MIN, SEND_BUFFER_MAX),
            gro: self.gro,
        }
    }
}

/// A client with an allocation, and a channel to the peer.
#[derive(Debug)]
pub struct Session {
    /// Connected to the server.
    pub wire: Wire,
    /// Keeps the allocation.
    pub client: Client,
    /// Where the peer reaches it.
    pub relayed: SocketAddr,
    /// Bound to the peer.
    pub channel: ChannelNumber,
    /// The far end.
    pub peer: SocketAddr,
}

impl Session {
    /// Takes a datagram from the server, or a message cut from the stream. Data is for the caller; whatever else it was, call
    /// [`Session::drive`] next.
    pub fn take<'d>(&mut self, now: Instant, datagram: &'d [u8]) -> Incoming<'d> {
        self.client.handle_datagram(now, datagram)
    }

    /// Does what is due: refreshes, retransmissions. To be called after [`Session::take`] and when
    /// [`Session::next_timeout`] has come; costs nothing when nothing is due.
    ///
    /// # Errors
    /// The allocation, its permission or its channel is gone.
    pub fn drive(&mut self, now: Instant) -> Result<(), Trouble> {
        if self.next_timeout().is_some_and(|due| due <= now) {
            self.client.handle_timeout(now);
        }
        while let Some(request) = self.client.poll_transmit() {
            // Lost, and sent again in time, like any other datagram that does not arrive. A connection
            // that is broken tells whoever reads.
            let _ = self.wire.send(request);
        }
        while let Some(event) = self.client.poll_event() {
            if let Some(trouble) = Trouble::at_runtime(&event) {
                return Err(trouble);
            }
        }
        Ok(())
    }

    /// When [`Session::drive`] has something to do next, unless a datagram comes before.
    #[must_use]
    pub const fn next_timeout(&self) -> Option<Instant> {
        self.client.poll_timeout()
    }
}

/// Opens all the sessions, or none.
///
/// # Errors
/// What the server said, how many were open by then, and what can be done about it; too few
/// descriptors or ports for so many sockets.
pub fn open(options: &SessionOptions) -> Result<Vec<Session>> {
    open_links(options, Want::Channel)?
        .into_iter()
        .map(|link| {
            let peer = options.peer;
            let channel = link.client.channel_of(PeerAddr(peer)).context("the channel is gone")?;
            let relayed = link.relayed().context("the allocation is gone")?;
            Ok(Session { wire: link.wire, client: link.client, relayed, channel, peer })
        })
        .collect()
}

/// A client with an allocation and nothing in it: no permission, no channel.
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

/// Gives all the allocations back, in bounded time, and returns how many the server did not
/// confirm: those end by themselves when their lifetime does.
pub fn close(sessions: Vec<Session>) -> usize {
    let links = sessions.into_iter().map(|Session { wire, client, .. }| Link { wire, client });
    close_links(links.collect())
}
