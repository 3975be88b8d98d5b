//! Sources of clients: UDP sockets, or connections.

use anyhow::Result;
use client_driver::Wire;

use crate::engine::backend::{Gauge, Sent, Source, Target};
use crate::engine::connections::ConnectionSource;
use crate::engine::plan::Plan;
use crate::engine::source::SocketSource;

/// Sends on flows of clients. They are all of one kind.
#[derive(Debug)]
pub(crate) enum ClientSource {
    Datagrams(Box<SocketSource>),
    Connections(ConnectionSource),
}

impl ClientSource {
    /// Sends every flow by a wire of its own.
    pub(crate) fn of_sessions(flows: Vec<(Target, Wire)>) -> Self {
        let (mut sockets, mut connections) = (Vec::new(), Vec::new());
        for (target, wire) in flows {
            match wire {
                Wire::Udp(socket) => sockets.push((target, socket)),
                Wire::Connection(connection) => connections.push((target, connection)),
            }
        }
        if connections.is_empty() {
            Self::Datagrams(Box::new(SocketSource::of_sessions(sockets)))
        } else {
            Self::Connections(ConnectionSource::new(connections))
        }
    }

    /// Lets only flows below this number take part in runs.
    pub(crate) fn restrict(&mut self, flows: u32) {
        match self {
            Self::Datagrams(source) => source.restrict(flows),
            Self::Connections(source) => source.restrict(flows),
        }
    }

    /// The flows that take part.
    pub(crate) fn targets(&self) -> Vec<Target> {
        match self {
            Self::Datagrams(source) => source.targets().collect(),
            Self::Connections(source) => source.targets().collect(),
        }
    }

    /// Sends a payload on the flow at `index`. Whether it arrives is not known, nor whether the
    /// kernel took it.
    pub(crate) fn send_one(&mut self, index: usize, payload: &[u8]) {
        match self {
            Self::Datagrams(source) => source.send_one(index, payload),
            Self::Connections(source) => source.send_one(index, payload),
        }
    }
}

impl Source for ClientSource {
    fn run(&mut self, plan: &Plan, gauge: Gauge<'_>) -> Result<Sent> {
        match self {
            Self::Datagrams(source) => source.run(plan, gauge),
            Self::Connections(source) => source.run(plan, gauge),
        }
    }
}
