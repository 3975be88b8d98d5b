//! Output of connections: queued, written together at the end of an iteration, and closed.

use control::StreamEnd;
use turn_proto::DropReason;
use turn_session::{Outgoing, QueueFull};
use turn_types::{FiveTuple, SocketId};

use super::{PipeEvent, State, Stream, Streams};
use crate::context::{Context, Message};
use crate::egress::Egress;
use crate::io::{Net, Source};
use crate::report::{Sent, Tag};
use crate::token::Token;

impl<N: Net> Streams<N> {
    /// Queues a message to a client, and counts data that is dropped to make space.
    pub(crate) fn queue(&mut self, egress: &Egress, id: SocketId, message: Message<'_>) {
        let Message { pieces: parts, sent, .. } = message;
        let Some(stream) = self.table.get_mut(id) else {
            return egress.unsent(sent, DropReason::StreamClosed);
        };
        let tag = Tag { sent, bytes: parts.iter().map(|part| part.len()).sum() }.number();
        let droppable = matches!(sent, Sent::ToClient | Sent::IcmpReported);
        let lost = |tag| egress.unsent(Tag::of(tag).sent, DropReason::StreamBacklog);
        match stream.queue(Outgoing { parts, droppable, tag }, lost) {
            Ok(true) => self.unsent.push(id),
            Ok(false) => {}
            Err(QueueFull) => {
                self.stuck.push(id);
                egress.unsent(sent, DropReason::StreamBacklog);
            }
        }
    }

    /// Writes to all connections with new output. Returns true if such connections existed.
    pub(crate) fn write_all(&mut self, cx: &mut Context<N>) -> bool {
        let any = !(self.unsent.is_empty() && self.stuck.is_empty());
        // Connections are served in message order, because the first message has waited longest.
        let mut unsent = std::mem::take(&mut self.unsent);
        unsent.drain(..).for_each(|id| self.write(cx, id));
        // The list's memory is retained. Writing queues nothing.
        unsent.append(&mut self.unsent);
        self.unsent = unsent;
        while let Some(id) = self.stuck.pop() {
            self.close(cx, id, StreamEnd::Stuck);
        }
        any
    }

    /// Writes the bytes that a connection accepts.
    pub(crate) fn write(&mut self, cx: &mut Context<N>, id: SocketId) {
        let Some(stream) = self.table.get_mut(id) else { return };
        let (before, took_messages) = (stream.interest(), stream.takes_messages());
        let egress = &mut cx.egress;
        let written = stream.write(cx.now.instant, |tag| egress.written(tag));
        egress.publish();
        let state = stream.state;
        let may_go_on = !took_messages && stream.takes_messages();
        let is_done = state == State::Answering && !stream.owes_answers();
        let is_broken = written.is_err() || stream.interest() != before && !self.rewatch(cx, id);
        if is_broken {
            self.close(cx, id, StreamEnd::Broken);
        } else if let State::Data(connection) = state {
            self.pipes.push(PipeEvent::Written(connection));
        } else if is_done {
            self.close(cx, id, StreamEnd::ByClient);
        } else if may_go_on {
            // epoll does not report messages that were read earlier.
            self.postpone(cx, id);
        }
    }

    /// Updates the interest of a connection in epoll. Returns false on failure.
    pub(crate) fn rewatch(&mut self, cx: &Context<N>, id: SocketId) -> bool {
        let Some(stream) = self.table.get_mut(id) else { return false };
        let (token, interest) = (Token::Stream(id).number(), stream.interest());
        cx.net.rewatch(Source::Stream(&stream.socket), token, interest).is_ok()
    }

    /// Closes a connection. If the connection holds its addresses, the allocation of the client is
    /// closed as well.
    pub(crate) fn close(&mut self, cx: &mut Context<N>, id: SocketId, end: StreamEnd) {
        let holds_addresses = self.table.holds_addresses(id);
        let Some(stream) = self.table.remove(id) else { return };
        if let State::Data(connection) = stream.state {
            self.pipes.push(PipeEvent::Closed(connection));
        }
        if holds_addresses {
            cx.server.close(cx.now, &stream.path.five_tuple);
        }
        if self.is_before_commit {
            // The socket belongs to the predecessor until the commit, so the end is deferred.
            self.ended.push((stream, end));
        } else {
            finish(cx, *stream, end);
        }
    }

    /// Notes that a pending request of a connection got a response.
    pub(crate) fn answered(&mut self, id: SocketId) {
        if let Some(stream) = self.table.get_mut(id) {
            stream.waiting = stream.waiting.saturating_sub(1);
        }
    }

    /// Resumes reading messages after a failed ConnectionBind.
    pub(crate) fn release(&mut self, cx: &mut Context<N>, id: SocketId) {
        let Some(stream) = self.table.get_mut(id) else { return };
        if stream.state != State::Held {
            return;
        }
        stream.state = State::Open;
        stream.last_message = cx.now.instant;
        if !self.rewatch(cx, id) {
            return self.close(cx, id, StreamEnd::Broken);
        }
        self.reread(id);
    }
}

/// Counts the end of a connection, and closes the socket.
pub(super) fn finish<N: Net>(cx: &mut Context<N>, mut stream: Stream<N>, end: StreamEnd) {
    for tag in stream.give_up() {
        cx.egress.unsent(Tag::of(tag).sent, DropReason::StreamClosed);
    }
    let FiveTuple { client, server, .. } = stream.path.five_tuple;
    let seconds = cx.now.instant.saturating_since(stream.opened).as_secs();
    cx.observer.stream_ended(cx.now.instant, (client, server), end, seconds);
    stream.close(end);
}
