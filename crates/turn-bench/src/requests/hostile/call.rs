//! A relayed call, measured on the quiet server and again during an attack.

use anyhow::Result;

use crate::engine::Bench;
use crate::outcome::Traffic;
use crate::traffic::{Backend, TrafficSpec};

/// Sessions over which packets are relayed at a fixed rate.
pub struct Call {
    /// Open sessions.
    pub bench: Bench,
    /// Packets and times.
    pub spec: TrafficSpec,
    /// Flows among the sessions.
    pub flows: u32,
    /// Backend of the clients.
    pub backend: Backend,
}

impl Call {
    pub(super) fn run(&mut self) -> Result<Traffic> {
        self.bench.run(&self.spec, self.flows, self.backend)
    }
}
