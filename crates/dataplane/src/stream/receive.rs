//! Input of connections, split into messages for the server.

use control::{Histogram, Leg, Series, StreamEnd};
use linux_net::{FILL_BYTES, RxBatch};
use stun_wire::{Cut, MESSAGE_LEN_MAX};
use turn_proto::{DropReason, Verdict};
use turn_session::{StreamProtocol, detect_protocol, proxy_protocol};
use turn_types::{ClientPath, ConnectionId, IpMeta, SocketId};

use super::connection::ReadError;
use super::{Input, State, Streams};
use crate::context::{Context, Message};
use crate::egress::Datagram;
use crate::io::{Net, StreamIo as _};
use crate::limits::{MESSAGES_PER_LOOK, MESSAGES_PER_READ, UNAUTHENTICATED_MESSAGE_BYTES};

/// Next step after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadNext {
    /// Wait for epoll.
    Wait,
    /// Read again, because TLS may have more data.
    Again,
    /// Read as a pipe: the bytes are for this connection of a peer.
    Pipe(ConnectionId),
}

/// Messages taken from one read.
#[derive(Default)]
struct Taken {
    messages: u64,
    bytes: usize,
    /// Number of these requests with a pending answer.
    waiting: u32,
    /// Reason to close the connection.
    end: Option<StreamEnd>,
    /// True if a ConnectionBind is pending: the following bytes may be data.
    held: bool,
    /// True if further messages wait for the next iteration.
    is_cut_off: bool,
}

/// Unserved bytes of a message in the receive batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unread {
    /// Index of the message.
    pub(super) message: usize,
    /// Offset of the first byte in the message.
    pub(super) start: usize,
}

impl<N: Net> Streams<N> {
    /// Reads a connection once, and serves the messages. The batch must have space for one read.
    pub(crate) fn receive(&mut self, cx: &mut Context<N>, id: SocketId) -> ReadNext {
        let mut work = None;
        let Some(stream) = self.table.get_mut(id) else { return ReadNext::Wait };
        match stream.state {
            State::Data(connection) => return ReadNext::Pipe(connection),
            State::Held => return self.check_error(cx, id),
            _ if stream.is_paused => return self.check_error(cx, id),
            // `serve_partial` handles the stored messages first.
            _ if stream.has_unserved() && stream.takes_messages() => return ReadNext::Wait,
            State::Open if !stream.takes_messages() => return self.stop_reading(cx, id),
            _ if stream.is_handshaking() => match self.continue_tls(cx, id) {
                Some(begun) => work = Some(begun),
                // epoll reports the connection again.
                None => return ReadNext::Wait,
            },
            State::Proxied | State::New | State::Open | State::Answering | State::Ending => {}
        }
        let Some(stream) = self.table.get_mut(id) else { return ReadNext::Wait };
        let is_served = cx.server.serves(&stream.path.five_tuple);
        let most = if is_served { FILL_BYTES } else { UNAUTHENTICATED_MESSAGE_BYTES };
        let input = stream.read(&mut cx.rx, &mut cx.scratch, most);
        let (more, wants_write) = (stream.may_hold_more(), stream.wants_write());
        let (done, opened) = (input.is_ok() && !stream.is_handshaking(), stream.opened);
        let bytes = input_bytes(&input, &cx.rx);
        self.spend_read(cx, id, bytes);
        if let Some(work) = work {
            cx.end_handshake(work);
            if done {
                let took = cx.now.instant.saturating_since(opened);
                cx.observer.record_time(Histogram::TlsHandshake, took);
                self.tell_server_name(cx, id);
            }
        }
        if wants_write {
            self.write(cx, id);
        }
        match input {
            Ok(Input::Bytes(message)) => self.serve(cx, id, message),
            Ok(Input::Nothing) => return ReadNext::Wait,
            Ok(Input::Ended) => {
                self.input_ended(cx, id);
                return ReadNext::Wait;
            }
            Err(ReadError::Broken) => self.close(cx, id, StreamEnd::Broken),
            Err(ReadError::Tls(error)) => self.refuse_tls(cx, id, &error),
        }
        let is_cut_off = self.table.get_mut(id).is_none_or(|stream| stream.has_input());
        if more && !is_cut_off { ReadNext::Again } else { ReadNext::Wait }
    }

    /// Serves the stored messages of a connection after deferred processing.
    pub(crate) fn serve_partial(&mut self, cx: &mut Context<N>, id: SocketId) {
        let Some(stream) = self.table.get_mut(id) else { return };
        // A new connection may have started TLS in an iteration without time for the handshake.
        if matches!(stream.state, State::New | State::Open)
            && stream.takes_messages()
            && let Some(message) = stream.reread(&mut cx.rx)
        {
            self.serve(cx, id, message);
        }
    }

    /// Stops reading a connection until the client has read answers.
    fn stop_reading(&mut self, cx: &mut Context<N>, id: SocketId) -> ReadNext {
        if !self.rewatch(cx, id) {
            self.close(cx, id, StreamEnd::Broken);
        }
        self.check_error(cx, id)
    }

    /// Closes a connection that is not read, if the connection has failed. epoll reports such a
    /// connection only for errors.
    fn check_error(&mut self, cx: &mut Context<N>, id: SocketId) -> ReadNext {
        if let Some(stream) = self.table.get_mut(id)
            && stream.socket.take_error().is_some()
        {
            self.close(cx, id, StreamEnd::Broken);
        }
        ReadNext::Wait
    }

    /// Closes a connection after the client has ended its direction, and after the pending answers.
    fn input_ended(&mut self, cx: &mut Context<N>, id: SocketId) {
        let Some(stream) = self.table.get_mut(id) else { return };
        if stream.state == State::Open && stream.owes_answers() {
            stream.state = State::Answering;
            stream.last_message = cx.now.instant;
            if self.rewatch(cx, id) {
                return;
            }
        }
        self.close(cx, id, StreamEnd::ByClient);
    }

    /// Serves the bytes of a read.
    fn serve(&mut self, cx: &mut Context<N>, id: SocketId, message: usize) {
        let Some(stream) = self.table.get_mut(id) else { return };
        let mut start = 0;
        if stream.state == State::Proxied {
            match self.take_proxy_header(cx, id, message) {
                Some(len) if len < cx.rx.message(message).data.len() => start = len,
                Some(_) | None => return,
            }
        }
        let Some(stream) = self.table.get_mut(id) else { return };
        let (path, state, is_tls) = (stream.path, stream.state, stream.may_hold_more());
        let unread = Unread { message, start };
        let bytes = &cx.rx.message(message).data[start..];
        if state == State::New && start == 0 && !is_tls && proxy_protocol::is_header(bytes) {
            return self.refuse_proxy_header(cx, id);
        }
        match (state, detect_protocol(&cx.rx.message(message).data[start..])) {
            (State::Ending | State::Answering | State::Held | State::Data(_), _) => {}
            (State::New, Some(StreamProtocol::Http)) => self.answer_http(cx, id, unread),
            (State::New, Some(StreamProtocol::Tls)) if !is_tls => self.begin_tls(cx, id, unread),
            (State::Proxied | State::New | State::Open, Some(_))
                if !is_tls && !self.settings.plain =>
            {
                self.close(cx, id, StreamEnd::TcpNotServed);
            }
            (State::Proxied | State::New | State::Open, _) => {
                let taken = self.take_messages(cx, &path, unread);
                self.took_messages(cx, id, unread, &taken);
            }
        }
    }

    /// Passes the complete messages of a read to the server.
    fn take_messages(
        &mut self,
        cx: &mut Context<N>,
        path: &ClientPath,
        Unread { message, start }: Unread,
    ) -> Taken {
        let mut taken = Taken::default();
        while taken.messages < MESSAGES_PER_READ {
            let is_look = taken.messages > 0 && taken.messages.is_multiple_of(MESSAGES_PER_LOOK);
            if is_look && !cx.input.has_time(&cx.net) {
                break;
            }
            let start = start + taken.bytes;
            let bytes = &cx.rx.message(message).data[start..];
            let (len, padded_len) = match cx.server.next_message(bytes) {
                Cut::Message { len, padded_len } => (len, padded_len),
                Cut::NeedMore { at_least } => {
                    taken.end = too_long(cx, path, at_least);
                    return taken;
                }
                Cut::Garbage => {
                    taken.messages += 1;
                    cx.egress.dropped(DropReason::NotStun);
                    taken.end = Some(StreamEnd::NotStun);
                    return taken;
                }
            };
            cx.make_room();
            let packet = &cx.rx.message(message).data[start..start + len];
            let verdict =
                cx.server.handle_client(cx.now, path, IpMeta::DEFAULT, packet, &mut cx.reply);
            let datagram = Datagram { message, start, len };
            if let Some(reply) = cx.egress.client_verdict(verdict, datagram, &cx.sockets) {
                let message = Message::plain(&cx.reply[..reply.len], reply.sent);
                self.queue(&cx.egress, path.socket, message);
            }
            taken.waiting += u32::from(matches!(verdict, Verdict::Wait | Verdict::Queued));
            taken.messages += 1;
            taken.bytes += padded_len;
            if verdict == Verdict::Hold {
                taken.held = true;
                return taken;
            }
        }
        taken.is_cut_off = start + taken.bytes < cx.rx.message(message).data.len();
        taken
    }

    /// Counts the messages of a read, and stores the remaining bytes.
    fn took_messages(
        &mut self,
        cx: &mut Context<N>,
        id: SocketId,
        Unread { message, start }: Unread,
        taken: &Taken,
    ) {
        cx.input.spend_messages(taken.messages as usize);
        cx.observer.count(Series::Packets(Leg::FromClients), taken.messages);
        cx.observer.count(Series::Bytes(Leg::FromClients), taken.bytes as u64);
        if let Some(stream) = self.table.get_mut(id) {
            stream.waiting += taken.waiting;
            if taken.messages > 0 {
                stream.last_message = cx.now.instant;
                stream.state = if taken.held { State::Held } else { State::Open };
            }
            let rest = &cx.rx.message(message).data[start + taken.bytes..];
            if taken.is_cut_off {
                stream.cut_off(rest);
            } else {
                stream.keep(rest);
            }
        }
        if let Some(end) = taken.end {
            self.close(cx, id, end);
        } else if taken.held && !self.rewatch(cx, id) {
            self.close(cx, id, StreamEnd::Broken);
        }
    }
}

/// Returns the number of bytes of a read.
pub(crate) fn input_bytes(input: &Result<Input, ReadError>, rx: &RxBatch) -> usize {
    match input {
        Ok(Input::Bytes(message)) => rx.message(*message).data.len(),
        Ok(Input::Nothing | Input::Ended) | Err(_) => 0,
    }
}

/// Returns the reason to close a connection for the length of a message. Clients without an
/// allocation need no long messages, and the server would have to store incomplete long messages.
fn too_long<N: Net>(cx: &mut Context<N>, path: &ClientPath, len: usize) -> Option<StreamEnd> {
    const { assert!(UNAUTHENTICATED_MESSAGE_BYTES <= MESSAGE_LEN_MAX) };
    let too_long = len > UNAUTHENTICATED_MESSAGE_BYTES && !cx.server.serves(&path.five_tuple);
    too_long.then_some(StreamEnd::TooLong)
}
