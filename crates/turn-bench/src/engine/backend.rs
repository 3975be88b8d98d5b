//! The two halves of an end of the traffic: what makes packets, and what counts them. Sockets are
//! one way to do it, frames another; the course of a run is the same for both.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use anyhow::Result;
use stun_wire::ChannelNumber;

use crate::engine::plan::Plan;
use crate::engine::tally::Tally;

/// Where the packets of a flow come from and go to.
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

/// What a source did within the measured time, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// The kernel took them.
    pub sent: u64,
    /// The kernel did not.
    pub refused: u64,
    /// The schedule had so many; 0 where the rate is not bounded.
    pub scheduled: u64,
    /// Of those scheduled: left out, because the source was late.
    pub missed: u64,
}

impl Sent {
    /// Adds what another did.
    pub const fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.refused += other.refused;
        self.scheduled += other.scheduled;
        self.missed += other.missed;
    }
}

/// What a source shares with whoever watches it.
#[derive(Clone, Copy, Debug)]
pub struct Gauge<'a> {
    /// Counts up with every packet sent, whether it is of the measured time or not.
    pub sent: &'a AtomicU64,
    /// Set to end the run before its time.
    pub halt: &'a AtomicBool,
}

impl Gauge<'_> {
    /// Whether the run is to end now.
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
    /// Only what makes the whole run worthless; packets that the kernel refuses are counted.
    fn run(&mut self, plan: &Plan, gauge: Gauge<'_>) -> Result<Sent>;
}

/// Counts the packets of runs; at the peer it also sends back those that are to be echoed.
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

    /// What was counted so far of the run that began last.
    ///
    /// # Errors
    /// When the counters cannot be read.
    fn tally(&self) -> Result<Tally>;
}

/// Both halves of an end, where they are not sockets.
pub trait Ends: Send + Sync {
    /// What makes the packets of these flows, one for each thread that is to do it.
    ///
    /// # Errors
    /// When it cannot make such packets.
    fn sources(&self, plan: &Plan, targets: &[Target]) -> Result<Vec<Box<dyn Source>>>;

    /// What counts packets, and at the peer echoes them, before a socket sees them. Sockets count
    /// what it lets pass.
    fn sink(&self) -> &dyn Sink;
}
