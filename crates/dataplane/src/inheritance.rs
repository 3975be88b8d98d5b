//! Parts of one process for the next.

use std::net::SocketAddr;

use turn_proto::{Progress, ReservedPort};
use turn_types::{AllocationId, RelayId};

use crate::copies::Copies;
use crate::dtls::InheritedSession;
use crate::io::Net;

/// Part of one worker, with UDP sockets of type `S`, connections of type `T` and listening sockets
/// of type `A`.
#[derive(Debug)]
pub struct Inheritance<S, T, A> {
    /// The UDP listeners, in order.
    pub listeners: Vec<S>,
    /// The allocations that the next process has no copies of, or older ones.
    pub copies: Copies<S>,
    /// Progress of others since their last copies.
    pub progress: Vec<(AllocationId, Progress)>,
    /// Clients' connections over TCP and TLS.
    pub streams: Vec<InheritedStream<T>>,
    /// Sessions of DTLS.
    pub sessions: Vec<InheritedSession>,
    /// Relays for TCP.
    pub tcp_relays: Vec<InheritedTcpRelay<A>>,
    /// Connections with peers.
    pub peers: Vec<InheritedStream<T>>,
    /// Datagrams that UDP sockets have lost to full receive buffers and that were counted, by the
    /// socket's address: the kernel goes on to add them up.
    pub losses: Vec<(SocketAddr, u32)>,
    /// Ports that clients of all workers have reserved: with the first worker.
    pub reserved: Vec<ReservedPort>,
    /// The number of allocations that leave, those of earlier copies among them.
    pub allocations: usize,
}

/// Part of a worker with these sockets.
pub(crate) type Inherited<N> =
    Inheritance<<N as Net>::Udp, <N as Net>::Stream, <N as Net>::Acceptor>;

impl<S, T, A> Inheritance<S, T, A> {
    /// Of a worker of which there is nothing but copies.
    #[must_use]
    pub fn of_copies(copies: Copies<S>) -> Self {
        let allocations = copies.changed.len();
        Self {
            listeners: Vec::new(),
            copies,
            progress: Vec::new(),
            streams: Vec::new(),
            sessions: Vec::new(),
            tcp_relays: Vec::new(),
            peers: Vec::new(),
            losses: Vec::new(),
            reserved: Vec::new(),
            allocations,
        }
    }

    /// Adds allocations that were between two workers. Nothing was received meanwhile.
    pub fn add(&mut self, late: Self) {
        let Self {
            copies,
            progress,
            streams,
            sessions,
            tcp_relays,
            peers,
            reserved,
            allocations,
            ..
        } = late;
        self.allocations = allocations;
        self.copies.last_id = copies.last_id;
        self.copies.changed.extend(copies.changed);
        self.copies.ended.extend(copies.ended);
        self.progress.extend(progress);
        self.streams.extend(streams);
        self.sessions.extend(sessions);
        self.tcp_relays.extend(tcp_relays);
        self.peers.extend(peers);
        self.reserved.extend(reserved);
    }
}

/// A relay for TCP (RFC 6062), for the next process.
#[derive(Debug)]
pub struct InheritedTcpRelay<A> {
    /// Its name in the process that had it.
    pub relay: RelayId,
    /// Its address.
    pub at: SocketAddr,
    /// Its socket, which listens.
    pub socket: A,
}

/// A connection of a client or with a peer, for the next process.
pub struct InheritedStream<T> {
    /// Its state: the keys of TLS among it.
    pub state: Vec<u8>,
    /// The address of its other end, by which its socket is known.
    pub remote: SocketAddr,
    /// Its socket.
    pub socket: T,
}

impl<T> std::fmt::Debug for InheritedStream<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InheritedStream").finish_non_exhaustive()
    }
}
