//! A connection that gives way to others after each read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// TLS reads a connection until it has data or nothing waits. A client that sends records without
/// data, such as a KeyUpdate after the other (RFC 8446 §4.6.3), would have a thread for itself.
#[derive(Debug)]
pub(crate) struct Paced<S> {
    connection: S,
    /// The last poll was a read.
    has_read: bool,
}

impl<S> Paced<S> {
    pub(crate) const fn new(connection: S) -> Self {
        Self { connection, has_read: false }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.has_read) {
            // After all tasks that are ready now.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let read = ready!(Pin::new(&mut self.connection).poll_read(cx, room));
        self.has_read = true;
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// A client that always has bytes leaves others their time.
    #[tokio::test]
    async fn another_task_runs_between_two_reads() {
        let reads = async {
            let mut connection = Paced::new(tokio::io::repeat(7));
            let mut room = [0; 16];
            for _ in 0..100 {
                connection.read_exact(&mut room).await.unwrap();
            }
        };
        let mut turns = 0;
        let others = async {
            loop {
                turns += 1;
                // No task of the runtime: `tokio::select!` polls both each time.
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = reads => {}
            () = others => {}
        }
        assert!(turns >= 99, "{turns}");
    }
}
