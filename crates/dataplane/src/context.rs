//! State that the parts of a worker share. Each part borrows the context for one call.

use std::net::IpAddr;
use std::time::Duration;

use control::Histogram;
use linux_net::RxBatch;
use turn_proto::{Answer, ReplyBuffer, Server, Verdict};
use turn_types::{
    ClientPath, Instant, IpMeta, Now, PendingId, Prefix, RelayId, SocketId, WorkerId,
};

use crate::egress::{Egress, zeros};
use crate::handshake_budget::{HandshakeBudget, NoTime, Step, Work};
use crate::input_queue::{InputQueue, InputSource};
use crate::io::Net;
use crate::limits::{BYTES_PER_GATHERING, MESSAGES_PER_RECEIVE};
use crate::report::{Condition, Observer, Sent};
use crate::sockets::Sockets;
use crate::token::has_connection;

/// Server, batches and clock of one worker.
pub(crate) struct Context<N: Net> {
    pub(crate) worker: WorkerId,
    /// Start time of this iteration, used as the time of everything done in the iteration.
    pub(crate) now: Now,
    pub(crate) net: N,
    pub(crate) server: Server,
    pub(crate) sockets: Sockets<N>,
    pub(crate) rx: RxBatch,
    pub(crate) egress: Egress,
    pub(crate) observer: Observer,
    pub(crate) handshakes: HandshakeBudget,
    pub(crate) input: InputQueue,
    /// Buffer for replies that are not sent as plain datagrams of the current batch.
    pub(crate) reply: Box<ReplyBuffer>,
    /// Buffer for encrypted bytes and for bytes of peers' connections.
    pub(crate) scratch: Vec<u8>,
}

/// Borrowed parts of a [`Context`] that send datagrams.
pub(crate) struct Output<'a, N: Net> {
    pub(crate) egress: &'a mut Egress,
    pub(crate) rx: &'a RxBatch,
    pub(crate) sockets: &'a Sockets<N>,
}

/// Delivery to clients with connections: TCP, TLS and DTLS.
pub(crate) trait Connections<N: Net> {
    /// Sends a message of three pieces to the client of a connection.
    fn send(&mut self, output: Output<'_, N>, to: SocketId, message: Message<'_>);
}

/// Message to a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) pieces: [&'a [u8]; 3],
    pub(crate) meta: IpMeta,
    pub(crate) sent: Sent,
}

impl<'a> Message<'a> {
    /// Creates a message of one piece with default header fields.
    pub(crate) const fn plain(bytes: &'a [u8], sent: Sent) -> Self {
        Self { pieces: [bytes, &[], &[]], meta: IpMeta::DEFAULT, sent }
    }
}

impl<N: Net> Context<N> {
    /// Provides space for one more datagram to send.
    pub(crate) fn make_room(&mut self) {
        self.egress.make_room(&self.rx, &self.sockets);
    }

    /// Counts all relays of an allocation for the allocation's client. `relay` is any relay of the
    /// allocation.
    pub(crate) fn own_relays(&mut self, relay: RelayId) {
        if self.input.is_by_customer()
            && let Some((client, relays)) = self.server.client_of(relay)
        {
            relays.for_each(|relay| self.sockets.own_relay(relay, client.0.ip()));
        }
    }

    /// Defers a crowded relay to a later iteration.
    pub(crate) fn postpone_relay(&mut self, relay: RelayId) {
        if let Some(client) = self.sockets.postpone_relay(relay) {
            self.input.push(self.now.instant, client, InputSource::Relay(relay));
        }
    }

    /// Sends the gathered datagrams.
    pub(crate) fn flush(&mut self) {
        self.egress.flush(&self.rx, &self.sockets);
    }

    /// Returns true if the receive batch lacks space for one receive call. The decrypted contents
    /// of the call's messages need as much space as the messages.
    pub(crate) fn is_gathering_full(&self) -> bool {
        self.rx.room() < 2 * MESSAGES_PER_RECEIVE || self.rx.bytes_held() >= BYTES_PER_GATHERING
    }

    /// Starts handshake work for a client. Without shares per customer (`is_by_customer` is false),
    /// only the time of the iteration is limited.
    ///
    /// # Errors
    /// The exhausted budget is returned.
    pub(crate) fn begin_handshake(
        &mut self,
        client: IpAddr,
        step: Step,
        is_by_customer: bool,
    ) -> Result<Work, NoTime> {
        let step = if is_by_customer { step } else { Step::Unshared };
        self.handshakes.begin(self.now.instant, client, step, || self.net.cpu_time())
    }

    /// Stops handshake work and charges the client for the time.
    pub(crate) fn end_handshake(&mut self, work: Work) {
        self.handshakes.done(self.now.instant, work, self.net.cpu_time());
    }

    /// Logs that a handshake waits or that a datagram of the handshake is dropped.
    pub(crate) fn warn_of_handshakes(&mut self, client: IpAddr, why: NoTime) {
        let customer = Prefix::customer(client);
        let reason = match why {
            NoTime::Turn => "all handshakes together exceed the time for them",
            NoTime::Share => "this client network has used its share",
        };
        let now = self.now.instant;
        let shown = self.observer.addresses().show_network(&customer);
        self.observer.warn(now, Condition::Handshakes, &format_args!("{shown}: {reason}"));
    }

    /// Records the duration of a user look-up that has a result or is overdue.
    pub(crate) fn lookup_ended(&self, pending: PendingId) {
        if let Some(since) = self.server.waits_since(pending) {
            let took = self.now.instant.saturating_since(since);
            self.observer.record_time(Histogram::Lookup, took);
        }
    }

    /// Sends the answer in [`reply`](Self::reply).
    pub(crate) fn answer(&mut self, to: &mut impl Connections<N>, answer: Answer, sent: Sent) {
        let Self { egress, rx, sockets, reply, .. } = self;
        Output { egress, rx, sockets }.answer(to, answer, reply, sent);
    }

    /// Returns the time until `due`, counted from the start of this iteration.
    pub(crate) fn until(&self, due: Instant) -> Duration {
        due.saturating_since(self.now.instant)
    }
}

impl<N: Net> Output<'_, N> {
    /// Sends the answer in `reply`.
    pub(crate) fn answer(
        self,
        to: &mut impl Connections<N>,
        answer: Answer,
        reply: &ReplyBuffer,
        sent: Sent,
    ) {
        self.reply(to, &answer.to, &reply[..usize::from(answer.len)], sent);
    }

    /// Sends a reply to the client of a path.
    pub(crate) fn reply(
        self,
        to: &mut impl Connections<N>,
        path: &ClientPath,
        bytes: &[u8],
        sent: Sent,
    ) {
        if has_connection(path.socket) {
            return to.send(self, path.socket, Message::plain(bytes, sent));
        }
        let Some(listener) = self.sockets.listener(path.socket) else {
            unreachable!("the server names sockets that clients came by");
        };
        let flow = listener.flow_back(path);
        self.egress.datagram(flow, &[bytes], sent, (self.rx, self.sockets));
    }

    /// Executes the verdict on a peer's `data` if the datagram is not sent from the receive batch.
    /// The client has a connection, or the data is in the ring of the kernel path.
    pub(crate) fn peer_bytes(self, verdict: Verdict, data: &[u8], to: &mut impl Connections<N>) {
        match verdict {
            Verdict::ToClient { socket, client, from, header, padding, meta } => {
                let written = self.egress.header();
                let pieces = [&written[..usize::from(header)], data, zeros(padding)];
                if has_connection(socket) {
                    return to.send(self, socket, Message { pieces, meta, sent: Sent::ToClient });
                }
                // The client has moved from a connection to a listener.
                let Some(listener) = self.sockets.listener(socket) else {
                    unreachable!("the server names sockets that clients came by");
                };
                let flow = listener.flow(socket, client, from, meta);
                let ways = (self.rx, self.sockets);
                self.egress.datagram(flow, &pieces, Sent::ToClient, ways);
            }
            Verdict::Drop(reason) => self.egress.dropped(reason),
            Verdict::Reply { .. }
            | Verdict::ReplyFrom { .. }
            | Verdict::ToPeer { .. }
            | Verdict::Wait
            | Verdict::Hold
            | Verdict::Queued => unreachable!("peers send no requests: {verdict:?}"),
        }
    }
}
