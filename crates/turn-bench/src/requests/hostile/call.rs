//! A relayed call, measured on the quiet server and again during an attack.

use anyhow::Result;

use crate::engine::Bench;
use crate::outcome::{AttackedCall, Latency, Traffic};
use crate::requests::text;
use crate::traffic::{Backend, TrafficSpec};

/// Sessions over which packets are relayed at a fixed rate.
pub struct Call {
    /// Open sessions.
    pub bench: Bench,
    /// Packets and times.
    pub spec: TrafficSpec,
    /// Flows among the sessions.
    pub flows: u32,
    /// What hands packets to the kernel.
    pub backend: Backend,
}

impl Call {
    pub(super) fn run(&mut self) -> Result<Traffic> {
        self.bench.run(&self.spec, self.flows, self.backend)
    }
}

/// For people.
pub(super) fn describe(call: &AttackedCall) -> String {
    let line = |when: &str, traffic: &Traffic| {
        let latency = match &traffic.latency {
            Some(latency) => text::percentiles(latency),
            None => "none".to_owned(),
        };
        let lost = traffic.sent.saturating_sub(traffic.delivered);
        format!("\n  call {when}: {} packets, {lost} lost; latency: {latency}", traffic.sent)
    };
    let p99 = |traffic: &Traffic| traffic.latency.as_ref().map(|latency: &Latency| latency.p99);
    let mut text = line("on the quiet server", &call.quiet) + &line("during it", &call.attacked);
    if let (Some(quiet), Some(attacked)) = (p99(&call.quiet), p99(&call.attacked)) {
        text.push_str(&format!(
            "\n  p99 {:.2} times that of the quiet server",
            attacked as f64 / quiet.max(1) as f64
        ));
    }
    text
}
