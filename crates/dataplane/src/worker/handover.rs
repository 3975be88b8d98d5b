//! Export of a worker to the successor: listeners, connections and sessions of clients, and
//! allocations with relay sockets.
//!
//! ```text
//! the old process                           the next one
//! copies while it serves                --> take
//! leave: nothing is received from here on
//! the changes since                     --> take_over
//! withdraw: the kernel relays no more
//! progress of the allocations it had    --> set_progress
//!                                       <--  it serves
//! forget                                     (or it fails: take_back)
//! ```
//!
//! Datagrams and bytes wait in the shared sockets. All clients are exported: the successor handles
//! waiting requests, or this process refuses them. TLS handshakes are closed.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::mpsc::SyncSender;

use state_format::{Value as _, Writer};
use turn_proto::{EndedWait, Progress, ReservedPort};
use turn_types::{AllocationId, Transport, WorkerId};

use super::{Clients, Worker};
use crate::context::Context;
use crate::copies::{Copied, Copies, CopiesFor, Copying, Missing};
use crate::inheritance::{Inheritance, Inherited, InheritedStream};
use crate::io::{Net, StreamIo as _, UdpIo as _};
use crate::limits::RING_ROUNDS_PER_TURN;
use crate::report::Sent;
use crate::stream::LeftStream;

/// Parts that a worker has left. They stay as they are until the next process serves.
#[derive(Debug)]
pub(super) struct Left<N: Net> {
    streams: Vec<LeftStream<N>>,
    /// The allocations that the next process has.
    copied: Copied,
}

impl<N: Net> LeftStream<N> {
    fn inherit(&self, out: &mut Writer) -> io::Result<InheritedStream<N::Stream>> {
        let socket = self.socket.copy()?;
        self.state.write(out);
        Ok(InheritedStream { state: out.take_bytes(), remote: self.remote, socket })
    }
}

impl<N: Net> Worker<N> {
    /// Pauses the worker, and exports all connections, sessions and allocations that the successor
    /// has no [copies](crate::WorkerChannels::copy_to_next) of, with copies of the listeners. The
    /// pause lasts until the [commit](Self::forget) or the [rollback](Self::take_back). A second
    /// call exports arrivals from other workers.
    ///
    /// # Errors
    /// No descriptors left for the copies; the worker goes on as before.
    pub fn leave(&mut self) -> io::Result<Inherited<N>> {
        let before = self.left.take();
        let is_first = before.is_none();
        let (mut left, missing) = before.map_or_else(
            || {
                self.withdraw_routes_of_connections();
                let (copied, missing) = self.take_copied();
                (Left { streams: Vec::new(), copied }, missing)
            },
            |left| (left, Missing::default()),
        );
        self.end_waits();
        let inherited = self.inherit(&mut left, is_first, missing);
        self.left = Some(left);
        if inherited.is_err() {
            self.take_back();
        }
        inherited
    }

    /// Completes all waiting requests: each is refused, or stored in its connection.
    fn end_waits(&mut self) {
        loop {
            let Self { cx, streams, dtls, .. } = self;
            let Some(ended) = cx.server.end_wait(cx.now, &mut cx.reply) else { break };
            match ended {
                EndedWait::Unserved { path, request } => streams.unserve(path.socket, request),
                EndedWait::Refused(answer) => {
                    streams.answered(answer.to.socket);
                    cx.answer(&mut Clients { streams, dtls }, answer, Sent::LateError);
                }
                EndedWait::Dropped => {}
            }
            self.settle();
        }
        self.settle();
    }

    /// The allocations that the next process has already.
    fn take_copied(&mut self) -> (Copied, Missing) {
        match self.copying.take() {
            Some(copying) if copying.is_for(CopiesFor::Next) => copying.into_copied(),
            other => {
                self.paused_copying = other.or_else(|| self.paused_copying.take());
                self.cx.server.keep_changes(true);
                (Copied::default(), Missing::default())
            }
        }
    }

    fn inherit(
        &mut self,
        Left { streams, copied }: &mut Left<N>,
        is_first: bool,
        missing: Missing,
    ) -> io::Result<Inherited<N>> {
        let told = streams.len();
        streams.extend(self.streams.leave(&mut self.cx));
        self.settle();
        let mut out = Writer::new();
        let inherited = streams[told..].iter().map(|left| left.inherit(&mut out));
        let inherited = inherited.collect::<io::Result<Vec<_>>>()?;
        // After the last packet that this process relays.
        let sessions = if is_first { self.dtls.leave() } else { Vec::new() };
        let cx = &mut self.cx;
        let mut ids: BTreeSet<AllocationId> = cx.server.take_changed(usize::MAX).collect();
        ids.extend(missing.changed);
        let uncopied = cx.server.clients().map(|(id, _)| id).filter(|id| !copied.has(*id));
        ids.extend(uncopied);
        // Told once: nothing changes behind it.
        let progressed = is_first.then(|| copied.progressed(&cx.server));
        let before: Vec<AllocationId> =
            progressed.into_iter().flatten().filter(|id| !ids.contains(id)).collect();
        let mut copies = copied.copy((cx.worker, &mut cx.server, &cx.sockets), ids)?;
        copies.ended.extend(missing.ended);
        let changed = || copies.changed.iter().map(|changed| changed.id);
        let relays = changed().flat_map(|id| cx.server.relays_of(id));
        let tcp_relays = self.tcp_relay.copy_relays(relays)?;
        let connections = changed().flat_map(|id| cx.server.connections_of(id));
        let pipes: HashMap<_, _> =
            streams.iter().map(|left| (left.id, left.state.five_tuple())).collect();
        let peers = self.tcp_relay.copy_peers(connections, &pipes)?;
        let progress = before.into_iter().filter_map(|id| Some((id, cx.server.progress(id)?)));
        let listeners = cx.sockets.listeners().iter().map(|listener| listener.socket.copy());
        Ok(Inheritance {
            listeners: listeners.collect::<io::Result<_>>()?,
            progress: progress.collect(),
            copies,
            streams: inherited,
            sessions,
            tcp_relays,
            peers,
            losses: cx.sockets.losses(),
            reserved: self.reserved_ports(is_first),
            allocations: copied.count(),
        })
    }

    /// The ports that clients of all workers have reserved, told by the first of these. Before the
    /// second call others may yet serve, and a port be redeemed.
    fn reserved_ports(&self, is_first_call: bool) -> Vec<ReservedPort> {
        let Context { worker, server, .. } = &self.cx;
        if is_first_call || *worker != WorkerId(0) {
            return Vec::new();
        }
        server.reserved_ports()
    }

    /// Withdraws the routes of clients with connections, and relays the packets that these have
    /// delivered.
    fn withdraw_routes_of_connections(&mut self) {
        self.cx.server.withdraw_all(|transport| transport != Transport::Udp);
        self.settle();
        for _ in 0..RING_ROUNDS_PER_TURN {
            if !self.receive_from_ring() {
                break;
            }
        }
        self.send_gathered();
    }

    /// Withdraws all routes: the kernel has relayed by them since the worker [left](Self::leave),
    /// and the next process is about to serve. Returns the progress of their allocations.
    pub fn withdraw(&mut self) -> Vec<(AllocationId, Progress)> {
        let by_kernel = self.relayed_by_kernel();
        self.cx.server.withdraw_all(|_| true);
        self.settle();
        self.count_traffic();
        self.progress_of(&by_kernel)
    }

    /// Returns the progress of the allocations that the kernel has relayed for since the worker
    /// [left](Self::leave). Their routes stay: the kernel path goes on without this process.
    pub fn progress_by_kernel(&mut self) -> Vec<(AllocationId, Progress)> {
        let by_kernel = self.relayed_by_kernel();
        let Self { cx, offload, .. } = self;
        for id in &by_kernel {
            offload.sweep_allocation(*id, &mut cx.server, cx.observer.counters());
        }
        self.count_traffic();
        self.progress_of(&by_kernel)
    }

    /// Brings the counters of relayed data up to date: the next process goes on from them.
    pub(super) fn count_traffic(&self) {
        self.cx.observer.publish_traffic(&self.cx.server.carried_traffic());
    }

    /// The allocations that the next process has, and that the kernel relays for.
    fn relayed_by_kernel(&self) -> Vec<AllocationId> {
        let copied = self.left.as_ref().map(|left| &left.copied);
        let ids = copied.into_iter().flat_map(Copied::ids);
        ids.filter(|id| self.offload.relays(*id)).collect()
    }

    fn progress_of(&self, ids: &[AllocationId]) -> Vec<(AllocationId, Progress)> {
        ids.iter().filter_map(|id| Some((*id, self.cx.server.progress(*id)?))).collect()
    }

    /// One turn of a worker that has left everything: messages of workers and of the hand-over are
    /// served, and nothing else.
    pub(super) fn rest(&mut self) {
        self.cx.net.rest();
        self.cx.now = self.cx.net.now();
        self.cx.observer.counters().count_turn();
        self.is_busy = false;
        self.serve_messages();
        self.send_gathered();
        self.publish();
    }

    /// Takes everything back that it has [left](Self::leave), as it was, and sends the next process
    /// no more copies.
    pub fn take_back(&mut self) {
        let Some(Left { streams, .. }) = self.left.take() else {
            if self.copying.as_ref().is_some_and(|copying| copying.is_for(CopiesFor::Next)) {
                self.copy_to_keeper_again();
            }
            return;
        };
        let Self { cx, streams: all, dtls, tcp_relay, .. } = self;
        dtls.take_back();
        all.take_back(cx, streams);
        tcp_relay.go_on(cx, all);
        cx.server.set_all_routes(cx.now);
        self.settle();
        self.copy_to_keeper_again();
        self.is_busy = true;
    }

    /// Closes what it has [left](Self::leave): the next process serves.
    pub fn forget(&mut self) {
        let Some(Left { streams, copied, .. }) = self.left.take() else { return };
        // The keeper has the ones of the next process.
        self.stop_copying();
        self.paused_copying = None;
        let Self { cx, streams: all, dtls, tcp_relay, .. } = self;
        self.listens = false;
        cx.sockets.unwatch_listeners(&cx.net);
        all.set_accepting(&cx.net, false);
        for id in copied.ids() {
            let Some(departure) = cx.server.leave(id) else { continue };
            for relay in departure.relays() {
                cx.sockets.leave_relay(&cx.net, relay);
            }
            tcp_relay.forget(&cx.net, departure.relays(), departure.connections());
        }
        all.forget(cx, streams);
        cx.sockets.leave_shared(&cx.net);
        dtls.forget(cx);
        self.settle();
        self.send_gathered();
        self.is_busy = true;
    }

    /// Copies everything to another process, and then each change. Copies for a keeper wait while
    /// the next process gets some, or all.
    pub(super) fn copy_to(&mut self, to: SyncSender<Copies<N::Udp>>, whom: CopiesFor) {
        let copying = Copying::new(to, whom);
        let is_for_next = |copying: &Copying<N>| copying.is_for(CopiesFor::Next);
        let is_busy = self.left.is_some() || self.copying.as_ref().is_some_and(is_for_next);
        if whom == CopiesFor::Keeper && is_busy {
            self.paused_copying = Some(copying);
            return;
        }
        self.cx.server.keep_changes(true);
        // One for a next process that has failed is of no use any more; one for a keeper waits
        // behind it.
        let before = self.copying.replace(copying).filter(|before| !is_for_next(before));
        let waiting = self.paused_copying.take();
        self.paused_copying = before.or(waiting).filter(|_| whom == CopiesFor::Next);
    }

    /// The next process is gone: the keeper gets the states of all, since others have had the
    /// changes.
    pub(super) fn copy_to_keeper_again(&mut self) {
        self.stop_copying();
        let server = &mut self.cx.server;
        self.copying = self.paused_copying.take().map(|paused| paused.go_on(server));
    }
}
