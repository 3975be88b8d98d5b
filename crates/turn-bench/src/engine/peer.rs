//! The peer: counts relayed packets, echoes them, or sends, as the load requests
//! ([`control`](crate::engine::control)).
//!
//! ```text
//! thread.rs   one socket and one thread: packets in, answers out
//! runs.rs     runs shared by all threads: plan, counts, sources
//! token.rs    proof that an address receives
//! stats.rs    statistics of the peer, once per second
//! ```
//!
//! It sends only to addresses that proved to receive, no longer than the run, and stops when the
//! load falls silent.

mod runs;
mod stats;
mod thread;
mod token;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread as threads;

use anyhow::{Context as _, Result, anyhow};
use linux_net::{UdpOptions, UdpSocket};

use crate::engine::backend::Ends;
use runs::Runs;
use thread::Worker;

/// Requested receive buffer: room for bursts of a thousand super-packets while the thread is
/// preempted.
const RECEIVE_BUFFER: usize = 64 << 20;

/// Requested send buffer: a device with a long queue.
const SEND_BUFFER: usize = 4 << 20;

/// Options of a peer.
#[derive(Clone, Copy, Debug)]
pub struct PeerOptions {
    /// Listen address; port 0 is any free one.
    pub listen: SocketAddr,
    /// Number of threads, each with a socket of its own, 1 or more.
    pub threads: usize,
}

/// A peer with open sockets.
pub struct Peer {
    workers: Vec<Worker>,
    runs: Arc<Runs>,
    address: SocketAddr,
    /// Receive buffer of each socket in bytes, where it is less than requested.
    small_buffer: Option<usize>,
}

impl Peer {
    /// Opens the sockets. With `ends`, packets are sent and counted by that backend.
    ///
    /// # Errors
    /// The address is in use or not of this host.
    pub fn bind(options: &PeerOptions, ends: Option<Box<dyn Ends>>) -> Result<Self> {
        let settings = UdpOptions {
            reuse_port: true,
            recv_buffer: RECEIVE_BUFFER,
            send_buffer: SEND_BUFFER,
            packet_info: options.listen.ip().is_unspecified(),
            ..UdpOptions::default()
        };
        let mut address = options.listen;
        let (mut sockets, mut small_buffer) = (Vec::new(), None);
        for _ in 0..options.threads.max(1) {
            let (socket, applied) = UdpSocket::bind(address, &settings)
                .with_context(|| format!("cannot listen on {address}"))?;
            address = socket.local_addr();
            small_buffer = Some(applied.recv_buffer).filter(|&bytes| bytes < RECEIVE_BUFFER);
            sockets.push(socket);
        }
        let handles = sockets.iter().map(UdpSocket::try_clone).collect::<Result<Vec<_>, _>>();
        let runs = Arc::new(Runs::new(address, handles.context("a second handle")?, ends));
        let worker = |(thread, socket)| Worker::new(thread, socket, Arc::clone(&runs));
        let workers = sockets.into_iter().enumerate().map(worker).collect::<Result<_>>()?;
        Ok(Self { workers, runs, address, small_buffer })
    }

    /// Listen address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Receive buffer of each socket in bytes, where it is too small: raise `net.core.rmem_max`, or
    /// start the peer with `CAP_NET_ADMIN`.
    #[must_use]
    pub const fn small_buffer(&self) -> Option<usize> {
        self.small_buffer
    }

    /// Serves runs until `halt` is set. With `stats` it prints statistics every second.
    ///
    /// # Errors
    /// The kernel's, on sockets.
    pub fn serve(self, halt: &AtomicBool, stats: bool) -> Result<()> {
        let Self { workers, runs, .. } = self;
        threads::scope(|scope| {
            let spawn = |mut worker: Worker| {
                scope.spawn(move || {
                    let result = worker.run(halt);
                    halt.store(true, Relaxed);
                    result
                })
            };
            let running: Vec<_> = workers.into_iter().map(spawn).collect();
            if stats {
                stats::print_until(halt, &runs);
            }
            let joined = running.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|_| Err(anyhow!("a thread of the peer panicked")))
            });
            joined.collect::<Result<()>>()
        })
    }
}

#[cfg(test)]
mod tests;
