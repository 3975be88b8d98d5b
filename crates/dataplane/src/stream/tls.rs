//! TLS handshakes of connections, within the processor time for handshakes.

use std::net::IpAddr;

use control::{Series, StreamEnd};
use turn_session::{TlsConfig, TlsError};
use turn_types::SocketId;

use super::Streams;
use super::receive::Unread;
use crate::context::Context;
use crate::handshake_budget::{NoTime, Step, Work};
use crate::io::{Net, Source};
use crate::limits::{HELLO_KEPT_BYTES, PAUSED_RESUMED};
use crate::token::Token;

impl<N: Net> Streams<N> {
    /// Closes a connection after a TLS failure.
    pub(super) fn refuse_tls(&mut self, cx: &mut Context<N>, id: SocketId, error: &TlsError) {
        // Writes the alert, if the connection accepts output.
        self.write(cx, id);
        if let Some(stream) = self.table.get_mut(id) {
            let client = stream.path.five_tuple.client;
            cx.observer.tls_refused(cx.now.instant, client, error);
        }
        self.close(cx, id, StreamEnd::TlsFailed);
    }

    /// Starts TLS with the first bytes of a connection.
    pub(super) fn begin_tls(
        &mut self,
        cx: &mut Context<N>,
        id: SocketId,
        Unread { message, start }: Unread,
    ) {
        let Some(config) = self.settings.tls.clone().filter(TlsConfig::can_serve) else {
            return self.close(cx, id, StreamEnd::TlsNotServed);
        };
        let Some(stream) = self.table.get_mut(id) else { return };
        let client = stream.path.five_tuple.client.0.ip();
        let work = self.begin_tls_work(cx, client, Step::Begin);
        let Some(stream) = self.table.get_mut(id) else { return };
        let hello = &cx.rx.message(message).data[start..];
        let work = match work {
            Ok(work) => work,
            Err(_) if hello.len() > HELLO_KEPT_BYTES => {
                return self.close(cx, id, StreamEnd::TooLong);
            }
            Err(why) => {
                stream.keep(hello);
                return match why {
                    NoTime::Turn => self.reread(id),
                    NoTime::Share => self.pause(cx, id),
                };
            }
        };
        let begun = stream.begin_tls(&config, hello);
        let five_tuple = stream.path.five_tuple;
        cx.end_handshake(work);
        match begun {
            Ok(()) => {
                cx.server.close(cx.now, &five_tuple);
                self.write(cx, id);
            }
            Err(error) => self.refuse_tls(cx, id, &error),
        }
    }

    /// Passes the server name that a client requested in TLS to the server. Only a connection that
    /// holds its addresses passes the name, because closing such a connection removes the name from
    /// the server.
    pub(super) fn tell_server_name(&mut self, cx: &mut Context<N>, id: SocketId) {
        let holds_addresses = self.table.holds_addresses(id);
        if let Some(stream) = self.table.get_mut(id).filter(|_| holds_addresses)
            && let Some(name) = stream.server_name()
        {
            cx.server.set_server_name(stream.path.five_tuple, name);
        }
    }

    /// Starts the next step of a handshake. Returns `None` if no time is left. The client's bytes
    /// then remain in the kernel.
    pub(super) fn continue_tls(&mut self, cx: &mut Context<N>, id: SocketId) -> Option<Work> {
        let client = self.table.get_mut(id)?.path.five_tuple.client.0.ip();
        match self.begin_tls_work(cx, client, Step::Continue) {
            Ok(work) => return Some(work),
            Err(NoTime::Turn) => {}
            Err(NoTime::Share) => self.pause(cx, id),
        }
        None
    }

    /// Starts handshake work. Logs a warning if the client must wait.
    fn begin_tls_work(
        &self,
        cx: &mut Context<N>,
        client: IpAddr,
        step: Step,
    ) -> Result<Work, NoTime> {
        let begun = cx.begin_handshake(client, step, self.settings.admission.is_by_customer());
        begun.inspect_err(|why| cx.warn_of_handshakes(client, *why))
    }

    /// Stops reading a connection until the customer may have time again.
    fn pause(&mut self, cx: &mut Context<N>, id: SocketId) {
        let Some(stream) = self.table.get_mut(id) else { return };
        stream.is_paused = true;
        self.paused.push_back(id);
        cx.observer.count(Series::StreamsPaused, 1);
        if !self.rewatch(cx, id) {
            self.close(cx, id, StreamEnd::Broken);
        }
    }

    /// Resumes the longest-waiting paused connections, up to [`PAUSED_RESUMED`].
    pub(super) fn resume_paused(&mut self, net: &N) {
        let Self { table, reread, paused, .. } = self;
        for id in paused.drain(..PAUSED_RESUMED.min(paused.len())) {
            // The connection may be closed, and another connection may have the number.
            let Some(stream) = table.get_mut(id).filter(|stream| stream.is_paused) else {
                continue;
            };
            stream.is_paused = false;
            // The call fails only for sockets that are not watched. A deadline closes such a
            // connection.
            let interest = stream.interest();
            drop(net.rewatch(Source::Stream(&stream.socket), Token::Stream(id).number(), interest));
            reread.push(id);
        }
    }
}
