//! Accepts connections of clients and of load balancers (PROXY protocol).

use std::net::SocketAddr;

use control::{Series, StreamEnd, StreamRefusal};
use linux_net::Interest;
use turn_proto::BindRequest;
use turn_session::proxy_protocol;
use turn_types::{ClientAddr, ClientPath, FiveTuple, ServerAddr, SocketId, Transport};

use super::output::finish;
use super::{State, Stream, Streams};
use crate::admission::LimitReached;
use crate::context::Context;
use crate::input_queue::Postponement;
use crate::io::{AcceptIo as _, Net, Source, StreamIo as _};
use crate::limits::{ACCEPTS_PER_TURN, SWEEP_STREAMS_EVERY};
use crate::report::Condition;
use crate::token::Token;

const fn refusal(limit: LimitReached) -> StreamRefusal {
    match limit {
        LimitReached::Total => StreamRefusal::Total,
        LimitReached::Address => StreamRefusal::Address,
        LimitReached::Network => StreamRefusal::Network,
    }
}

impl<N: Net> Streams<N> {
    /// Accepts waiting connections. epoll reports further connections again.
    pub(crate) fn accept(&mut self, cx: &mut Context<N>, index: u32) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(acceptor) = self.acceptors.get(index as usize) else { return };
            let (socket, from) = match acceptor.accept() {
                Ok(Some(accepted)) => accepted,
                Ok(None) => return,
                Err(error) => {
                    cx.observer.count(Series::StreamsRefused(StreamRefusal::Resources), 1);
                    cx.observer.warn(cx.now.instant, Condition::Accept, &error);
                    // The error would be reported in each iteration. The next sweep tries again.
                    self.watch_acceptor(&cx.net, index, Interest::ErrorsOnly);
                    self.sweep_at = Some(cx.now.instant + SWEEP_STREAMS_EVERY);
                    return;
                }
            };
            if let Err(why) = self.open(cx, socket, from) {
                // The refused connection is closed with the socket.
                cx.observer.count(Series::StreamsRefused(why), 1);
            }
        }
    }

    fn open(
        &mut self,
        cx: &mut Context<N>,
        socket: N::Stream,
        from: SocketAddr,
    ) -> Result<(), StreamRefusal> {
        let now = cx.now.instant;
        let server = socket.local_addr().map_err(|_| StreamRefusal::Resources)?;
        let is_proxy = self.settings.proxies.iter().any(|prefix| prefix.contains(from.ip()));
        let client = (!is_proxy).then(|| from.ip());
        let permit = self.admit(cx, client).or_else(|limit| {
            let is_own = from.ip() == server.ip() && limit != LimitReached::Address;
            let own = is_own.then(|| self.settings.admission.admit_own(from.ip()));
            own.flatten().ok_or_else(|| refusal(limit))
        })?;
        let id = self.table.next_id().ok_or(StreamRefusal::Total)?;
        let token = Token::Stream(id).number();
        if let Err(error) = cx.net.watch(Source::Stream(&socket), token, Interest::Read) {
            cx.observer.warn(now, Condition::Accept, &error);
            return Err(StreamRefusal::Resources);
        }
        let five_tuple = FiveTuple {
            transport: Transport::Tcp,
            client: ClientAddr(from),
            server: ServerAddr(server),
        };
        cx.observer.count(Series::StreamsAccepted, 1);
        let mut stream = Stream::new(socket, ClientPath { five_tuple, socket: id }, now, permit);
        if is_proxy {
            stream.state = State::Proxied;
        }
        self.table.insert(Box::new(stream));
        if !is_proxy {
            self.hold_addresses(cx, id);
        }
        Ok(())
    }

    /// Marks a connection as the holder of its addresses. A previous holder is closed: that
    /// connection has ended unnoticed, and must not act on the allocation of the new connection.
    pub(super) fn hold_addresses(&mut self, cx: &mut Context<N>, id: SocketId) {
        if let Some(before) = self.table.other_with_addresses_of(id) {
            self.close(cx, before, StreamEnd::Replaced);
        }
        self.table.hold_addresses(id);
    }

    /// Takes a PROXY header and returns the header's length. Returns `None` if the header is
    /// incomplete or invalid, or if the client exceeds a limit.
    pub(super) fn take_proxy_header(
        &mut self,
        cx: &mut Context<N>,
        id: SocketId,
        message: usize,
    ) -> Option<usize> {
        let stream = self.table.get_mut(id)?;
        let bytes = cx.rx.message(message).data;
        let header = match proxy_protocol::read(bytes) {
            Ok(Some(header)) => header,
            Ok(None) => {
                stream.keep(bytes);
                return None;
            }
            Err(error) => {
                let proxy = stream.path.five_tuple.client.ip();
                let proxy = cx.observer.shown(proxy).to_string();
                let details = format_args!("{proxy}: {error}");
                cx.observer.warn(cx.now.instant, Condition::Proxy, &details);
                self.close(cx, id, StreamEnd::NoProxyHeader);
                return None;
            }
        };
        if let Err(why) = stream.proxied(header.ends) {
            cx.observer.count(Series::StreamsRefused(refusal(why)), 1);
            self.close(cx, id, StreamEnd::ByUs);
            return None;
        }
        self.hold_addresses(cx, id);
        Some(header.len)
    }

    /// Closes a connection that starts with a PROXY header although the address does not belong to
    /// a load balancer. Any client could send such a header.
    pub(super) fn refuse_proxy_header(&mut self, cx: &mut Context<N>, id: SocketId) {
        if let Some(stream) = self.table.get_mut(id) {
            let from = stream.path.five_tuple.client.0.ip();
            let from = cx.observer.shown(from).to_string();
            cx.observer.warn(cx.now.instant, Condition::ProxyNotListed, &from);
        }
        self.close(cx, id, StreamEnd::ProxyNotListed);
    }

    /// Removes a connection from the table, for a ConnectionBind that may belong to another worker.
    pub(crate) fn take(&mut self, cx: &mut Context<N>, id: SocketId) -> Option<Box<Stream<N>>> {
        let stream = self.table.remove(id)?;
        // Other pending requests are abandoned. From now on the connection carries data, possibly
        // at another worker.
        cx.server.close(cx.now, &stream.path.five_tuple);
        cx.net.unwatch(Source::Stream(&stream.socket));
        Some(stream)
    }

    /// Adds a connection that a worker has [taken](Self::take), and returns the new number. Returns
    /// `None` if the table is full or the kernel has no memory. The connection is then closed.
    pub(crate) fn adopt(
        &mut self,
        cx: &mut Context<N>,
        mut stream: Box<Stream<N>>,
        request: &mut BindRequest,
    ) -> Option<SocketId> {
        stream.waiting = 0;
        stream.postponement = Postponement::default();
        let id = self.table.next_id().filter(|id| {
            let token = Token::Stream(*id).number();
            cx.net.watch(Source::Stream(&stream.socket), token, stream.interest()).is_ok()
        });
        let Some(id) = id else {
            finish(cx, *stream, StreamEnd::Resources);
            return None;
        };
        stream.path.socket = id;
        request.came_by(stream.path);
        if !stream.is_flushed() {
            self.unsent.push(id);
        }
        self.table.insert(stream);
        self.hold_addresses(cx, id);
        Some(id)
    }

    /// Accepts new connections if `accepts` is true. Otherwise another process accepts new
    /// connections.
    pub(crate) fn set_accepting(&mut self, net: &N, accepts: bool) {
        self.accepts = accepts;
        self.resume_acceptors(net);
    }

    /// Waits for connections at all acceptors again, unless another process accepts connections.
    pub(super) fn resume_acceptors(&self, net: &N) {
        let interest = if self.accepts { Interest::Read } else { Interest::ErrorsOnly };
        for index in (0..).take(self.acceptors.len()) {
            self.watch_acceptor(net, index, interest);
        }
    }

    fn watch_acceptor(&self, net: &N, index: u32, interest: Interest) {
        if let Some(acceptor) = self.acceptors.get(index as usize) {
            // The call fails only for sockets that are not watched.
            drop(net.rewatch(
                Source::Acceptor(acceptor),
                Token::Acceptor(index).number(),
                interest,
            ));
        }
    }
}
