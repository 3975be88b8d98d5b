//! The strategies: ways to receive a datagram, look up its session and send it on.

mod batched;
mod batches;
mod gro_gso;
mod io_uring;
mod lock;
mod one_by_one;
mod per_thread;

use std::fmt;
use std::io;

use clap::ValueEnum;

use super::relay::{Lane, Tally};
use super::sessions::{Book, OwnSessions, SharedSessions};

/// A way to relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Strategy {
    /// One map behind a reader-writer lock, one packet per system call.
    Lock,
    /// A map for each thread, one packet per system call.
    PerThread,
    /// A map for each thread, many packets per system call (recvmmsg, sendmmsg).
    Batched,
    /// As batched, and bursts of equal packets go through the kernel as one (UDP_GRO, UDP_SEGMENT).
    GroGso,
    /// A map for each thread, one ring of requests for many packets, each of which goes through the
    /// kernel for itself (io_uring).
    IoUring,
}

/// What a thread of a relay does: until its lane says to stop.
pub(super) type Run = Box<dyn FnOnce(Lane) -> io::Result<Tally> + Send>;

impl Strategy {
    /// Whether its sockets take bursts as one message.
    pub(super) const fn takes_merged(self) -> bool {
        match self {
            Self::Lock | Self::PerThread | Self::Batched | Self::IoUring => false,
            Self::GroGso => true,
        }
    }

    /// What its threads do, and where their sessions are entered.
    pub(super) fn prepare(self, threads: usize) -> (Book, Vec<Run>) {
        match self {
            Self::Lock => {
                let sessions = SharedSessions::default();
                let run = |_| -> Run {
                    let sessions = sessions.clone();
                    Box::new(move |lane| lock::run(&lane, &sessions))
                };
                let runs = (0..threads).map(run).collect();
                (Book::Shared(sessions), runs)
            }
            Self::PerThread => with_own_maps(threads, per_thread::run),
            Self::Batched => with_own_maps(threads, batched::run),
            Self::GroGso => with_own_maps(threads, gro_gso::run),
            Self::IoUring => with_own_maps(threads, io_uring::run),
        }
    }

    /// Whether this kernel lets it run; otherwise why not.
    pub(super) fn available(self) -> Result<(), String> {
        match self {
            Self::Lock | Self::PerThread | Self::Batched => Ok(()),
            Self::GroGso => match linux_net::capabilities() {
                linux_net::Capabilities { gro: true, gso: true } => Ok(()),
                _ => Err("this kernel has no UDP_GRO or no UDP_SEGMENT (Linux 5.0)".to_owned()),
            },
            Self::IoUring => io_uring::available(),
        }
    }
}

fn with_own_maps(
    threads: usize,
    run: fn(&Lane, OwnSessions) -> io::Result<Tally>,
) -> (Book, Vec<Run>) {
    let (book, maps) = OwnSessions::of_threads(threads);
    let runs = maps.into_iter().map(|own| -> Run { Box::new(move |lane| run(&lane, own)) });
    (book, runs.collect())
}

impl fmt::Display for Strategy {
    /// As it is written on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Lock => "lock",
            Self::PerThread => "per-thread",
            Self::Batched => "batched",
            Self::GroGso => "gro-gso",
            Self::IoUring => "io-uring",
        })
    }
}
