//! Report of the demo.

use serde::Serialize;

use crate::commands::demo::call::Outcome;
use crate::commands::demo::tally::FlowTally;
use crate::failure::Result;
use crate::output::{self, Align, Table, grouped};

/// Report for programs.
#[derive(Debug, Serialize)]
struct Report {
    server: String,
    seconds: f64,
    damaged: u64,
    flows: Vec<Flow>,
}

/// Results of a flow in one direction.
#[derive(Debug, Serialize)]
struct Flow {
    flow: &'static str,
    direction: &'static str,
    sent: u64,
    relayed: u64,
    lost: u64,
    repeated: u64,
    latency_micros_p50: u64,
    latency_micros_p99: u64,
}

pub(crate) fn print_json(outcome: &Outcome) -> Result<()> {
    output::print_json(&report(outcome))
}

pub(crate) fn print(outcome: &Outcome) -> Result<()> {
    output::print(&describe(outcome))
}

fn report(outcome: &Outcome) -> Report {
    let flow = |FlowTally { flow, direction, tally }: FlowTally<'_>| Flow {
        flow: flow.name(),
        direction: outcome.directions[direction.index()],
        sent: tally.sent,
        relayed: tally.arrived,
        lost: tally.lost(),
        repeated: tally.repeated,
        latency_micros_p50: tally.latency_micros(0.5),
        latency_micros_p99: tally.latency_micros(0.99),
    };
    Report {
        server: outcome.server.to_string(),
        seconds: outcome.time.as_secs_f64(),
        damaged: outcome.tallies.damaged,
        flows: outcome.tallies.iter().map(flow).collect(),
    }
}

fn describe(outcome: &Outcome) -> String {
    let report = report(outcome);
    let mut table = Table::new(&[
        ("flow", Align::Left),
        ("direction", Align::Left),
        ("sent", Align::Right),
        ("relayed", Align::Right),
        ("lost", Align::Right),
        ("p50", Align::Right),
        ("p99", Align::Right),
    ]);
    for flow in &report.flows {
        table.row([
            flow.flow.to_owned(),
            flow.direction.to_owned(),
            grouped(flow.sent),
            grouped(flow.relayed),
            grouped(flow.lost),
            output::micros(flow.latency_micros_p50),
            output::micros(flow.latency_micros_p99),
        ]);
    }
    let mut text = format!(
        "relayed through {} for {:.0} s\n\n{}",
        report.server,
        report.seconds,
        table.render()
    );
    if report.damaged > 0 {
        text.push_str(&format!("\n{} packets were damaged or strange", grouped(report.damaged)));
    }
    text
}
