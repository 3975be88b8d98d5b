//! Worker thread: the parts of a worker, and the loop that calls the parts in a fixed order.

mod commands;
mod export;
mod handover;
mod import;
mod imported;
mod input;
mod messages;
mod pause;
mod ready;
mod requests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ahash::RandomState;
use control::{Authorizer, Histogram, Inbox, Series, StreamEnd, UserDirectory, WorkerCounters};
use linux_net::{RxBatch, TxBatch};
use turn_proto::{EndReason, Fetch, Policy, REPLY_MAX, Server, ServerConfig, SharedRegistry};
use turn_types::{AllocationId, Instant, IpFamily, RelayId, SocketId, WorkerId};

use crate::context::{Connections, Context, Message, Output};
use crate::dtls::{Dtls, DtlsSettings};
use crate::egress::Egress;
use crate::handshake_budget::HandshakeBudget;
use crate::input_queue::InputQueue;
use crate::io::{Kernel, Net};
use crate::limits::{
    CIPHERTEXT_PER_READ, MESSAGES_PER_GATHERING, MESSAGES_PER_RECEIVE, REPORTS_PER_TURN,
    RING_ROUNDS_PER_TURN, SOCKETS_SENT_EARLY,
};
use crate::offload::Offload;
use crate::report::{LogOptions, Observer};
use crate::sockets::{Listener, NetOptions, SharedSocket, Sockets};
use crate::stream::{StreamSettings, Streams};
use crate::tcp_relay::TcpRelay;
use crate::token::is_stream;
use crate::udp::{receive_from_clients, receive_from_peers, serve_error_queue};
use crate::workers::{WorkerChannels, WorkerEndpoint, WorkerReceiver};
use handover::Handover;
pub use imported::ImportError;
use ready::Ready;

/// Configuration and parts of a new worker.
pub struct WorkerSpec<N: Net = Kernel> {
    /// Number of the worker: unique in the process, and the index among [`control::Workers`].
    pub id: WorkerId,
    /// Start time of the process since 1970. Allocation ids contain this time.
    pub started: Duration,
    /// UDP listeners of the worker.
    pub listeners: Vec<Listener<N>>,
    /// Shared sockets for relays of prefixes.
    pub shared: Vec<SharedSocket<N>>,
    /// Listening TCP sockets of the worker.
    pub acceptors: Vec<N::Acceptor>,
    /// Settings of clients' TCP connections.
    pub streams: StreamSettings,
    /// Settings of DTLS.
    pub dtls: DtlsSettings,
    /// Rules of the server at the start.
    pub policy: Arc<Policy>,
    /// Quotas and reservations of all workers.
    pub registry: Arc<dyn SharedRegistry>,
    /// Random bytes from the operating system, different for each worker.
    pub seed: [u8; 32],
    /// Look-up of users.
    pub directory: Arc<dyn UserDirectory>,
    /// Authorizer of Allocate requests, queried if the rules require authorization.
    pub authorizer: Arc<dyn Authorizer>,
    /// Counters, shared with the control plane.
    pub counters: Arc<WorkerCounters>,
    /// Receiving ends of the worker's queues.
    pub endpoint: WorkerEndpoint<N>,
    /// Sending ends of all workers' queues, including this worker.
    pub workers: WorkerChannels<N>,
    /// Kernel routes of the worker. `None` if the sockets relay everything.
    pub routes: Option<N::Routes>,
    /// Options of all sockets.
    pub net: NetOptions,
    /// Settings of the worker's log.
    pub log: LogOptions,
}

/// Worker of the data plane. No state that a relayed packet uses is shared with other workers.
pub struct Worker<N: Net = Kernel> {
    cx: Context<N>,
    streams: Streams<N>,
    dtls: Dtls,
    tcp_relay: TcpRelay<N>,
    offload: Offload<N>,
    workers: WorkerChannels<N>,
    messages: WorkerReceiver<N>,
    inbox: Inbox,
    directory: Arc<dyn UserDirectory>,
    authorizer: Arc<dyn Authorizer>,
    ready: Ready,
    /// Allocations to move after the server's commands are executed.
    leaving: Vec<Fetch>,
    handover: Handover<N>,
    /// True if the next iteration has work without any reported readiness.
    is_busy: bool,
    stopping: bool,
}

/// Parts that send to clients with connections.
struct Clients<'a, N: Net> {
    streams: &'a mut Streams<N>,
    dtls: &'a mut Dtls,
}

impl<N: Net> Connections<N> for Clients<'_, N> {
    fn send(&mut self, output: Output<'_, N>, to: SocketId, message: Message<'_>) {
        if is_stream(to) {
            self.streams.queue(output.egress, to, message);
        } else {
            self.dtls.send(output, to, message);
        }
    }
}

impl<N: Net> std::fmt::Debug for Worker<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("id", &self.cx.worker).finish_non_exhaustive()
    }
}

impl<N: Net> Worker<N> {
    /// Creates a worker.
    ///
    /// # Errors
    /// No memory is left for epoll, or another program uses a port of the prefixes.
    pub fn new(spec: WorkerSpec<N>) -> io::Result<Self> {
        let WorkerEndpoint { net, inbox, messages, .. } = spec.endpoint;
        let mut server = Server::new(ServerConfig {
            worker: spec.id,
            policy: spec.policy.clone(),
            registry: spec.registry,
            seed: spec.seed,
            routes: spec.routes.is_some(),
        });
        server.skip_ids(AllocationId::before_first(spec.id, spec.started));
        let tx = if spec.net.gso { TxBatch::new() } else { TxBatch::without_runs() };
        let hasher =
            RandomState::with_seeds(net.random(), net.random(), net.random(), net.random());
        let sockets = Sockets::new(&net, spec.listeners, spec.shared, spec.net)?;
        let is_by_customer = spec.streams.admission.is_by_customer();
        let worker = Self {
            streams: Streams::new(&net, spec.acceptors, spec.streams)?,
            dtls: Dtls::new(spec.dtls, &hasher),
            tcp_relay: TcpRelay::default(),
            offload: Offload::new(&net, spec.routes)?,
            workers: spec.workers,
            messages,
            inbox,
            directory: spec.directory,
            authorizer: spec.authorizer,
            ready: Ready::new(),
            leaving: Vec::new(),
            handover: Handover::new(),
            is_busy: false,
            stopping: false,
            cx: Context {
                worker: spec.id,
                now: net.now(),
                server,
                sockets,
                rx: RxBatch::new(MESSAGES_PER_GATHERING + MESSAGES_PER_RECEIVE),
                egress: Egress::new(tx, Arc::clone(&spec.counters)),
                observer: Observer::new(spec.id, spec.counters, spec.log),
                handshakes: HandshakeBudget::new(hasher.clone()),
                input: InputQueue::new(is_by_customer, hasher),
                reply: Box::new([0; REPLY_MAX]),
                scratch: vec![0; CIPHERTEXT_PER_READ],
                net,
            },
        };
        worker.exclude_listening_ports(&spec.policy);
        Ok(worker)
    }

    /// Serves until a [`Request::Stop`](control::Request::Stop), then closes everything.
    pub fn run(mut self) {
        while self.turn() {}
        self.finish();
    }

    /// Runs one iteration of the loop. Returns false after a
    /// [`Request::Stop`](control::Request::Stop).
    pub fn turn(&mut self) -> bool {
        if self.handover.is_paused() {
            self.rest();
            return !self.stopping;
        }
        self.wait();
        self.cx.input.begin_turn();
        if self.cx.handshakes.begin_turn() {
            self.serve_rereads();
        }
        self.serve_waiting_handshakes();
        self.serve_datagrams();
        self.serve_ring();
        self.serve_streams();
        self.serve_requests();
        self.serve_messages();
        self.serve_rereads();
        self.serve_timeouts();
        self.send_gathered();
        self.serve_copies();
        self.publish();
        !self.stopping
    }

    /// Closes all allocations and connections, except those exported to another process.
    pub fn finish(mut self) {
        self.commit();
        let kept = self.send_last_copies();
        if let Some(index) = &kept {
            self.release(index);
        }
        self.cx.server.end_all(self.cx.now, EndReason::Shutdown);
        self.settle();
        if kept.is_some() {
            // The keeper has the sessions, so clients receive no alert.
            drop(self.dtls.export());
            self.dtls.commit(&mut self.cx);
        } else {
            self.dtls.end_all(&mut self.cx);
        }
        self.settle();
        self.send_gathered();
        self.cx.observer.publish_traffic(&self.cx.server.carried_traffic());
        self.publish();
    }

    /// Waits for readiness, a wake-up, or the next timer.
    fn wait(&mut self) {
        let has_input = self.streams.has_rereads() || !self.cx.input.is_empty();
        let is_busy = self.is_busy || has_input || self.dtls.has_waiting();
        let timeout = if is_busy {
            Some(Duration::ZERO)
        } else {
            let due = [
                self.cx.server.poll_timeout(),
                self.offload.next_sweep(),
                self.streams.next_sweep(),
                self.dtls.next_sweep(),
                self.tcp_relay.next_resume(),
                self.next_copies(),
            ];
            // Counted from the start of the last iteration, which was recent: timers have no finer
            // resolution.
            due.into_iter().flatten().min().map(|due| self.cx.until(due))
        };
        self.ready.clear();
        let Self { ready, cx: Context { net, sockets, .. }, .. } = self;
        let is_crowded = |relay| sockets.relay(relay).is_some_and(|socket| socket.is_crowded());
        net.wait(timeout, |event| ready.add(event, is_crowded));
        for _ in 1..REPORTS_PER_TURN {
            if !ready.begin_report() {
                break;
            }
            net.wait(Some(Duration::ZERO), |event| ready.add(event, is_crowded));
        }
        self.ready.complete(if !self.handover.is_retired() {
            self.cx.sockets.listeners().len()
        } else {
            0
        });
        self.cx.now = self.cx.net.now();
        self.cx.observer.counters().count_turn();
        self.is_busy = false;
    }

    /// Serves waiting DTLS handshakes while this iteration has processor time for handshakes.
    fn serve_waiting_handshakes(&mut self) {
        while let Some(waiting) = self.dtls.next_waiting(&mut self.cx) {
            self.make_room_to_receive();
            self.dtls.serve_waiting(&mut self.cx, &waiting);
            self.settle();
        }
    }

    /// Serves the UDP sockets.
    ///
    /// Listeners and relay sockets are served alternately, one batch each. So neither many relays
    /// nor a busy listener delays the other side. Sockets with more than one batch are served again
    /// until enough is gathered. The error queues follow. If much input is queued, more is gathered
    /// per GSO batch. If little is queued, the results are sent early.
    fn serve_datagrams(&mut self) {
        loop {
            for round in 0..self.ready.rounds() {
                if let Some(listener) = self.ready.listener(round)
                    && !self.receive_from_clients(listener)
                {
                    self.ready.listener_is_empty(round);
                }
                if let Some(relay) = self.ready.relay(round)
                    && !self.receive_from_relay(relay)
                {
                    self.ready.relay_is_empty(round);
                }
                if !self.ready.is_full() && (round + 1).is_multiple_of(SOCKETS_SENT_EARLY) {
                    self.send_gathered();
                }
            }
            if self.cx.is_gathering_full() || !self.ready.keep_unfinished() {
                break;
            }
        }
        self.send_gathered();
        for index in 0.. {
            let Some(relay) = self.ready.failed(index) else { break };
            let (cx, mut clients, _) = self.split();
            serve_error_queue(cx, &mut clients, relay);
            self.settle();
        }
    }

    fn receive_from_clients(&mut self, listener: SocketId) -> bool {
        self.make_room_to_receive();
        let more = receive_from_clients(
            &mut self.cx,
            listener,
            self.dtls.is_alone(),
            self.dtls.deferred(),
        );
        self.settle();
        if self.dtls.has_deferred() {
            self.dtls.serve_deferred(&mut self.cx);
            self.settle();
        }
        more
    }

    fn receive_from_relay(&mut self, relay: RelayId) -> bool {
        self.make_room_to_receive();
        if self.tcp_relay.listens(relay) {
            let Self { cx, streams, dtls, tcp_relay, .. } = self;
            tcp_relay.accept(cx, &mut Clients { streams, dtls }, relay);
            self.settle();
            return false;
        }
        let Self { cx, streams, dtls, offload, .. } = self;
        let more = receive_from_peers(cx, &mut Clients { streams, dtls }, relay, offload);
        self.settle();
        more
    }

    /// Serves the ring of the kernel path. epoll reports remaining datagrams again.
    fn serve_ring(&mut self) {
        for _ in 0..RING_ROUNDS_PER_TURN {
            if !self.receive_from_ring() {
                break;
            }
            self.send_gathered();
        }
    }

    fn receive_from_ring(&mut self) -> bool {
        let Self { cx, streams, dtls, offload, .. } = self;
        let Some(more) = offload.receive(cx, &mut Clients { streams, dtls }) else { return false };
        self.settle();
        more
    }

    /// Serves TCP connections.
    fn serve_streams(&mut self) {
        for index in 0.. {
            let Some(id) = self.ready.writable(index) else { break };
            self.streams.write(&mut self.cx, id);
            self.settle();
        }
        self.serve_input();
        for index in 0.. {
            let Some(acceptor) = self.ready.acceptor(index) else { break };
            self.streams.accept(&mut self.cx, acceptor);
            self.settle();
        }
        let now = self.cx.now.instant;
        if self.streams.is_sweep_due(now) {
            self.tcp_relay.resume_relays(&self.cx.net);
            self.streams.sweep(&mut self.cx);
            for id in self.tcp_relay.overdue(now) {
                self.streams.close(&mut self.cx, id, StreamEnd::Idle);
            }
            self.settle();
        }
    }

    /// Serves timers.
    fn serve_timeouts(&mut self) {
        let now = self.cx.now;
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now.instant);
        if is_due(self.offload.next_sweep()) {
            let Self { cx, offload, .. } = self;
            offload.sweep(now.instant, &mut cx.server, cx.observer.counters());
            if offload.flows() == 0 {
                cx.sockets.unrouted();
            }
        }
        if is_due(self.cx.server.poll_timeout()) {
            self.cx.server.handle_timeout(now);
            self.settle();
        }
        if is_due(self.dtls.next_sweep()) {
            self.dtls.sweep(&mut self.cx);
            self.settle();
        }
    }

    /// Returns the context, the parts that reach clients, and the kernel path.
    const fn split(&mut self) -> (&mut Context<N>, Clients<'_, N>, &Offload<N>) {
        let Self { cx, streams, dtls, offload, .. } = self;
        (cx, Clients { streams, dtls }, offload)
    }

    /// Provides space for one receive call, if necessary by sending the gathered datagrams.
    fn make_room_to_receive(&mut self) {
        if self.cx.is_gathering_full() {
            self.send_gathered();
        }
    }

    /// Sends the gathered datagrams, frees the receive batch, and writes to connections with new
    /// output.
    fn send_gathered(&mut self) {
        self.cx.flush();
        self.cx.rx.clear();
        if self.streams.write_all(&mut self.cx) {
            self.settle();
        }
    }

    /// Excludes the ports of this server's sockets from relays, under any rules. The kernel would
    /// refuse these ports. The ports of prefixes are excluded as well, because a shared socket is
    /// bound to all addresses of the family.
    fn exclude_listening_ports(&self, policy: &Policy) {
        for at in self.cx.sockets.listener_addrs().chain(self.streams.acceptor_addrs()) {
            for relay in &policy.relay {
                let same_family = at.is_ipv4() == relay.local.is_ipv4();
                if at.ip() == relay.local || at.ip().is_unspecified() && same_family {
                    relay.ports.exclude(at.port());
                }
            }
        }
        for prefix in &policy.prefixes {
            let of_family = |ip| IpFamily::of(ip) == prefix.family();
            for relay in policy.relay.iter().filter(|relay| of_family(relay.local)) {
                prefix.ports().for_each(|port| relay.ports.exclude(port));
            }
        }
    }

    /// Publishes gauges and histograms.
    fn publish(&mut self) {
        let Self { cx, offload, streams, dtls, tcp_relay, .. } = self;
        let Context { rx, egress, observer, server, net, now, .. } = cx;
        observer.publish(Histogram::ReceivedMessages, &rx.stats().messages_per_call);
        observer.publish(Histogram::ReceivedSegments, &rx.stats().segments_per_message);
        observer.publish(Histogram::SentSegments, &egress.stats().segments_per_send);
        observer.publish_population(&server.population());
        observer.record_time(Histogram::Turn, net.instant().saturating_since(now.instant));
        observer.set(Series::FlowsOffloaded, offload.flows());
        observer.set(Series::StreamsLive, streams.len() as u64);
        observer.set(Series::AssociationsLive, dtls.len() as u64);
        observer.set(Series::AssociationsHalfOpen, dtls.half_open() as u64);
        observer.set(Series::PeersLive, tcp_relay.peers() as u64);
        observer.set(Series::NoticesLost, server.notices_lost());
        while let Some(warning) = egress.take_warning() {
            observer.kernel_warning(warning);
        }
    }
}
