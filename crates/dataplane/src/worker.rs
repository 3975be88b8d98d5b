//! One thread: its sockets, its server, and the loop.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ahash::RandomState;
use control::{Histogram, Inbox, Series, UserDirectory};
use linux_net::{Clock, RxBatch, TxBatch, random_bytes};
use turn_proto::{Fetch, Server, ServerConfig};
use turn_session::TlsConfig;
use turn_session::dtls::DtlsConfig;
use turn_types::{Instant, Now, Prefix, SocketId, WorkerId};

use crate::WorkerSpec;
use crate::admission::Admission;
use crate::associations::Associations;
use crate::deadlines::Evictable;
use crate::doors::{Arrivals, Doors};
use crate::dtls::Aside;
use crate::egress::Egress;
use crate::fast_path::FastPath;
use crate::handshake_queue::HandshakeQueue;
use crate::handshakes::Handshakes;
use crate::limits::{
    BYTES_PER_GATHERING, CIPHERTEXT_PER_READ, HANDED_ROUNDS, MESSAGES_PER_GATHERING,
    MESSAGES_PER_RECEIVE, SOCKETS_PER_TURN, SWEEP_STREAMS_EVERY,
};
use crate::observe::Observer;
use crate::peers::Peers;
use crate::ready::Ready;
use crate::sockets::Sockets;
use crate::streams::Streams;
use crate::used_cookies::UsedCookies;

/// A worker. It shares nothing that a relayed packet touches.
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) server: Server,
    pub(crate) sockets: Sockets,
    pub(crate) streams: Streams,
    pub(crate) peers: Peers,
    /// Streams that may have been read further than they were served.
    pub(crate) released: Vec<SocketId>,
    pub(crate) doors: Doors,
    pub(crate) arrivals: Arrivals,
    /// There is something to be done in the next turn whatever happens.
    pub(crate) is_busy: bool,
    pub(crate) admission: Arc<Admission>,
    pub(crate) evictable: Evictable,
    /// Load balancers, which say who is behind them.
    pub(crate) proxies: Vec<Prefix>,
    /// How TLS is spoken, if it is.
    pub(crate) tls: Option<TlsConfig>,
    /// Where certificate authorities are sent.
    pub(crate) acme_redirect: Option<String>,
    pub(crate) associations: Associations,
    pub(crate) dtls_admission: Arc<Admission>,
    /// How DTLS is spoken, if it is.
    pub(crate) dtls: Option<DtlsConfig>,
    /// Datagrams for DTLS of the batch that is being served.
    pub(crate) aside: Vec<Aside>,
    /// Cookies that are of no use any more.
    pub(crate) used_cookies: UsedCookies,
    /// Time for handshakes.
    pub(crate) handshakes: Handshakes,
    /// Parts of DTLS handshakes that wait for it.
    pub(crate) handshake_queue: HandshakeQueue,
    /// Where the records are in a message that is being served, and what was in them.
    pub(crate) records: Vec<Range<usize>>,
    pub(crate) plain: Vec<Range<usize>>,
    /// Room for what is encrypted.
    pub(crate) scratch: Vec<u8>,
    pub(crate) rx: RxBatch,
    pub(crate) egress: Egress,
    pub(crate) observer: Observer,
    pub(crate) fast_path: FastPath,
    pub(crate) directory: Arc<dyn UserDirectory>,
    pub(crate) inbox: Inbox,
    /// Allocations to be handed over when what the server asked for is done.
    pub(crate) leaving: Vec<Fetch>,
    pub(crate) stopping: bool,
    /// When this turn began: the time of all that is done in it.
    pub(crate) now: Now,
    ready: Ready,
    /// When connections are to be looked at; `None` while there are none.
    pub(crate) sweep_streams_at: Option<Instant>,
    /// When associations are to be looked at; `None` while there are none.
    pub(crate) sweep_associations_at: Option<Instant>,
    /// When it is to be looked for those that nobody uses any more.
    pub(crate) look_for_idle_at: Instant,
}

impl Worker {
    pub(crate) fn new(spec: WorkerSpec) -> io::Result<Self> {
        let sockets = Sockets::new((spec.listeners, spec.acceptors), spec.inlet.wake, spec.net)?;
        sockets.exclude_listening_ports(&spec.policy);
        let config = ServerConfig {
            worker: spec.id,
            policy: spec.policy,
            registry: spec.registry,
            seed: spec.seed,
            routes: spec.routes.is_some(),
        };
        let tx = if spec.net.gso { TxBatch::new() } else { TxBatch::without_runs() };
        let handshake_queue = HandshakeQueue::new(spec.dtls_admission.is_by_customer());
        let mut fast_path = FastPath::new(spec.routes);
        if let Some((ring, _)) = fast_path.handed() {
            sockets.watch_ring(ring)?;
        }
        Ok(Self {
            id: spec.id,
            server: Server::new(config),
            sockets,
            streams: Streams::default(),
            peers: Peers::default(),
            released: Vec::new(),
            doors: spec.doors,
            arrivals: spec.inlet.arrivals,
            is_busy: false,
            admission: spec.admission,
            evictable: Evictable::default(),
            proxies: spec.proxies,
            tls: spec.tls,
            acme_redirect: spec.acme_redirect,
            associations: Associations::default(),
            dtls_admission: spec.dtls_admission,
            dtls: spec.dtls,
            aside: Vec::new(),
            used_cookies: UsedCookies::new(),
            handshakes: Handshakes::new(hasher()),
            handshake_queue,
            records: Vec::new(),
            plain: Vec::new(),
            scratch: vec![0; CIPHERTEXT_PER_READ],
            rx: RxBatch::new(MESSAGES_PER_GATHERING + MESSAGES_PER_RECEIVE),
            egress: Egress::new(tx, Arc::clone(&spec.counters)),
            observer: Observer::new(spec.id, spec.counters),
            fast_path,
            directory: spec.directory,
            inbox: spec.inlet.inbox,
            leaving: Vec::new(),
            stopping: false,
            now: Clock::now(),
            ready: Ready::new(),
            sweep_streams_at: None,
            sweep_associations_at: None,
            look_for_idle_at: Instant::ZERO,
        })
    }

    /// Serves until it is told to stop.
    pub(crate) fn run(mut self) {
        let mut more_requests = false;
        while !self.stopping {
            self.wait(more_requests || self.has_work_left());
            self.is_busy = false;
            self.handshakes.begin_turn();
            self.serve_handshake_queue();
            self.serve_ready();
            self.serve_handed();
            self.serve_streams();
            more_requests = self.serve_inbox();
            self.serve_arrivals();
            self.serve_rested();
            self.serve_released();
            self.serve_timeouts();
            if self.sweep_associations_at.is_some_and(|at| at <= self.now.instant) {
                self.sweep_associations();
            }
            self.send_gathered();
            self.publish();
        }
        self.end_all();
        self.drop_handshake_queue();
        self.end_associations();
        self.send_gathered();
        self.publish();
    }

    /// Returns true if the next turn has work without new packets.
    fn has_work_left(&self) -> bool {
        self.is_busy || !self.released.is_empty() || !self.handshake_queue.is_empty()
    }

    /// Waits for packets, for a knock, or until something is due.
    fn wait(&mut self, busy: bool) {
        let timeout = if busy {
            Some(Duration::ZERO)
        } else {
            // From the beginning of the last turn, which was a moment ago: timers have no finer grain.
            let due = [
                self.server.poll_timeout(),
                self.fast_path.next_sweep(),
                self.sweep_streams_at,
                self.sweep_associations_at,
                self.peers.next_waking(),
            ];
            due.into_iter().flatten().min().map(|due| due.saturating_since(self.now.instant))
        };
        self.sockets.wait(&mut self.ready, timeout);
        self.now = Clock::now();
        self.observer.counters().count_turn();
    }

    /// Serves what is ready: listeners and relays alternately, one batch each, so that neither
    /// many relays nor a busy listener makes the other side wait; again those that had more than a
    /// batch, until enough is gathered; then the error queues. The more has piled up, the longer
    /// are the runs that it is sent in.
    fn serve_ready(&mut self) {
        loop {
            for round in 0..self.ready.rounds() {
                if let Some(listener) = self.ready.listener(round)
                    && !self.receive_from_clients(listener)
                {
                    self.ready.listener_is_empty(round);
                }
                if let Some(relay) = self.ready.relay(round)
                    && !self.receive_from_peers(relay)
                {
                    self.ready.relay_is_empty(round);
                }
            }
            if self.is_gathering_full() || !self.ready.keep_unfinished() {
                break;
            }
        }
        self.send_gathered();
        for index in 0..SOCKETS_PER_TURN {
            let Some(relay) = self.ready.failed(index) else { break };
            self.serve_error_queue(relay);
        }
    }

    /// Serves what the kernel hands over. Of what is left epoll tells again.
    fn serve_handed(&mut self) {
        for _ in 0..HANDED_ROUNDS {
            if !self.receive_handed() {
                break;
            }
            self.send_gathered();
        }
    }

    /// Serves streams that are ready: each is read once, so that none makes the others wait.
    fn serve_streams(&mut self) {
        for index in 0..SOCKETS_PER_TURN {
            let Some(id) = self.ready.writable(index) else { break };
            self.write_stream(id);
        }
        for index in 0..SOCKETS_PER_TURN {
            let Some(id) = self.ready.readable(index) else { break };
            self.receive_from_stream(id);
        }
        for index in 0..SOCKETS_PER_TURN {
            let Some((id, readable, writable)) = self.ready.peer(index) else { break };
            self.serve_peer(id, readable, writable);
        }
        for index in 0..SOCKETS_PER_TURN {
            let Some(place) = self.ready.acceptor(index) else { break };
            self.accept(place);
        }
        let now = self.now.instant;
        if self.sweep_streams_at.is_some_and(|at| at <= now) {
            self.sweep_streams();
        }
        if self.sweep_streams_at.is_none_or(|at| at <= now) {
            self.sweep_streams_at = (self.streams.len() > 0).then(|| now + SWEEP_STREAMS_EVERY);
        }
    }

    /// Has room for one receive call, if need be by sending what was gathered before.
    pub(crate) fn make_room_to_receive(&mut self) {
        if self.is_gathering_full() {
            self.send_gathered();
        }
    }

    /// Besides the messages of a receive call, there is to be room for what is encrypted in them.
    fn is_gathering_full(&self) -> bool {
        self.rx.room() < 2 * MESSAGES_PER_RECEIVE || self.rx.bytes_held() >= BYTES_PER_GATHERING
    }

    /// Sends what was gathered, and lets go of the packets that it came from.
    pub(crate) fn send_gathered(&mut self) {
        self.egress.flush(&self.rx, &self.sockets);
        self.rx.clear();
        self.send_to_streams();
    }

    /// What is kept elsewhere than in the counters.
    fn publish(&mut self) {
        let Self { rx, egress, observer, server, fast_path, streams, associations, peers, .. } =
            self;
        observer.publish(Histogram::ReceivedMessages, &rx.stats().messages_per_call);
        observer.publish(Histogram::ReceivedSegments, &rx.stats().segments_per_message);
        observer.publish(Histogram::SentSegments, &egress.stats().segments_per_send);
        observer.set(Series::AllocationsLive, server.allocation_count() as u64);
        observer.set(Series::FlowsOffloaded, fast_path.flows());
        observer.set(Series::StreamsLive, streams.len() as u64);
        observer.set(Series::AssociationsLive, associations.len() as u64);
        observer.set(Series::AssociationsHalfOpen, associations.half_open() as u64);
        observer.set(Series::PeersLive, peers.len() as u64);
        observer.set(Series::NoticesLost, server.notices_lost());
        while let Some(warning) = egress.take_warning() {
            observer.kernel_warning(warning);
        }
    }
}

/// Hashes by randomness of the operating system.
fn hasher() -> RandomState {
    let seed = || u64::from_ne_bytes(random_bytes());
    RandomState::with_seeds(seed(), seed(), seed(), seed())
}
