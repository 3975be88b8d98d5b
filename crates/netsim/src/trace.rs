//! The last things that happened, for the report of a failed run.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;

use turn_types::Instant;

use crate::node::NodeId;
use crate::packet::{Body, Packet};

/// Lines kept: enough to see several retransmissions, few enough to read.
const LINES_MAX: usize = 60;

/// Event of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum What {
    /// A packet arrived.
    Arrived(Summary),
    /// A packet was lost on a link.
    Lost(Summary),
    /// A host was woken by its timer.
    Woke,
    /// The test itself acted on a host.
    Touched,
}

/// Which packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Summary {
    src: SocketAddr,
    dst: SocketAddr,
    len: usize,
    head: [u8; 8],
    icmp: bool,
}

impl Summary {
    pub(crate) fn of(packet: &Packet) -> Self {
        let mut head = [0; 8];
        let (len, icmp) = match &packet.body {
            Body::Udp(payload) => {
                let shown = payload.len().min(head.len());
                head[..shown].copy_from_slice(&payload[..shown]);
                (payload.len(), false)
            }
            Body::Icmp(icmp) => {
                head[..2].copy_from_slice(&[icmp.kind, icmp.code]);
                (2, true)
            }
        };
        Self { src: packet.src, dst: packet.dst, len, head, icmp }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.icmp { "icmp" } else { "udp" };
        write!(f, "{} -> {} {kind} {} bytes:", self.src, self.dst, self.len)?;
        self.head.iter().take(self.len).try_for_each(|byte| write!(f, " {byte:02x}"))
    }
}

/// The last steps, and a digest of all of them.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    lines: VecDeque<(Instant, NodeId, What)>,
    digest: u64,
}

impl Trace {
    pub(crate) fn record(&mut self, at: Instant, node: NodeId, what: What) {
        // DefaultHasher::new() has fixed keys: the digest depends on the run alone.
        let mut hasher = DefaultHasher::new();
        (self.digest, at, node, what).hash(&mut hasher);
        self.digest = hasher.finish();
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back((at, node, what));
    }

    /// Equal for two runs exactly when the same things happened in them.
    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, node, what) in &self.lines {
            let secs = at.as_nanos() as f64 / 1e9;
            write!(f, "  {secs:>12.6} node {} ", node.index())?;
            match what {
                What::Arrived(summary) => writeln!(f, "got  {summary}")?,
                What::Lost(summary) => writeln!(f, "lost {summary}")?,
                What::Woke => writeln!(f, "woke")?,
                What::Touched => writeln!(f, "acted")?,
            }
        }
        Ok(())
    }
}
