//! The result of a paired comparison.

use serde::{Deserialize, Serialize};

use super::Outcome;
use crate::traffic::{Backend, Transport};

/// A comparison of servers, each measured once in every round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compare {
    /// Where it was measured.
    pub machine: Machine,
    /// The command line that did it.
    pub command: Vec<String>,
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// What sent and received; where clients have streams, what the peer did it by.
    pub backend: Backend,
    /// What carried messages between clients and servers.
    #[serde(default)]
    pub transport: Transport,
    /// Rounds that count.
    pub rounds: u32,
    /// The servers, in the order of their turns. Ratios are to the first.
    pub servers: Vec<ComparedServer>,
    /// What was measured.
    pub cells: Vec<ComparedCell>,
    /// What could not be measured, and why, in words.
    pub failures: Vec<String>,
    /// Every single run, in the order they were made.
    pub raw: Vec<RawStep>,
}

#[cfg(test)]
impl Compare {
    /// Six rounds of two servers under one load.
    pub(crate) fn example(names: [&str; 2], measures: Vec<Measure>) -> Self {
        let server = |name: &str| ComparedServer {
            name: name.into(),
            version: "1.0".into(),
            command: vec!["serve".into()],
            configuration: None,
        };
        let machine = Machine {
            kernel: "Linux 6".into(),
            cpu: "C".into(),
            cores: 2,
            roles: vec![("server".into(), vec![1])],
        };
        let cell = ComparedCell {
            name: "audio:1:c2p:200".into(),
            common_rate: Some(50_000),
            ceiling: None,
            measures,
            generator_limited: vec![0, 0],
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

/// Where something was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's name and release: `Linux 6.12.1`.
    pub kernel: String,
    /// What `/proc/cpuinfo` calls the processor.
    pub cpu: String,
    /// Cores that the benchmark could use.
    pub cores: usize,
    /// Which cores each role had: `server`, `client`, `peer`.
    pub roles: Vec<(String, Vec<usize>)>,
}

/// A server that was compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedServer {
    /// What the tables call it.
    pub name: String,
    /// What it says of its version; empty when it does not.
    pub version: String,
    /// How it was started, with paths of this run.
    pub command: Vec<String>,
    /// The configuration file it was given, if any.
    pub configuration: Option<String>,
}

/// One kind of load, and what was measured under it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedCell {
    /// As on the command line: `audio:100:c2p:200`, `alloc`.
    pub name: String,
    /// The rate that all servers were given alike, in packets or requests per second, where there
    /// is one.
    pub common_rate: Option<u32>,
    /// Packets per second that the clients and the peer can make and count, with a bare kernel
    /// forwarder in the server's place; `None` where that cannot be tried.
    pub ceiling: Option<f64>,
    /// What was measured.
    pub measures: Vec<Measure>,
    /// For each server, in how many rounds it delivered all that could be sent, or over streams had
    /// cores to spare: what it delivers at most is then a lower bound.
    pub generator_limited: Vec<u32>,
}

impl ComparedCell {
    /// Whether a quantity of a server is the least that it may be, since not the server was the limit.
    #[must_use]
    pub fn is_bound(&self, measure: &Measure, server: usize) -> bool {
        measure.better == Better::Higher
            && self.generator_limited.get(server).is_some_and(|rounds| *rounds > 0)
    }
}

/// One quantity, of every server in every round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// What it is: `delivered at most`.
    pub name: String,
    /// In what: `packets/s`, `ns`, `ns/packet`, `bytes`, `%`.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
    /// For each server, for each round: `None` where it could not be measured.
    pub values: Vec<Vec<Option<f64>>>,
    /// For each server: middle and spread; `None` where nothing could be measured.
    pub spreads: Vec<Option<Spread>>,
    /// For each server but the first: what it is to the first; `None` where no round has both.
    pub ratios: Vec<Option<Ratio>>,
}

/// Which way of a quantity is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// More of it.
    Higher,
    /// Less of it.
    Lower,
    /// It is there to judge the others by.
    Neither,
}

/// The middle of some values, and how far they are from it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// As many are below as above.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The median of their distances from the median.
    pub mad: f64,
}

/// The values of a server divided by those of the first in the same round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// As many rounds have a smaller ratio as a larger.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Rounds that have both values.
    pub rounds: u32,
    /// How likely it is that servers that are equal would differ in one direction in so many rounds
    /// (two-sided sign test), 0 to 1.
    pub chance: f64,
    /// What that means.
    pub verdict: Verdict,
}

/// Whether a server differs from the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Its values are higher, more often than chance explains.
    Higher,
    /// Its values are lower, more often than chance explains.
    Lower,
    /// The difference is inside the noise.
    Noise,
    /// So few rounds cannot tell, whatever they say.
    TooFewRounds,
}

/// One run of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RawStep {
    /// The round; 0 is the calibration, which does not count.
    pub round: u32,
    /// Which server, by its place.
    pub server: usize,
    /// The name of the cell.
    pub cell: String,
    /// What was done: `max`, `common-rate`, `footprint`.
    pub step: String,
    /// What came of it.
    pub outcome: Outcome,
}
