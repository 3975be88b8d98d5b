//! Traits of a backend: a source that sends packets and a sink that counts them, by sockets or by
//! frames.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use anyhow::Result;
use stun_wire::ChannelNumber;

use crate::engine::plan::Plan;
use crate::engine::tally::Tally;

/// Source and destination of a flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The number of the flow.
    pub flow: u32,
    /// The socket they are sent from. The peer's may be unspecified: whichever address the route
    /// gives.
    pub from: SocketAddr,
    /// The server's address for clients, or the relayed address for the peer.
    pub to: SocketAddr,
    /// The channel whose header is in front of each packet; `None` for the peer.
    pub channel: Option<ChannelNumber>,
}

/// Packets of a source within the measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Taken by the kernel.
    pub sent: u64,
    /// Refused by the kernel.
    pub refused: u64,
    /// Scheduled; 0 where the rate is unlimited.
    pub scheduled: u64,
    /// Scheduled and skipped, because the source was late.
    pub missed: u64,
}

impl Sent {
    /// Adds the packets of another source.
    pub const fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.refused += other.refused;
        self.scheduled += other.scheduled;
        self.missed += other.missed;
    }
}

/// State shared between a source and its observer.
#[derive(Clone, Copy, Debug)]
pub struct Gauge<'a> {
    /// Counts up with every packet sent, whether it is of the measured time or not.
    pub sent: &'a AtomicU64,
    /// Set to end the run before its time.
    pub halt: &'a AtomicBool,
}

impl Gauge<'_> {
    /// Returns `true` when the run has to end now.
    #[must_use]
    pub fn halted(&self) -> bool {
        self.halt.load(Relaxed)
    }
}

/// Makes the packets of its flows and hands them to the kernel. One thread owns it.
pub trait Source: Send {
    /// Sends by the plan until its end, or until halted. Sequence numbers of each flow begin at 0.
    ///
    /// # Errors
    /// Only failures that invalidate the run; refused packets are counted.
    fn run(&mut self, plan: &Plan, gauge: Gauge<'_>) -> Result<Sent>;
}

/// Counts the packets of runs; at the peer it also echoes packets.
pub trait Sink: Send + Sync {
    /// Packets of this run may come from now on, before it is known when it begins.
    ///
    /// # Errors
    /// When it cannot count this run.
    fn expect(&self, run: u32, size: u16) -> Result<()>;

    /// The run is as planned. With `one_clock`, sender and receiver read one clock, and latencies
    /// mean something.
    ///
    /// # Errors
    /// When packets that should have counted came before this was known.
    fn begin(&self, plan: &Plan, one_clock: bool) -> Result<()>;

    /// Counts so far of the last run.
    ///
    /// # Errors
    /// When the counters cannot be read.
    fn tally(&self) -> Result<Tally>;
}

/// Source and sink of an end without sockets.
pub trait Ends: Send + Sync {
    /// Sources of these flows, one for each sending thread.
    ///
    /// # Errors
    /// When it cannot make such packets.
    fn sources(&self, plan: &Plan, targets: &[Target]) -> Result<Vec<Box<dyn Source>>>;

    /// The sink, which sees packets before the sockets. Sockets count the packets that it passes.
    fn sink(&self) -> &dyn Sink;
}
