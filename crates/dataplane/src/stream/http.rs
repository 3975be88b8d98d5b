//! HTTP requests on a STUN port: answered at once, and the connection closed.

use control::{Leg, Series};
use turn_session::{HttpRequest, classify_request};
use turn_types::SocketId;

use super::receive::Unread;
use super::{State, Streams};
use crate::context::{Context, Message};
use crate::io::{Net, StreamIo as _};
use crate::report::Sent;

/// Answer to browsers.
const NOT_A_WEB_SERVER: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Content-Length: 42\r\nConnection: close\r\n\r\nThis is a STUN and TURN server, no other.\n";

impl<N: Net> Streams<N> {
    /// Answers the request that begins at `start` of a message, and ends the connection.
    pub(super) fn answer_http(
        &mut self,
        cx: &mut Context<N>,
        id: SocketId,
        Unread { message, start }: Unread,
    ) {
        let request = &cx.rx.message(message).data[start..];
        let redirect = match (&self.settings.acme_redirect, classify_request(request)) {
            (Some(_), HttpRequest::Incomplete) => {
                if let Some(stream) = self.table.get_mut(id) {
                    stream.keep(request);
                }
                return;
            }
            (Some(base), HttpRequest::Challenge(token)) => Some(redirect(base, token)),
            (None, _) | (Some(_), HttpRequest::Other) => None,
        };
        let answer = match &redirect {
            Some(answer) => Message::plain(answer.as_bytes(), Sent::Reply),
            None => Message::plain(NOT_A_WEB_SERVER, Sent::ErrorReply),
        };
        cx.observer.count(Series::Packets(Leg::FromClients), 1);
        self.queue(&cx.egress, id, answer);
        // All of it fits into the buffer of a new connection.
        self.write(cx, id);
        if let Some(stream) = self.table.get_mut(id) {
            stream.state = State::Ending;
            stream.last_message = cx.now.instant;
            stream.socket.end_sending();
        }
    }
}

fn redirect(base: &str, token: &str) -> String {
    format!(
        "HTTP/1.1 301 Moved Permanently\r\nLocation: {base}{token}\r\nContent-Length: 0\r\n\
         Connection: close\r\n\r\n"
    )
}
