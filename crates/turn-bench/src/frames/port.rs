//! One end of the traffic, on a link.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use aya::Ebpf;

use super::shared::Shared;
use super::sink::{Sink, SinkTally, Watch};
use super::source::Source;
use super::template::Shape;
use super::{FrameFlow, attach, object};

/// A link that counts and sends the packets of a run.
///
/// Packets of the watched run end here; everything else passes. Dropping this value and its sources
/// restores the link.
pub struct Port {
    shared: Arc<Shared>,
    sink: Mutex<Sink>,
}

impl fmt::Debug for Port {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Port").field("interface", &self.shared.interface).finish_non_exhaustive()
    }
}

impl Port {
    /// Attaches the program that counts and makes packets to a link.
    ///
    /// # Errors
    /// Privileges are missing, there is no such interface, its driver runs no XDP programs, or
    /// another is there already.
    pub fn attach(interface: &str) -> Result<Self> {
        let number = attach::interface_number(interface)?;
        let mut object = load()?;
        attach::put(object::program(&mut object, "port")?, interface)?;
        Self::with(object, number)
    }

    /// Loads the program without a link.
    #[cfg(test)]
    pub(super) fn load() -> Result<Self> {
        Self::with(load()?, 0)
    }

    fn with(mut object: Ebpf, interface: u32) -> Result<Self> {
        let sink = Sink::of(&mut object)?;
        let shared = Shared::new(object, interface)?;
        Ok(Self { shared: Arc::new(shared), sink: Mutex::new(sink) })
    }

    /// Makes ready to send the packets of these flows, which take turns in this order. Whether they
    /// arrive at all says [`probe`](super::probe()).
    ///
    /// # Errors
    /// There is no flow, the flows are not of one family or not all with (or without) a channel, or
    /// there are more than 8 sources or 65,536 flows on this link.
    pub fn source(&self, flows: &[FrameFlow]) -> Result<Source> {
        let shape = Shape::of(flows)?;
        let place = self.shared.take_place(flows.len())?;
        Ok(Source::new(Arc::clone(&self.shared), place, flows, shape))
    }

    fn sink(&self) -> MutexGuard<'_, Sink> {
        self.sink.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the packets of a run from here on, from nothing.
    ///
    /// # Errors
    /// The run is 0, or has more flows than can be followed.
    pub fn watch(&self, watch: &Watch) -> Result<()> {
        self.sink().begin(watch)
    }

    /// Counts on, by another window or specification of the same run.
    ///
    /// # Errors
    /// The kernel does not let us write our own map.
    pub fn rewatch(&self, watch: &Watch) -> Result<()> {
        self.sink().write(watch)
    }

    /// Watches no run any more: everything passes.
    ///
    /// # Errors
    /// The kernel does not let us write our own map.
    pub fn unwatch(&self) -> Result<()> {
        self.sink().end()
    }

    /// Counts so far of the last run.
    ///
    /// # Errors
    /// The kernel does not let us read our own map.
    pub fn tally(&self) -> Result<SinkTally> {
        self.sink().read()
    }

    /// The program, for tests that run it on single frames.
    #[cfg(test)]
    pub(super) fn object(&self) -> &Ebpf {
        &self.shared.object
    }
}

fn load() -> Result<Ebpf> {
    let mut object = object::open(object::PORT)?;
    object::load(&mut object, "port")?;
    Ok(object)
}
