//! Connections whose input waits in the [`InputQueue`](crate::input_queue::InputQueue).

use control::StreamEnd;
use turn_types::SocketId;

use super::Streams;
use crate::context::Context;
use crate::input_queue::InputSource;
use crate::io::Net;

impl<N: Net> Streams<N> {
    /// Charges this iteration for a read of so many bytes.
    pub(crate) fn spend_read(&mut self, cx: &mut Context<N>, id: SocketId, bytes: usize) {
        let records = self.table.get_mut(id).map_or(0, |stream| stream.records_read());
        cx.input.spend_read(&cx.net, records, bytes);
    }

    /// Serves the input of a connection in a later iteration.
    pub(crate) fn postpone(&mut self, cx: &mut Context<N>, id: SocketId) {
        if let Some(stream) = self.table.get_mut(id)
            && stream.postponement.begin()
        {
            let client = stream.path.five_tuple.client.0.ip();
            cx.input.push(cx.now.instant, client, InputSource::Stream(id));
        }
    }

    /// Returns true if a connection from the queue is open: it has its turn. Another connection
    /// may have its number.
    pub(crate) fn take_postponed(&mut self, id: SocketId) -> bool {
        self.table.get_mut(id).is_some_and(|stream| stream.postponement.end())
    }

    /// Returns true for a connection in the queue of input.
    pub(crate) fn waits(&self, id: SocketId) -> bool {
        self.table.get(id).is_some_and(|stream| stream.postponement.waits())
    }

    /// Postpones a connection that was served and has more, or waits for its input.
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
