//! Departure of a worker for the next process: its listeners, and its allocations with their relay sockets.
//!
//! ```text
//! the old process                           the next one
//! leave: nothing is received from here on
//! states, copies of descriptors         --> WorkerSpec, then take_over
//!                                       <--  it serves
//! finish                                     (or it fails: take_back)
//! ```
//!
//! Meanwhile datagrams wait in the sockets, which are the same in both. Clients with connections stay behind; what comes for sessions of
//! DTLS is passed on by the next process.

use std::io;
use std::net::SocketAddr;

use linux_net::Interest;
use state_format::{Reader, Writer};
use turn_proto::{AllocationRecord, Departure, EndReason, TakenOver, TakeoverError};
use turn_types::{AllocationId, RelayId, RelayProtocol, Transport};

use super::Worker;
use crate::earlier::EarlierSessions;
use crate::inheritance::{Inheritance, InheritedAllocation, InheritedRelay, StayingSessions};
use crate::io::{Net, Source, UdpIo};
use crate::limits::RING_ROUNDS_PER_TURN;
use crate::report::Condition;
use crate::sockets::RelaySocket;
use crate::token::Token;

/// Parts that a worker has left. Dropping it ends the allocations here and closes this process's descriptors.
#[derive(Debug)]
pub(super) struct Left<N: Net> {
    /// The sockets of relays that share one.
    shared: Vec<RelaySocket<N>>,
    allocations: Vec<LeftAllocation<N>>,
}

#[derive(Debug)]
struct LeftAllocation<N: Net> {
    departure: Departure,
    relays: Vec<LeftRelay<N>>,
}

/// A relay, and its socket unless it shares one.
#[derive(Debug)]
struct LeftRelay<N: Net> {
    relay: RelayId,
    at: SocketAddr,
    socket: Option<RelaySocket<N>>,
}

impl<N: Net> Left<N> {
    /// Copies it for the next process.
    fn inherit(
        &self,
        last_id: AllocationId,
        listeners: Vec<N::Udp>,
        staying: Vec<StayingSessions<N::Conduit>>,
    ) -> io::Result<Inheritance<N::Udp, N::Conduit>> {
        let shared = self.shared.iter().map(|socket| socket.socket.copy());
        let mut out = Writer::new();
        let allocations = self.allocations.iter().map(|left| left.inherit(&mut out));
        Ok(Inheritance {
            listeners,
            shared: shared.collect::<io::Result<_>>()?,
            last_id,
            allocations: allocations.collect::<io::Result<_>>()?,
            staying,
        })
    }
}

impl<N: Net> LeftAllocation<N> {
    fn inherit(&self, out: &mut Writer) -> io::Result<InheritedAllocation<N::Udp>> {
        self.departure.write(out);
        let relays = self.relays.iter().map(|LeftRelay { relay, at, socket }| {
            let socket = socket.as_ref().map(|socket| socket.socket.copy()).transpose()?;
            Ok(InheritedRelay { relay: *relay, at: *at, socket })
        });
        let relays = relays.collect::<io::Result<_>>()?;
        Ok(InheritedAllocation { relays, state: out.take_bytes() })
    }
}

/// Returns true for allocations that the next process can have: neither their clients nor their peers have connections.
fn is_of_udp(record: &AllocationRecord) -> bool {
    record.five_tuple.transport == Transport::Udp
        && record.attributes.protocol == RelayProtocol::Udp
}

impl<N: Net> Worker<N> {
    /// Lets all allocations of clients over UDP go, and returns them with copies of all sockets. From here on nothing is
    /// received from clients over UDP and for these allocations, and no connection is accepted, until the worker [takes them
    /// back](Self::take_back). Called again it returns what has come from other workers meanwhile.
    ///
    /// # Errors
    /// No descriptors left for the copies; the worker goes on as before.
    pub fn leave(&mut self) -> io::Result<Inheritance<N::Udp, N::Conduit>> {
        let Self { cx, streams, left, .. } = self;
        let is_first = left.is_none();
        self.listens = false;
        if is_first {
            cx.sockets.unwatch_listeners(&cx.net);
            streams.set_accepting(&cx.net, false);
        }
        self.withdraw_routes();
        let (mut go, mut stay) = (Vec::new(), Vec::new());
        for record in self.cx.server.allocations() {
            (if is_of_udp(&record) { &mut go } else { &mut stay }).push(record.id);
        }
        stay.into_iter().for_each(|id| self.separate(id));
        let allocations = go.into_iter().filter_map(|id| self.let_go(id)).collect();
        let staying = if is_first { self.keep_sessions() } else { Ok(Vec::new()) };
        let cx = &mut self.cx;
        let mut left = Left { shared: cx.sockets.leave_shared(&cx.net), allocations };
        let copies = cx.sockets.listeners().iter().map(|listener| listener.socket.copy());
        let copies = copies.collect::<io::Result<Vec<_>>>();
        let last_id = cx.server.last_id();
        let inheritance = copies.and_then(|listeners| left.inherit(last_id, listeners, staying?));
        match &mut self.left {
            Some(before) => {
                before.shared.append(&mut left.shared);
                before.allocations.append(&mut left.allocations);
            }
            None => self.left = Some(left),
        }
        if inheritance.is_err() {
            self.take_back();
        }
        inheritance
    }

    /// Sessions of DTLS that stay here and with earlier processes, for the next one.
    fn keep_sessions(&mut self) -> io::Result<Vec<StayingSessions<N::Conduit>>> {
        let Self { cx, dtls, conduit, .. } = self;
        let mut staying = cx.earlier.copies()?;
        let sessions = dtls.keep_allocated(&mut cx.server);
        if !sessions.is_empty() {
            let (own, next) = cx.net.conduits()?;
            cx.net.watch(Source::Conduit(&own), Token::Conduit.number(), Interest::Read)?;
            *conduit = Some(own);
            staying.push(StayingSessions { sessions, conduit: next });
        }
        Ok(staying)
    }

    /// Passes on what comes for these sessions, which are those of earlier processes.
    pub fn pass_on_to(&mut self, staying: Vec<StayingSessions<N::Conduit>>) {
        self.cx.earlier = EarlierSessions::new(staying);
    }

    /// Gives relays of an allocation that stays sockets of their own, or ends it without descriptors for them.
    fn separate(&mut self, id: AllocationId) {
        let relays: Vec<RelayId> = self.cx.server.relays_of(id).collect();
        let mut kept = self.part_from_shared_sockets(&relays);
        let cx = &mut self.cx;
        for relay in relays {
            kept &= cx.sockets.separate(&cx.net, relay).is_ok();
        }
        if !kept {
            cx.server.end_allocation(cx.now, id, EndReason::SystemExhausted);
            self.settle();
        }
    }

    /// Withdraws all routes, counts their traffic and relays what they have delivered.
    fn withdraw_routes(&mut self) {
        self.cx.server.withdraw_all();
        self.settle();
        for _ in 0..RING_ROUNDS_PER_TURN {
            if !self.receive_from_ring() {
                break;
            }
        }
        self.send_gathered();
    }

    fn let_go(&mut self, id: AllocationId) -> Option<LeftAllocation<N>> {
        let cx = &mut self.cx;
        let departure = cx.server.leave(id)?;
        let relays = departure.relays().filter_map(|relay| {
            let (at, socket) = cx.sockets.leave_relay(&cx.net, relay)?;
            Some(LeftRelay { relay, at, socket })
        });
        let relays = relays.collect();
        Some(LeftAllocation { departure, relays })
    }

    /// Takes everything back that it has [left](Self::leave), as it was. A worker that cannot watch its listeners again stops.
    pub fn take_back(&mut self) {
        let Some(Left { shared, allocations }) = self.left.take() else { return };
        let Self { cx, streams, conduit, listens, .. } = self;
        *conduit = None;
        *listens = true;
        streams.set_accepting(&cx.net, true);
        let mut result = cx.sockets.watch_listeners(&cx.net);
        for socket in shared {
            let returned = cx.sockets.return_shared(&cx.net, socket);
            result = result.and(returned);
        }
        if let Err(error) = result {
            // It would be deaf: a new start is better.
            cx.observer.warn(cx.now.instant, Condition::RelaySocket, &error);
            self.stopping = true;
        }
        for LeftAllocation { departure, relays } in allocations {
            let mut kept = true;
            for LeftRelay { relay, at, socket } in relays {
                kept &= self.adopt(relay, at, socket);
            }
            self.keep(departure, kept);
        }
    }

    /// Closes what it has [left](Self::leave): the next process serves.
    pub fn forget(&mut self) {
        self.left = None;
        // The keeper has those of the next process.
        self.stop_copying();
        let Self { cx, dtls, .. } = self;
        cx.earlier = EarlierSessions::default();
        dtls.end_others(cx);
        self.settle();
        self.send_gathered();
    }

    /// Takes the allocations of a worker of another process, before this one serves, which gives ids behind `last_id`. Returns why some are
    /// not taken: these have ended.
    pub fn take_over(
        &mut self,
        last_id: AllocationId,
        allocations: Vec<InheritedAllocation<N::Udp>>,
    ) -> Vec<TakeoverError> {
        let mut refused = Vec::new();
        self.cx.server.go_on_behind(last_id);
        let may_coalesce = self.cx.sockets.may_coalesce();
        for InheritedAllocation { state, mut relays } in allocations {
            let taken = self.cx.server.take_over(self.cx.now, Reader::new(&state));
            let TakenOver { id, renamed } = match taken {
                Ok(taken) => taken,
                Err(why) => {
                    refused.push(why);
                    continue;
                }
            };
            let mut kept = true;
            for renamed in renamed.into_iter().flatten() {
                let at = relays.iter().position(|one| one.relay == renamed.from);
                let Some(InheritedRelay { at, socket, .. }) = at.map(|at| relays.swap_remove(at))
                else {
                    kept = false;
                    continue;
                };
                let socket = socket.map(|socket| RelaySocket::new(socket, may_coalesce));
                kept &= self.adopt(renamed.to, at, socket);
            }
            if !kept {
                let cx = &mut self.cx;
                cx.server.end_allocation(cx.now, id, EndReason::SystemExhausted);
            }
            self.settle();
        }
        refused
    }

    /// Watches the socket of a relay, or makes it a part of the shared one. False if that fails: its peers could not be
    /// received.
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
