//! DTLS: cookies, handshakes and sessions (RFC 6347, RFC 7350).
//!
//! A DTLS datagram is neither STUN nor ChannelData, and the first byte is in the range of DTLS (RFC
//! 7983). DTLS datagrams are deferred until the other datagrams of the batch are served. The
//! contents of DTLS records are decrypted into a message of the receive batch, so payload is sent
//! from the batch.
//!
//! - `hello.rs` responds to ClientHellos.
//! - `pieces.rs` joins fragmented ClientHellos.
//! - `records.rs` decrypts and encrypts.
//! - `waiting.rs` defers handshakes that have no processor time in an iteration.
//! - `lifetime.rs` closes sessions.
//! - `handover.rs` exports and imports sessions.

mod handover;
mod hello;
mod lifetime;
mod pieces;
mod queue;
mod records;
mod sessions;
mod used_cookies;
mod waiting;

use std::ops::Range;
use std::sync::Arc;

use ahash::RandomState;
use control::Series;
use turn_proto::DropReason;
use turn_session::dtls::{DtlsConfig, begins_handshake};
use turn_types::{ClientPath, Instant, SocketId, Transport};

use crate::admission::Admission;
use crate::context::Context;
use crate::egress::Datagram;
use crate::io::Net;
use crate::udp::DtlsDatagram;
pub use handover::SessionImportError;
use pieces::HelloPieces;
use queue::HandshakeQueue;
use sessions::Sessions;
use used_cookies::UsedCookies;

/// Settings of DTLS.
#[derive(Clone, Debug)]
pub struct DtlsSettings {
    /// DTLS configuration. `None` if DTLS is not served.
    pub config: Option<DtlsConfig>,
    /// True if only DTLS is served over UDP. Other datagrams of clients are dropped.
    pub only: bool,
    /// Session limits of all workers together.
    pub admission: Arc<Admission>,
}

/// DTLS sessions of one worker.
#[derive(Debug)]
pub(crate) struct Dtls {
    settings: DtlsSettings,
    sessions: Sessions,
    /// Deferred datagrams of the current batch.
    deferred: Vec<DtlsDatagram>,
    used_cookies: UsedCookies,
    /// Incomplete hellos.
    pieces: HelloPieces,
    queue: HandshakeQueue,
    /// Ranges of the records in a message.
    records: Vec<Range<usize>>,
    /// Ranges of the decrypted contents.
    plain: Vec<Range<usize>>,
    /// Time of the next sweep. `None` without sessions.
    sweep_at: Option<Instant>,
    /// Time of the next search for idle sessions.
    idle_sweep_at: Instant,
}

/// ClientHello in the receive batch.
struct ClientHello {
    message: usize,
    /// Range in the message.
    range: Range<usize>,
    /// Path through the listener, without a session.
    path: ClientPath,
    /// Existing session with the same addresses.
    known: Option<SocketId>,
}

impl Dtls {
    /// Creates a table without sessions. The hasher must have a secret seed.
    pub(crate) fn new(settings: DtlsSettings, hasher: &RandomState) -> Self {
        let is_by_customer = settings.admission.is_by_customer();
        let queue = HandshakeQueue::new(is_by_customer, hasher.clone());
        Self {
            settings,
            sessions: Sessions::new(hasher.clone()),
            deferred: Vec::new(),
            used_cookies: UsedCookies::new(),
            pieces: HelloPieces::new(hasher.clone()),
            queue,
            records: Vec::new(),
            plain: Vec::new(),
            sweep_at: None,
            idle_sweep_at: Instant::ZERO,
        }
    }

    /// Returns the number of sessions.
    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the number of sessions with an incomplete handshake.
    pub(crate) fn half_open(&self) -> usize {
        self.sessions.half_open()
    }

    /// Returns true if handshakes wait for an iteration with time.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Returns true if only DTLS is served over UDP.
    pub(crate) const fn is_alone(&self) -> bool {
        self.settings.only
    }

    /// Returns the list for deferred datagrams. Returns `None` if DTLS is not served, and no
    /// session was imported.
    pub(crate) fn deferred(&mut self) -> Option<&mut Vec<DtlsDatagram>> {
        let serves = self.settings.config.is_some() || self.sessions.len() > 0;
        serves.then_some(&mut self.deferred)
    }

    pub(crate) const fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Serves the deferred datagrams.
    pub(crate) fn serve_deferred<N: Net>(&mut self, cx: &mut Context<N>) {
        let mut deferred = std::mem::take(&mut self.deferred);
        // A message has one sender.
        for message in deferred.chunk_by(|one, next| one.datagram.message == next.datagram.message)
        {
            self.serve_message(cx, message);
        }
        deferred.clear();
        self.deferred = deferred;
    }

    /// Serves the datagrams of one message. Hellos are served first, so the session exists for the
    /// following records.
    fn serve_message<N: Net>(&mut self, cx: &mut Context<N>, datagrams: &[DtlsDatagram]) {
        let Some(&DtlsDatagram { listener: from, datagram: Datagram { message, .. } }) =
            datagrams.first()
        else {
            return;
        };
        let Some(listener) = cx.sockets.listener(from) else { return };
        let received = cx.rx.message(message);
        let mut path = listener.path(from, &received);
        path.five_tuple.transport = Transport::Dtls;
        let mut known = self.sessions.find(&path.five_tuple);
        let mut records = std::mem::take(&mut self.records);
        records.clear();
        let mut hellos = Vec::new();
        for DtlsDatagram { datagram: Datagram { start, len, .. }, .. } in datagrams {
            let range = *start..start + len;
            if begins_handshake(&received.data[range.clone()]) {
                hellos.push(range);
            } else {
                records.push(range);
            }
        }
        for range in hellos {
            known = self.take_hello(cx, &ClientHello { message, range, path, known });
        }
        match known {
            _ if records.is_empty() => {}
            Some(id) => self.take_records_within_share(cx, message, &records, id),
            None => {
                let stray = Series::Drop(DropReason::DtlsStray);
                cx.observer.count(stray, records.len() as u64);
            }
        }
        self.records = records;
    }
}
