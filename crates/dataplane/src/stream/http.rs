//! HTTP requests on a STUN port. Each request gets an immediate response, and the connection is
//! closed.

use control::{Leg, Series};
use turn_session::{HttpRequest, TlsConfig, classify_request};
use turn_types::SocketId;

use super::receive::Unread;
use super::{State, Streams};
use crate::context::{Context, Message};
use crate::io::{Net, StreamIo as _};
use crate::report::Sent;

/// Response to browsers.
const NOT_A_WEB_SERVER: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Content-Length: 42\r\nConnection: close\r\n\r\nThis is a STUN and TURN server, no other.\n";

impl<N: Net> Streams<N> {
    /// Responds to the request at `start` of a message, and closes the connection.
    pub(super) fn answer_http(
        &mut self,
        cx: &mut Context<N>,
        id: SocketId,
        Unread { message, start }: Unread,
    ) {
        let request = &cx.rx.message(message).data[start..];
        let challenge = match classify_request(request) {
            HttpRequest::Incomplete if self.expects_challenge() => {
                if let Some(stream) = self.table.get_mut(id) {
                    stream.keep(request);
                }
                return;
            }
            HttpRequest::Challenge(token) => self.answer_challenge(token),
            HttpRequest::Incomplete | HttpRequest::Other => None,
        };
        let answer = match &challenge {
            Some(answer) => Message::plain(answer.as_bytes(), Sent::Reply),
            None => Message::plain(NOT_A_WEB_SERVER, Sent::ErrorReply),
        };
        cx.observer.count(Series::Packets(Leg::FromClients), 1);
        self.queue(&cx.egress, id, answer);
        // The response fits into the send buffer of a new connection.
        self.write(cx, id);
        if let Some(stream) = self.table.get_mut(id) {
            stream.state = State::Ending;
            stream.last_message = cx.now.instant;
            stream.socket.end_sending();
        }
    }

    /// Returns true if a certificate authority may send a challenge.
    fn expects_challenge(&self) -> bool {
        let settings = &self.settings;
        settings.acme_redirect.is_some()
            || settings.tls.as_ref().is_some_and(TlsConfig::expects_challenge)
    }

    /// Returns the response to an authority's challenge: the key authorization of this server's
    /// order, or a redirection.
    fn answer_challenge(&self, token: &str) -> Option<String> {
        let own = self.settings.tls.as_ref().and_then(|tls| tls.key_authorization(token));
        let elsewhere = || self.settings.acme_redirect.as_ref().map(|base| redirect(base, token));
        own.map(|authorization| found(&authorization)).or_else(elsewhere)
    }
}

/// Returns the response of RFC 8555 §8.3.
fn found(key_authorization: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{key_authorization}",
        key_authorization.len()
    )
}

fn redirect(base: &str, token: &str) -> String {
    format!(
        "HTTP/1.1 301 Moved Permanently\r\nLocation: {base}{token}\r\nContent-Length: 0\r\n\
         Connection: close\r\n\r\n"
    )
}
