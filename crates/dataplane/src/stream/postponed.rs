//! Connections whose input waits in the [`InputQueue`](crate::input_queue::InputQueue).

use control::StreamEnd;
use turn_types::SocketId;

use super::Streams;
use crate::context::Context;
use crate::input_queue::InputSource;
use crate::io::Net;

impl<N: Net> Streams<N> {
    /// Charges this iteration for a read of `bytes` bytes.
    pub(crate) fn spend_read(&mut self, cx: &mut Context<N>, id: SocketId, bytes: usize) {
        let records = self.table.get_mut(id).map_or(0, |stream| stream.records_read());
        cx.input.spend_read(&cx.net, records, bytes);
    }

    /// Defers the input of a connection to a later iteration.
    pub(crate) fn postpone(&mut self, cx: &mut Context<N>, id: SocketId) {
        if let Some(stream) = self.table.get_mut(id)
            && stream.postponement.begin()
        {
            let client = stream.path.five_tuple.client.0.ip();
            cx.input.push(cx.now.instant, client, InputSource::Stream(id));
        }
    }

    /// Returns true if a connection from the queue is still open and must be served now. By now,
    /// another connection may have the number.
    pub(crate) fn take_postponed(&mut self, id: SocketId) -> bool {
        self.table.get_mut(id).is_some_and(|stream| stream.postponement.end())
    }

    /// Returns true for a connection in the input queue.
    pub(crate) fn waits(&self, id: SocketId) -> bool {
        self.table.get(id).is_some_and(|stream| stream.postponement.waits())
    }

    /// Postpones a served connection with further input. Otherwise waits for input of the
    /// connection.
    pub(crate) fn served(&mut self, cx: &mut Context<N>, id: SocketId) {
        let Some(stream) = self.table.get_mut(id) else { return };
        if stream.has_input() {
            self.postpone(cx, id);
        } else if stream.postponement.watch_again() {
            self.rewatch_or_close(cx, id);
        }
    }

    /// Ignores the kernel's reports of a postponed connection.
    pub(crate) fn ignore_postponed(&mut self, cx: &mut Context<N>, id: SocketId) {
        if let Some(stream) = self.table.get_mut(id)
            && stream.postponement.ignore()
        {
            self.rewatch_or_close(cx, id);
        }
    }

    fn rewatch_or_close(&mut self, cx: &mut Context<N>, id: SocketId) {
        if !self.rewatch(cx, id) {
            self.close(cx, id, StreamEnd::Broken);
        }
    }
}
