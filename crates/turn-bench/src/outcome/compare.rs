//! The result of a paired comparison.

use serde::{Deserialize, Serialize};

use super::{Better, Measure, Outcome};
use crate::traffic::{Backend, Transport};

/// A comparison of servers, each measured once in every round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compare {
    /// The machine.
    pub machine: Machine,
    /// The command line.
    pub command: Vec<String>,
    /// Start, in seconds since 1970.
    pub began: u64,
    /// Backend of both ends; of the peer alone where clients have connections.
    pub backend: Backend,
    /// Transport between clients and servers.
    #[serde(default)]
    pub transport: Transport,
    /// Rounds, without the calibration.
    pub rounds: u32,
    /// The servers, in the order of their turns. Ratios are to the first.
    pub servers: Vec<ComparedServer>,
    /// The loads.
    pub cells: Vec<ComparedCell>,
    /// Failed measurements, with the reason.
    pub failures: Vec<String>,
    /// Every run, in order.
    pub raw: Vec<RawStep>,
}

#[cfg(test)]
impl Compare {
    /// Six rounds of two servers under one load.
    pub(crate) fn example(names: [&str; 2], measures: Vec<Measure>) -> Self {
        let server = |name: &str| ComparedServer {
            name: name.into(),
            version: "1.0".into(),
            warning: None,
            command: vec!["serve".into()],
            configuration: None,
        };
        let machine = Machine {
            kernel: "Linux 6".into(),
            cpu: "C".into(),
            cores: 2,
            roles: vec![("server".into(), vec![1])],
            link: "veth".into(),
            root: Some(true),
            virtual_machine: Some(true),
        };
        let cell = ComparedCell {
            name: "audio:1:c2p:200".into(),
            common_rate: Some(50_000),
            ceiling: None,
            measures,
            generator_limited: vec![0, 0],
            refused: vec![0, 0],
        };
        Self {
            machine,
            command: vec!["turnpike-bench".into(), "compare".into()],
            began: 7,
            backend: Backend::Frames,
            transport: Transport::Udp,
            rounds: 6,
            servers: names.map(server).into(),
            cells: vec![cell],
            failures: Vec::new(),
            raw: Vec::new(),
        }
    }
}

/// The machine of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's name and release: `Linux 6.12.1`.
    pub kernel: String,
    /// Model of the processor, from `/proc/cpuinfo`.
    pub cpu: String,
    /// Cores that the load tool could use.
    pub cores: usize,
    /// Cores of each role: `server`, `client`, `peer`.
    pub roles: Vec<(String, Vec<usize>)>,
    /// Links between the hosts: `veth`, pairs of virtual interfaces; empty in older results.
    #[serde(default)]
    pub link: String,
    /// True if the load tool ran as root; `None` in older results.
    #[serde(default)]
    pub root: Option<bool>,
    /// True on a virtual machine; `None` where that cannot be seen.
    #[serde(default)]
    pub virtual_machine: Option<bool>,
}

/// A server that was compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedServer {
    /// Name in tables.
    pub name: String,
    /// Version by `--version`; empty when unknown.
    pub version: String,
    /// A warning about this version for readers, such as that it is an old one.
    #[serde(default)]
    pub warning: Option<String>,
    /// Command line, with paths of this run.
    pub command: Vec<String>,
    /// Text of its configuration file, if any.
    pub configuration: Option<String>,
}

/// Measures under one kind of load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedCell {
    /// As on the command line: `audio:100:c2p:200`, `alloc`.
    pub name: String,
    /// The fixed offered load, in packets or requests per second.
    pub common_rate: Option<u32>,
    /// Packets per second that clients and peer send and count with a bare kernel forwarder in
    /// place of the server; `None` where that cannot be tried.
    pub ceiling: Option<f64>,
    /// The measures.
    pub measures: Vec<Measure>,
    /// For each server, the rounds in which the load tool was the limit: the throughput is then a
    /// lower bound.
    pub generator_limited: Vec<u32>,
    /// For each server, the readings of the meter that cannot be, and that no value is made of;
    /// empty in older results.
    #[serde(default)]
    pub refused: Vec<u32>,
}

/// Utilisation in percent below which a server's cores were not its limit.
pub(crate) const BUSY: f64 = 90.0;

impl ComparedCell {
    /// True if a server's value is a lower bound, because something else was the limit.
    #[must_use]
    pub fn is_bound(&self, measure: &Measure, server: usize) -> bool {
        measure.better == Better::Higher && self.bounded_rounds(server) > 0
    }

    /// Rounds in which the load tool was the limit, or the server's cores were less than 90 % busy:
    /// also of older results, which did not count the latter over UDP.
    #[must_use]
    pub fn bounded_rounds(&self, server: usize) -> u32 {
        let counted = self.generator_limited.get(server).copied().unwrap_or(0);
        let busy =
            self.measures.iter().find(|measure| measure.name == "server cores busy, at most");
        let values = busy.and_then(|busy| busy.values.get(server)).into_iter().flatten().flatten();
        let idle = values.filter(|busy| **busy < BUSY).count();
        counted.max(u32::try_from(idle).unwrap_or(u32::MAX))
    }
}

/// One run of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RawStep {
    /// The round; 0 is the calibration, which is discarded.
    pub round: u32,
    /// Index of the server.
    pub server: usize,
    /// The name of the cell.
    pub cell: String,
    /// Task: `most`, `common-rate`, `memory`.
    pub step: String,
    /// Its result.
    pub outcome: Outcome,
}
