//! The worker of the next process takes what the one before has, before it serves.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use state_format::Reader;
use turn_proto::{EndReason, Progress, Renamed, ReservedPort, TakenOver, TakeoverError};
use turn_types::{AllocationId, ClientPath, RelayId, SocketId, Transport};

use super::Worker;
use crate::copies::{CopiedAllocation, CopiedRelay, Copies};
use crate::dtls::{Dtls, InheritedSession, SessionLost};
use crate::inheritance::Inherited;
use crate::io::{Net, UdpIo as _};
use crate::limits::{IDS_SKIPPED, RECORDS_SKIPPED, RECORDS_SKIPPED_SPREAD};
use crate::report::Condition;
use crate::sockets::{RelaySocket, Sockets};
use crate::stream::{ConnectionLost, Streams};

/// Why something of the process before is not taken: it has ended.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NotTaken {
    /// An allocation.
    #[error("allocation: {0}")]
    Allocation(TakeoverError),
    /// A client's connection.
    #[error("connection of a client: {0}")]
    Connection(ConnectionLost),
    /// DTLS session of a client.
    #[error("session of a client: {0}")]
    Session(SessionLost),
    /// A connection with a peer.
    #[error("connection with a peer: {0}")]
    Peer(ConnectionLost),
}

/// Allocations of the process before, which may yet change there.
#[derive(Debug)]
pub(super) struct Taken<N: Net> {
    /// The names of their relays there and here.
    relays: BTreeMap<AllocationId, [Option<Renamed>; 2]>,
    /// The ones that could not be taken.
    refused: BTreeMap<AllocationId, Refused<N>>,
    /// Sessions that could not be taken.
    lost: Vec<NotTaken>,
    /// Ports that its clients have reserved.
    reserved: Vec<ReservedPort>,
}

/// An allocation that could not be taken.
#[derive(Debug)]
struct Refused<N: Net> {
    why: TakeoverError,
    state: Vec<u8>,
    relays: Vec<TakenRelay<N>>,
}

/// A relay by its name in the process before, with its own socket if it has one.
#[derive(Debug)]
struct TakenRelay<N: Net> {
    relay: RelayId,
    at: SocketAddr,
    socket: Option<RelaySocket<N>>,
}

impl<N: Net> Default for Taken<N> {
    fn default() -> Self {
        Self {
            relays: BTreeMap::new(),
            refused: BTreeMap::new(),
            lost: Vec::new(),
            reserved: Vec::new(),
        }
    }
}

/// The number of the socket by which a client of another process is reached here.
fn socket_of<N: Net>(
    sockets: &Sockets<N>,
    (streams, dtls): (&Streams<N>, &Dtls),
    path: &ClientPath,
) -> Option<SocketId> {
    match path.five_tuple.transport {
        Transport::Udp => sockets.listener_at(path.five_tuple.server).map(|(id, _)| id),
        Transport::Tcp | Transport::Tls => streams.of_client(&path.five_tuple),
        Transport::Dtls => dtls.of_client(&path.five_tuple),
    }
}

impl<N: Net> Worker<N> {
    /// Takes copies of a worker of another process, which goes on to serve: newer ones take the
    /// place of older ones.
    pub fn take(&mut self, copies: Copies<N::Udp>) {
        self.streams.wait_for_commit();
        let Copies { last_id, changed, ended, .. } = copies;
        // A crashed predecessor may have assigned later ids.
        let counter = last_id.counter() + IDS_SKIPPED;
        self.cx.server.go_on_behind(AllocationId::new(last_id.worker(), counter));
        for id in ended {
            drop(self.give_back(id));
        }
        for CopiedAllocation { id, state, relays, session } in changed {
            let before = self.give_back(id);
            if let Some(state) = session {
                let spread = self.cx.net.random() >> (u64::BITS - RECORDS_SKIPPED_SPREAD);
                let (session, skipped) = (InheritedSession { state }, RECORDS_SKIPPED + spread);
                let lost = self.dtls.inherit(&mut self.cx, &session, skipped).err();
                self.taken.lost.extend(lost.map(NotTaken::Session));
            }
            let relays = self.relays(relays, before);
            self.take_allocation(id, state, relays);
        }
    }

    /// Takes over what a worker of another process has, before this one serves. Returns why some of
    /// it is not taken: that has ended.
    pub fn take_over(&mut self, inheritance: Inherited<N>) -> Vec<NotTaken> {
        let Inherited::<N> {
            copies,
            progress,
            streams,
            sessions,
            tcp_relays,
            peers,
            losses,
            reserved,
            ..
        } = inheritance;
        self.streams.wait_for_commit();
        let mut refused = Vec::new();
        for stream in streams {
            let taken = self.streams.inherit(&mut self.cx, stream);
            refused.extend(taken.err().map(NotTaken::Connection));
        }
        for session in sessions {
            let taken = self.dtls.inherit(&mut self.cx, &session, 0);
            refused.extend(taken.err().map(NotTaken::Session));
        }
        for peer in peers {
            let taken = self.tcp_relay.inherit(&self.cx, &mut self.streams, peer);
            refused.extend(taken.err().map(NotTaken::Peer));
        }
        self.tcp_relay.arrive(tcp_relays);
        self.take(copies);
        // A port may have been another allocation's, which has ended meanwhile.
        for (id, Refused { state, relays, .. }) in std::mem::take(&mut self.taken.refused) {
            self.take_allocation(id, state, relays);
        }
        self.set_progress(progress);
        self.tcp_relay.settle_arrived(&mut self.cx, &mut self.streams);
        self.settle();
        self.cx.sockets.set_losses(&losses);
        let taken = std::mem::take(&mut self.taken);
        let whys = taken.refused.into_values().map(|refused| NotTaken::Allocation(refused.why));
        refused.extend(whys.chain(taken.lost));
        self.taken.reserved = reserved;
        refused
    }

    /// All workers have [taken over](Self::take_over), and this process is about to serve: takes
    /// the ports for which an old copy at another worker may have been in the way, and resumes the
    /// connections. `drains`: refuses new allocations.
    pub fn settle_in(&mut self, drains: bool) {
        self.cx.server.drain(drains);
        let Self { cx, streams, tcp_relay, taken, .. } = self;
        for port in std::mem::take(&mut taken.reserved) {
            cx.server.reserve_again(cx.now, &port);
        }
        streams.go_on(cx);
        tcp_relay.go_on(cx, streams);
        self.settle();
    }

    /// Takes the progress of allocations that this worker has of the other one.
    pub fn set_progress(&mut self, progress: Vec<(AllocationId, Progress)>) {
        for (id, progress) in progress {
            self.cx.server.set_progress(id, progress);
        }
    }

    fn take_allocation(
        &mut self,
        id: AllocationId,
        state: Vec<u8>,
        mut relays: Vec<TakenRelay<N>>,
    ) {
        let Self { cx, streams, dtls, taken, .. } = self;
        let socket_of = |path: &ClientPath| socket_of(&cx.sockets, (streams, dtls), path);
        let renamed = match cx.server.take_over(cx.now, Reader::new(&state), socket_of) {
            Ok(TakenOver { renamed, .. }) => renamed,
            Err(why) => {
                taken.refused.insert(id, Refused { why, state, relays });
                return;
            }
        };
        taken.relays.insert(id, renamed);
        let mut kept = true;
        for Renamed { from, to } in renamed.into_iter().flatten() {
            if let Some(adopted) = self.tcp_relay.adopt(&self.cx.net, from, to) {
                kept &= adopted;
                continue;
            }
            let index = relays.iter().position(|one| one.relay == from);
            kept &= index.is_some_and(|index| {
                let TakenRelay { at, socket, .. } = relays.swap_remove(index);
                self.adopt(to, at, socket)
            });
        }
        if !kept {
            let cx = &mut self.cx;
            cx.server.end_allocation(cx.now, id, EndReason::SystemExhausted);
        }
        self.settle();
    }

    /// The relays of an allocation: each with the socket that has come with it, or that came
    /// `before`.
    fn relays(
        &self,
        copied: Vec<CopiedRelay<N::Udp>>,
        mut before: Vec<TakenRelay<N>>,
    ) -> Vec<TakenRelay<N>> {
        let may_coalesce = self.cx.sockets.may_coalesce();
        let relay = |CopiedRelay { relay, at, own: _, socket }| {
            let socket = match socket {
                Some(socket) => Some(RelaySocket::new(socket, may_coalesce)),
                None => {
                    let known = before.iter_mut().find(|known| known.relay == relay);
                    known.and_then(|known| known.socket.take())
                }
            };
            TakenRelay { relay, at, socket }
        };
        copied.into_iter().map(relay).collect()
    }

    /// Takes an allocation back out, if it was taken, and returns its relays.
    fn give_back(&mut self, id: AllocationId) -> Vec<TakenRelay<N>> {
        if let Some(refused) = self.taken.refused.remove(&id) {
            return refused.relays;
        }
        let Some(renamed) = self.taken.relays.remove(&id) else { return Vec::new() };
        self.cx.server.give_back(id);
        self.settle();
        let Self { cx, tcp_relay, .. } = self;
        let taken = renamed.into_iter().flatten().filter_map(|Renamed { from, to }| {
            if tcp_relay.give_back(&cx.net, from, to) {
                return None;
            }
            let (at, socket) = cx.sockets.leave_relay(&cx.net, to)?;
            Some(TakenRelay { relay: from, at, socket })
        });
        taken.collect()
    }

    /// Watches the socket of a relay, or makes it a part of the shared one. False if that fails:
    /// its peers could not be received.
    fn adopt(&mut self, relay: RelayId, at: SocketAddr, socket: Option<RelaySocket<N>>) -> bool {
        let cx = &mut self.cx;
        let adopted = match socket {
            // It is what its state says.
            Some(socket) if !relay.is_shared() && socket.socket.local_addr() == at => {
                cx.sockets.adopt_relay(&cx.net, relay, socket)
            }
            None if relay.is_shared() => cx.sockets.share(relay, at),
            Some(_) | None => Err(io::ErrorKind::InvalidData.into()),
        };
        if let Err(error) = &adopted {
            cx.observer.warn(cx.now.instant, Condition::RelaySocket, error);
        }
        adopted.is_ok()
    }
}
