//! Receives batches of datagrams, and passes each datagram to the server.

use std::ops::Range;

use control::{Leg, Series};
use linux_net::{Flow, Part, RxBatch};
use turn_proto::{DropReason, Verdict};
use turn_session::dtls::is_dtls;
use turn_types::{ClientAddr, IpMeta, Now, PeerAddr, RelayId, ServerAddr, SocketId};

use crate::context::{Connections, Context, Output};
use crate::egress::{Datagram, Egress, Reply};
use crate::io::{Net, UdpIo};
use crate::limits::{MESSAGES_PER_RECEIVE, RING_ROUNDS_PER_TURN};
use crate::offload::Offload;
use crate::report::{Condition, Observer};
use crate::sockets::{Arrivals, Losses, Sockets};
use crate::token::has_connection;

/// DTLS datagram of a receive batch, served after the other datagrams of the batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DtlsDatagram {
    pub(crate) listener: SocketId,
    pub(crate) datagram: Datagram,
}

/// Receives one batch at a listener. DTLS datagrams are appended to `dtls`, if present. With
/// `only_dtls` all other datagrams are dropped. Returns true if more may wait.
pub(crate) fn receive_from_clients<N: Net>(
    cx: &mut Context<N>,
    id: SocketId,
    only_dtls: bool,
    mut dtls: Option<&mut Vec<DtlsDatagram>>,
) -> bool {
    let Context { rx, egress, server, sockets, observer, now, .. } = cx;
    let sockets = &*sockets;
    let Some(listener) = sockets.listener(id) else { return false };
    let mut batch = Intake { rx, observer, now: *now };
    let messages = batch.receive(Leg::FromClients, &listener.socket, &listener.losses);
    let more = messages.len() == MESSAGES_PER_RECEIVE;
    let mut arrivals = Arrivals::default();
    for index in messages {
        let message = rx.message(index);
        arrivals.message(message.from, message.to);
        let path = listener.path(id, &message);
        let back = listener.flow_back(&path);
        for (start, packet) in message.segments() {
            let is_alike = arrivals.datagram();
            if message.truncated {
                egress.dropped(DropReason::Truncated);
                continue;
            }
            if only_dtls && !is_dtls(packet) {
                egress.dropped(DropReason::UdpNotServed);
                continue;
            }
            egress.make_room(rx, sockets);
            let reply = egress.reply_buffer();
            let verdict = server.handle_client(*now, &path, message.meta, packet, reply);
            let datagram = Datagram { message: index, start, len: packet.len() };
            if verdict == Verdict::Drop(DropReason::NotStun)
                && let Some(dtls) = dtls.as_deref_mut()
                && is_dtls(packet)
            {
                dtls.push(DtlsDatagram { listener: id, datagram });
                continue;
            }
            match verdict {
                Verdict::Reply { len, error } => egress.reply(back, Reply::new(len, error)),
                Verdict::ReplyFrom { len, padding, from, to_port } => {
                    let to = ClientAddr((back.to.ip(), to_port).into());
                    match flow_from(sockets, from, to) {
                        Some(flow) => egress.padded_reply(flow, len, padding),
                        None => egress.dropped(DropReason::SendRefused),
                    }
                }
                Verdict::ToPeer { .. } => {
                    // Other packets, and clients that alternate, provide no evidence about a
                    // program with routes.
                    if is_alike {
                        arrivals.passed();
                    }
                    egress.client_verdict(verdict, datagram, sockets);
                }
                Verdict::Wait
                | Verdict::Hold
                | Verdict::Queued
                | Verdict::Drop(_)
                | Verdict::ToClient { .. } => {
                    egress.client_verdict(verdict, datagram, sockets);
                }
            }
        }
    }
    listener.gro.received(now.instant, &arrivals, &listener.socket);
    more
}

/// Returns the flow of an answer from another address of the server (RFC 5780). Returns `None` if
/// the address could not be bound at the start of the server, as logged then.
fn flow_from<N: Net>(sockets: &Sockets<N>, from: ServerAddr, to: ClientAddr) -> Option<Flow> {
    let (id, listener) = sockets.listener_at(from)?;
    Some(listener.flow(id, to, from.ip(), IpMeta::DEFAULT))
}

/// Receives one batch at a relay socket. Returns true if more may wait.
///
/// Earlier datagrams in the ring are served before the batch. The kernel adds a peer's further
/// datagrams to the ring only after the worker has received the batch from the socket.
pub(crate) fn receive_from_peers<N: Net>(
    cx: &mut Context<N>,
    clients: &mut impl Connections<N>,
    number: RelayId,
    offload: &mut Offload<N>,
) -> bool {
    let Context { rx, sockets, observer, now, .. } = cx;
    let Some(socket) = sockets.relay(number) else { return false };
    let mut batch = Intake { rx, observer, now: *now };
    let messages = batch.receive(Leg::FromPeers, &socket.socket, &socket.losses);
    let more = messages.len() == MESSAGES_PER_RECEIVE;
    if !messages.is_empty() && offload.fills_ring() {
        for _ in 0..RING_ROUNDS_PER_TURN {
            if offload.receive(cx, clients) != Some(true) {
                break;
            }
        }
    }
    let Context { rx, egress, server, sockets, now, .. } = cx;
    let sockets = &*sockets;
    let Some(socket) = sockets.relay(number) else { return false };
    let sharing = sockets.relays_of(number);
    let mut arrivals = Arrivals::default();
    for index in messages {
        let message = rx.message(index);
        let peer = PeerAddr(message.from);
        arrivals.message(message.from, message.to);
        let relay = match sharing {
            None => number,
            Some(relays) => match message.to.and_then(|to| relays.get(&to)) {
                Some(relay) => *relay,
                None => {
                    message.segments().for_each(|_| egress.dropped(DropReason::RelayClosed));
                    continue;
                }
            },
        };
        offload.came_by_socket(relay, message.from, message.segments().count() as u32);
        for (start, packet) in message.segments() {
            arrivals.datagram();
            arrivals.passed();
            if message.truncated {
                egress.dropped(DropReason::Truncated);
                continue;
            }
            egress.make_room(rx, sockets);
            let header = egress.header_buffer();
            let verdict = server.handle_peer(*now, relay, peer, message.meta, packet.len(), header);
            let data = Part::Rx { message: index, start, len: packet.len() };
            if !to_listener(egress, sockets, verdict, data) {
                Output { egress, rx, sockets }.peer_bytes(verdict, packet, clients);
            }
        }
    }
    socket.gro.received(now.instant, &arrivals, &socket.socket);
    more
}

/// Sends a peer's datagram from the receive batch to a client of a listener. Returns false for
/// other verdicts.
fn to_listener<N: Net>(
    egress: &mut Egress,
    sockets: &Sockets<N>,
    verdict: Verdict,
    data: Part,
) -> bool {
    let Verdict::ToClient { socket, client, from, header, padding, meta } = verdict else {
        return false;
    };
    if has_connection(socket) {
        return false;
    }
    let Some(listener) = sockets.listener(socket) else {
        unreachable!("the server names sockets that clients came by");
    };
    egress.peer_data(listener.flow(socket, client, from, meta), header, data, padding);
    true
}

/// Batch and counters of one receive call.
struct Intake<'a> {
    rx: &'a mut RxBatch,
    observer: &'a mut Observer,
    now: Now,
}

impl Intake<'_> {
    /// Receives and counts one batch, and returns the indices of the messages.
    fn receive(&mut self, leg: Leg, socket: &impl UdpIo, losses: &Losses) -> Range<usize> {
        let Self { rx, observer, now } = self;
        let (datagrams, bytes) = (rx.stats().datagrams, rx.stats().bytes);
        let messages = socket.receive(rx, MESSAGES_PER_RECEIVE).unwrap_or_else(|error| {
            observer.count(Series::ReceiveErrors, 1);
            observer.warn(now.instant, Condition::Receive, &error);
            0..0
        });
        observer.count(Series::Packets(leg), rx.stats().datagrams - datagrams);
        observer.count(Series::Bytes(leg), rx.stats().bytes - bytes);
        // The last message contains the sum of all earlier losses.
        let lost = messages.clone().last().map_or(0, |last| {
            let message = rx.message(last);
            losses.since(message.kernel_drops)
        });
        if lost > 0 {
            observer.count(Series::KernelDrops, lost);
            observer.warn(now.instant, Condition::KernelDrops, &format_args!("{lost} lost"));
        }
        messages
    }
}
