//! Connections: accepted, read, written, ended.

use std::net::SocketAddr;

use control::{Leg, Series, StreamEnd, StreamRefusal};
use linux_net::TcpStream;
use stun_wire::{Cut, MESSAGE_LEN_MAX};
use turn_proto::{DropReason, Verdict};
use turn_session::{StreamProtocol, detect_protocol, proxy_protocol};
use turn_types::{ClientAddr, ClientPath, FiveTuple, IpMeta, ServerAddr, SocketId, Transport};

use crate::admission::NoPlace;
use crate::egress::{Back, Datagram};
use crate::limits::{
    ACCEPTS_PER_TURN, READS_PER_TURN, STRANGERS_MESSAGE_BYTES, SWEEP_STREAMS_EVERY,
};
use crate::observe::Trouble;
use crate::streams::{Heard, ReadError, State, Stream};
use crate::worker::Worker;

/// What was found in a stream's bytes.
struct Taken {
    messages: u64,
    /// Bytes of these.
    bytes: usize,
    /// Requests among them that wait for something outside.
    waiting: u32,
    /// The connection is to be closed.
    end: Option<StreamEnd>,
    /// What follows may be no messages.
    held: bool,
}

const fn refusal(why: NoPlace) -> StreamRefusal {
    match why {
        NoPlace::Total => StreamRefusal::Total,
        NoPlace::Address => StreamRefusal::Address,
    }
}

impl Worker {
    /// Takes connections that wait; more are reported again.
    pub(crate) fn accept(&mut self, place: u32) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(acceptor) = self.sockets.acceptor(place) else { return };
            let (socket, from) = match acceptor.accept() {
                Ok(Some(accepted)) => accepted,
                Ok(None) => return,
                Err(error) => {
                    self.observer.count(Series::StreamsRefused(StreamRefusal::Resources), 1);
                    self.observer.warn(self.now.instant, Trouble::Accept, &error);
                    // It would be reported at each turn. The next sweep tries again.
                    self.sockets.rest(place);
                    self.sweep_streams_at = Some(self.now.instant + SWEEP_STREAMS_EVERY);
                    return;
                }
            };
            if let Err(why) = self.enter(socket, from) {
                // Closed with its socket.
                self.observer.count(Series::StreamsRefused(why), 1);
            }
        }
    }

    fn enter(&mut self, socket: TcpStream, from: SocketAddr) -> Result<(), StreamRefusal> {
        let now = self.now.instant;
        let server = socket.local_addr().map_err(|_| StreamRefusal::Resources)?;
        let is_proxy = self.proxies.iter().any(|prefix| prefix.contains(from.ip()));
        let client = (!is_proxy).then(|| from.ip());
        let place = self.admit_stream(client).map_err(refusal)?;
        let id = self.streams.next_id().ok_or(StreamRefusal::Total)?;
        if let Err(error) = self.sockets.watch(&socket, id) {
            self.observer.warn(now, Trouble::Accept, &error);
            return Err(StreamRefusal::Resources);
        }
        let five_tuple = FiveTuple {
            transport: Transport::Tcp,
            client: ClientAddr(from),
            server: ServerAddr(server),
        };
        self.observer.count(Series::StreamsAccepted, 1);
        let path = ClientPath { five_tuple, socket: id };
        let mut stream = Stream::new(socket, path, now, place);
        if is_proxy {
            stream.state = State::Proxied;
        }
        self.streams.insert(Box::new(stream));
        if !is_proxy {
            self.take_addresses(id);
        }
        Ok(())
    }

    /// Gives a stream its addresses. One that had them before has ended, without our knowing yet; it must
    /// neither say nor end anything in the new one's name.
    pub(crate) fn take_addresses(&mut self, id: SocketId) {
        if let Some(before) = self.streams.with_addresses_of(id) {
            self.close_stream(before, StreamEnd::Replaced);
        }
        self.streams.take_addresses(id);
    }

    /// Takes what a load balancer says first, and returns how many bytes that is; `None`: it has not, or
    /// not as it has to, or for nobody who may come.
    fn take_introduction(&mut self, id: SocketId, message: usize) -> Option<usize> {
        let stream = self.streams.get_mut(id)?;
        let bytes = self.rx.message(message).data;
        let header = match proxy_protocol::read(bytes) {
            Ok(Some(header)) => header,
            Ok(None) => {
                stream.keep(bytes);
                return None;
            }
            Err(error) => {
                let proxy = stream.path.five_tuple.client;
                self.observer.warn(
                    self.now.instant,
                    Trouble::Proxy,
                    &format_args!("{proxy}: {error}"),
                );
                self.close_stream(id, StreamEnd::NoProxyHeader);
                return None;
            }
        };
        if let Err(why) = stream.introduced(header.ends) {
            self.observer.count(Series::StreamsRefused(refusal(why)), 1);
            self.close_stream(id, StreamEnd::ByUs);
            return None;
        }
        self.take_addresses(id);
        Some(header.len)
    }

    /// Reads a stream, once, or as often as it holds more: else it is reported again.
    pub(crate) fn receive_from_stream(&mut self, id: SocketId) {
        for _ in 0..READS_PER_TURN {
            self.make_room_to_receive();
            let mut work = None;
            let Some(stream) = self.streams.get_mut(id) else { return };
            match stream.state {
                State::Data(connection) => return self.hear_client(id, connection),
                State::Held => return self.look_at_held(id),
                _ if stream.is_paused => return self.look_at_held(id),
                _ if stream.is_handshaking() => match self.continue_tls(id) {
                    Some(begun) => work = Some(begun),
                    // The kernel tells of it again.
                    None => return,
                },
                State::Proxied | State::New | State::Open | State::Answering | State::Ending => {}
            }
            let Self { streams, rx, scratch, .. } = self;
            let Some(stream) = streams.get_mut(id) else { return };
            let (heard, more) = (stream.read(rx, scratch), stream.may_hold_more());
            if let Some(work) = work {
                self.handshakes.done(self.now.instant, work);
            }
            let Some(stream) = self.streams.get_mut(id) else { return };
            if stream.wants_write() {
                self.write_stream(id);
            }
            match heard {
                Ok(Heard::Bytes(message)) => self.serve_stream(id, message),
                Ok(Heard::Nothing) => return,
                Ok(Heard::Ended) => return self.heard_end(id),
                Err(ReadError::Broken) => return self.close_stream(id, StreamEnd::Broken),
                Err(ReadError::Tls(error)) => return self.refuse_tls(id, &error),
            }
            if !more {
                return;
            }
        }
        // It may hold more, of which the kernel does not tell.
        self.released.push(id);
    }

    /// A stream that is not read is told of only for its errors.
    fn look_at_held(&mut self, id: SocketId) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if stream.socket.take_error().is_some() {
            self.close_stream(id, StreamEnd::Broken);
        }
    }

    /// The other end sends nothing more: it goes when it has had all its answers.
    fn heard_end(&mut self, id: SocketId) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if stream.state == State::Open && stream.owes_answers() {
            stream.state = State::Answering;
            stream.heard = self.now.instant;
            let changed = self.sockets.change(&stream.socket, id, stream.interest());
            if changed.is_ok() {
                return;
            }
        }
        self.close_stream(id, StreamEnd::ByClient);
    }

    /// Takes a stream's bytes.
    pub(crate) fn serve_stream(&mut self, id: SocketId, message: usize) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let mut start = 0;
        if stream.state == State::Proxied {
            match self.take_introduction(id, message) {
                Some(len) if len < self.rx.message(message).data.len() => start = len,
                Some(_) | None => return,
            }
        }
        let Some(stream) = self.streams.get_mut(id) else { return };
        let (path, state, is_tls) = (stream.path, stream.state, stream.may_hold_more());
        let spoken = detect_protocol(&self.rx.message(message).data[start..]);
        match (state, spoken) {
            (State::Ending | State::Answering | State::Held | State::Data(_), _) => {}
            (State::New, Some(StreamProtocol::Http)) => self.answer_http(id, (message, start)),
            (State::New, Some(StreamProtocol::Tls)) if !is_tls => {
                self.begin_tls(id, (message, start))
            }
            (State::Proxied | State::New | State::Open, _) => {
                let taken = self.take_messages(&path, (message, start));
                self.took_messages(id, (message, start), &taken);
            }
        }
    }

    /// Takes the whole messages of a stream's bytes.
    fn take_messages(&mut self, path: &ClientPath, (message, start): (usize, usize)) -> Taken {
        let (id, now) = (path.socket, self.now);
        let mut taken = Taken { messages: 0, bytes: 0, waiting: 0, end: None, held: false };
        loop {
            let start = start + taken.bytes;
            let bytes = &self.rx.message(message).data[start..];
            let (len, padded_len) = match self.server.next_message(bytes) {
                Cut::Message { len, padded_len } => (len, padded_len),
                Cut::NeedMore { at_least } => {
                    taken.end = self.too_long(path, at_least);
                    return taken;
                }
                Cut::Garbage => {
                    taken.messages += 1;
                    self.egress.dropped(DropReason::NotStun);
                    taken.end = Some(StreamEnd::NotStun);
                    return taken;
                }
            };
            self.egress.make_room(&self.rx, &self.sockets);
            let packet = &self.rx.message(message).data[start..start + len];
            let reply = self.egress.reply_buffer();
            let verdict = self.server.handle_client(now, path, IpMeta::DEFAULT, packet, reply);
            let back = Back::Stream(&mut self.streams, id);
            self.egress.client_packet(
                verdict,
                Datagram { message, start, len },
                (&self.sockets, back),
            );
            taken.waiting += u32::from(matches!(verdict, Verdict::Wait | Verdict::Queued));
            taken.messages += 1;
            taken.bytes += padded_len;
            if verdict == Verdict::Hold {
                taken.held = true;
                return taken;
            }
        }
    }

    /// Does what follows from it.
    fn took_messages(&mut self, id: SocketId, (message, start): (usize, usize), taken: &Taken) {
        self.observer.count(Series::Packets(Leg::FromClients), taken.messages);
        self.observer.count(Series::Bytes(Leg::FromClients), taken.bytes as u64);
        if let Some(stream) = self.streams.get_mut(id) {
            stream.waiting += taken.waiting;
            if taken.messages > 0 {
                stream.heard = self.now.instant;
                stream.state = if taken.held { State::Held } else { State::Open };
            }
            stream.keep(&self.rx.message(message).data[start + taken.bytes..]);
        }
        self.settle(self.now);
        if taken.held {
            self.hold(id);
        }
        if let Some(end) = taken.end {
            self.close_stream(id, end);
        }
    }

    /// Reads no more of a stream, unless its request was answered already or has taken it away.
    fn hold(&mut self, id: SocketId) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if stream.state == State::Held
            && self.sockets.change(&stream.socket, id, stream.interest()).is_err()
        {
            self.close_stream(id, StreamEnd::Broken);
        }
    }

    /// Who has no allocation has no use for long messages, and could have us keep their beginnings.
    fn too_long(&mut self, path: &ClientPath, len: usize) -> Option<StreamEnd> {
        const { assert!(STRANGERS_MESSAGE_BYTES <= MESSAGE_LEN_MAX) };
        let too_long = len > STRANGERS_MESSAGE_BYTES && !self.server.serves(&path.five_tuple);
        too_long.then_some(StreamEnd::TooLong)
    }

    /// Writes to all streams that were given something.
    pub(crate) fn send_to_streams(&mut self) {
        while let Some(id) = self.streams.pop_unsent() {
            self.write_stream(id);
        }
        while let Some(id) = self.streams.pop_stuck() {
            self.close_stream(id, StreamEnd::Stuck);
        }
    }

    /// Writes to a stream what it takes.
    pub(crate) fn write_stream(&mut self, id: SocketId) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let before = stream.interest();
        let egress = &mut self.egress;
        let written = stream.write(self.now.instant, |tag| egress.sent(tag));
        egress.publish();
        let after = stream.interest();
        let told = written.and_then(|()| {
            if before == after { Ok(()) } else { self.sockets.change(&stream.socket, id, after) }
        });
        if told.is_err() {
            self.close_stream(id, StreamEnd::Broken);
        } else if let State::Data(connection) = stream.state {
            self.settle_pipe(connection);
        } else if stream.state == State::Answering && !stream.owes_answers() {
            self.close_stream(id, StreamEnd::ByClient);
        }
    }

    /// Ends a connection and what the client has by it.
    pub(crate) fn close_stream(&mut self, id: SocketId, end: StreamEnd) {
        let has_addresses = self.streams.has_addresses(id);
        let Some(mut stream) = self.streams.remove(id) else { return };
        if let State::Data(connection) = stream.state {
            self.server.connection_ended(connection);
            // Unless all that was said has been passed on, it is to hear that something is missing.
            if let Some(peer) = self.peers.remove(connection)
                && !peer.is_done()
            {
                peer.socket.reset();
            }
        }
        for tag in stream.give_up() {
            self.egress.unsent(tag, DropReason::StreamClosed);
        }
        let FiveTuple { client, server, .. } = stream.path.five_tuple;
        let seconds = self.now.instant.saturating_since(stream.opened).as_secs();
        self.observer.stream_ended(self.now.instant, (client, server), end, seconds);
        if has_addresses {
            self.server.close(self.now, &stream.path.five_tuple);
        }
        if end == StreamEnd::PeerBroken {
            stream.reset();
        } else {
            stream.part();
        }
        self.settle(self.now);
    }
}
