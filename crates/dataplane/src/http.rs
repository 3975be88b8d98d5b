//! Web clients: an answer at once, so that nobody waits for one.

use control::{Leg, Series};
use turn_session::{HttpRequest, classify_request};
use turn_types::SocketId;

use crate::streams::State;
use crate::tally::Sent;
use crate::worker::Worker;

/// What somebody is told who takes the port for a web server's.
const NOT_A_WEB_SERVER: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Content-Length: 42\r\nConnection: close\r\n\r\nThis is a STUN and TURN server, no other.\n";

impl Worker {
    /// Answers what stands from `start` on in a message that was read, and ends the connection.
    pub(crate) fn answer_http(&mut self, id: SocketId, (message, start): (usize, usize)) {
        let request = &self.rx.message(message).data[start..];
        let elsewhere = match (&self.acme_redirect, classify_request(request)) {
            (Some(_), HttpRequest::Incomplete) => {
                if let Some(stream) = self.streams.get_mut(id) {
                    stream.keep(request);
                }
                return;
            }
            (Some(base), HttpRequest::Challenge(token)) => Some(redirect(base, token)),
            (None, _) | (Some(_), HttpRequest::Other) => None,
        };
        let (answer, sent) = match &elsewhere {
            Some(answer) => (answer.as_bytes(), Sent::Reply),
            None => (NOT_A_WEB_SERVER, Sent::ErrorReply),
        };
        self.observer.count(Series::Packets(Leg::FromClients), 1);
        self.egress.to_stream(&mut self.streams, id, [answer, &[], &[]], sent);
        // All of it fits into the buffer of a new connection.
        self.write_stream(id);
        if let Some(stream) = self.streams.get_mut(id) {
            stream.state = State::Ending;
            stream.heard = self.now.instant;
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
