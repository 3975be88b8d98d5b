//! The backend of frames: sending and counting without sockets.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail, ensure};

use super::sink::{FLOWS_MAX, Watch};
use super::{FrameFlow, Link, Mac, Port, pace, probe};
use crate::engine::{Ends, Gauge, Plan, Sent, Sink, Source, Tally, Target};
use crate::traffic::Direction;

/// End of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The clients, where packets end.
    Client,
    /// The peer, which echoes packets.
    Peer,
}

/// A link that sends packets and counts them.
#[derive(Debug)]
pub struct FrameEnds {
    link: Link,
    port: Port,
    end: End,
    /// Threads that send.
    threads: usize,
    /// The next hop to each address that is sent to.
    hops: Mutex<HashMap<IpAddr, Mac>>,
    counting: Mutex<Counting>,
}

/// The counted run.
#[derive(Debug, Default)]
struct Counting {
    watch: Watch,
    one_clock: bool,
}

impl FrameEnds {
    /// Opens a link. Dropping this value and its sources restores it.
    ///
    /// # Errors
    /// As [`Link::read`], [`Port::attach`] and [`probe()`].
    pub fn open(interface: &str, end: End, threads: usize) -> Result<Self> {
        ensure!(
            !clock_is_shifted(),
            "frames carry the time of the host, which differs in the time namespace of this process"
        );
        let link = Link::read(interface)?;
        let port = Port::attach(interface)?;
        probe(&link)?;
        let (hops, counting) = (Mutex::default(), Mutex::default());
        Ok(Self { link, port, end, threads: threads.max(1), hops, counting })
    }

    fn flow(&self, target: &Target) -> Result<FrameFlow> {
        let destination = canonical(target.to);
        let mut source = canonical(target.from);
        if source.ip().is_unspecified() {
            let ip = linux_net::source_address_towards(destination.ip())
                .with_context(|| format!("no address of this host reaches {destination}"))?;
            source.set_ip(ip);
        }
        Ok(FrameFlow {
            number: target.flow,
            source_mac: self.link.mac,
            destination_mac: self.hop(destination.ip())?,
            source,
            destination,
            channel: target.channel.map(|channel| channel.get()),
        })
    }

    fn hop(&self, to: IpAddr) -> Result<Mac> {
        let mut hops = lock(&self.hops);
        if let Some(mac) = hops.get(&to) {
            return Ok(*mac);
        }
        let mac = self.link.next_hop(to)?;
        hops.insert(to, mac);
        Ok(mac)
    }

    fn counting(&self) -> MutexGuard<'_, Counting> {
        lock(&self.counting)
    }
}

impl Ends for FrameEnds {
    fn sources(&self, _plan: &Plan, targets: &[Target]) -> Result<Vec<Box<dyn Source>>> {
        let flows = targets.iter().map(|target| self.flow(target)).collect::<Result<Vec<_>>>()?;
        let (six, four): (Vec<_>, Vec<_>) = flows.iter().partition(|flow| flow.source.is_ipv6());
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        // Frames of a source are of one length.
        for family in [four, six] {
            for thread in 0..self.threads.min(family.len()) {
                let own: Vec<FrameFlow> =
                    family.iter().skip(thread).step_by(self.threads).copied().collect();
                let source = self.port.source(&own)?;
                let flows = u32::try_from(own.len()).unwrap_or(u32::MAX);
                sources.push(Box::new(Sender { source, flows }));
            }
        }
        if sources.is_empty() {
            bail!("there is no flow to send");
        }
        Ok(sources)
    }

    fn sink(&self) -> &dyn Sink {
        self
    }
}

impl Sink for FrameEnds {
    fn expect(&self, run: u32, size: u16) -> Result<()> {
        // Flows and window are known later: until then all packets are early.
        let window = u64::MAX..u64::MAX;
        let watch = Watch { run, flows: FLOWS_MAX, size, reflect: false, window };
        self.port.watch(&watch)?;
        *self.counting() = Counting { watch, one_clock: false };
        Ok(())
    }

    fn begin(&self, plan: &Plan, one_clock: bool) -> Result<()> {
        let mut counting = self.counting();
        ensure!(counting.watch.run == plan.run, "another run began on this link");
        counting.watch.flows = plan.flows;
        counting.watch.window = plan.window.start..plan.window.end;
        counting.watch.reflect = self.end == End::Peer && plan.spec.direction == Direction::Echo;
        counting.one_clock = one_clock;
        self.port.rewatch(&counting.watch)?;
        ensure!(
            self.port.tally()?.early_last < plan.window.start,
            "packets that count came before it was known when they begin to: the way to the peer \
             and back takes too long for this warm-up, give --warm-up more"
        );
        Ok(())
    }

    fn tally(&self) -> Result<Tally> {
        let counted = self.port.tally()?;
        let one_clock = self.counting().one_clock;
        Ok(Tally {
            received: counted.delivered + counted.duplicates + counted.damaged + counted.outside,
            delivered: counted.delivered,
            duplicates: counted.duplicates,
            reordered: counted.reordered,
            damaged: counted.damaged,
            latency: if one_clock { counted.latency } else { Tally::new().latency },
        })
    }
}

/// One thread's flows.
struct Sender {
    source: super::Source,
    flows: u32,
}

impl Source for Sender {
    fn run(&mut self, plan: &Plan, gauge: Gauge<'_>) -> Result<Sent> {
        pace::run(&mut self.source, plan, self.flows, gauge)
    }
}

/// An IPv4 address that is written as an IPv6 one is an IPv4 address on the wire.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Returns `true` when the clock of this process differs from that of BPF programs.
fn clock_is_shifted() -> bool {
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    offsets.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("monotonic") && words.any(|word| word != "0")
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
