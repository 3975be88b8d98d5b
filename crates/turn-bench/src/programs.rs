//! `programs`: how long the kernel path's programs take for a packet.
//!
//! ```text
//! place  a network for them to find ways in   ring   flows, each of which makes the next frame
//! frame  frames, made from scratch            cell   one kind of packet, taken again and again
//! ```
//!
//! The kernel runs a program on a frame and measures the time (`BPF_PROG_TEST_RUN`). Nothing is
//! sent: drivers and the redirect between devices are not included.

mod cell;
mod frame;
mod place;
mod ring;

use std::thread;

use anyhow::{Context as _, Result};
use clap::Args;
use turn_types::Direction;
use xdp_relay::device::Hook;

use crate::arguments::OutputArgs;
use crate::machine;
use crate::outcome::{Outcome, ProgramRow, Programs, median, spread};
use cell::{Cell, Kind, World, times};
use place::Place;
use ring::{FLOWS_MAX, Families};

/// Measures the time of the kernel path's programs per packet, by hook and kind of packet.
///
/// Each program runs on frames in a network namespace, with real route lookups; nothing is sent, so
/// drivers and links are not included. Packets are of all flows in turn. Every packet is checked to
/// be relayed, with the right bytes. Wants root and an otherwise idle machine.
#[derive(Clone, Debug, Args)]
pub struct ProgramsArgs {
    /// Flows that the kernel relays: an even number; may be given more than once
    #[arg(long = "flows", value_name = "N", default_values_t = [2, 1000, 16_384],
        value_parser = flows)]
    pub flows: Vec<u32>,
    /// Rounds, each with one turn of every row
    #[arg(long, value_name = "N", default_value_t = 21,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Test runs of each kind of packet in a round, of 10 to 200 packets each
    #[arg(long, value_name = "N", default_value_t = 101,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    /// Destination of the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Show no progress on standard error
    #[arg(long)]
    pub quiet: bool,
}

/// Families take turns in a ring, so it has an even number of flows; each has a port.
fn flows(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(flows) if (2..=FLOWS_MAX).contains(&flows) && flows.is_multiple_of(2) => Ok(flows),
        Ok(_) | Err(_) => Err(format!("{text:?} is no even number from 2 to {FLOWS_MAX}")),
    }
}

/// Measures, prints the tables, and writes the outcome if that is asked for.
///
/// # Errors
/// Missing privileges; a program with a wrong result; a file that cannot be written.
pub fn run(args: &ProgramsArgs) -> Result<()> {
    args.output.write(&Outcome::Programs(measure(args)?))
}

/// Measures all of it.
///
/// # Errors
/// Missing privileges; a program with a wrong result.
pub fn measure(args: &ProgramsArgs) -> Result<Programs> {
    // In a thread of its own, which goes to another network and to one core.
    thread::scope(|scope| {
        let inside = scope.spawn(|| measure_here(args));
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn measure_here(args: &ProgramsArgs) -> Result<Programs> {
    let place = Place::enter()?;
    let allowed = linux_net::allowed_cores().context("which cores may be used")?;
    // Most else on a machine runs on the first one.
    let core = *allowed.last().context("no core may be used")?;
    linux_net::pin_current_thread(core).context("a core for the programs")?;

    let mut worlds = Vec::new();
    let mut cells = Vec::new();
    for families in Families::ALL {
        for limited in [false, true] {
            for flows in &args.flows {
                let world = World::new(&place, families, *flows, limited)?;
                let new = |(hook, kind)| Cell::new(worlds.len(), &world.ring, hook, kind);
                cells.extend(kinds(families, limited).map(new));
                worlds.push(world);
            }
        }
    }
    for round in 0..=args.rounds {
        for cell in &mut cells {
            let values = cell.run(&mut worlds[cell.world], args.runs)?;
            // The first round warms up, and does not count.
            if round > 0 {
                cell.rounds.extend(median(&values));
            }
        }
        if !args.quiet {
            eprintln!("round {round} of {}", args.rounds);
        }
    }
    worlds.iter().try_for_each(World::left_nothing)?;
    cells.sort_by_key(|cell| {
        (cell.hook == Hook::Tc, Kind::ALL.iter().position(|kind| *kind == cell.kind))
    });
    Ok(Programs {
        kernel: machine::kernel(),
        cpu: machine::processor(),
        rounds: args.rounds,
        runs: args.runs,
        rows: cells.iter().map(|cell| row(cell, &worlds[cell.world])).collect::<Result<_>>()?,
    })
}

/// Kinds of packets in a world.
fn kinds(families: Families, limited: bool) -> impl Iterator<Item = (Hook, Kind)> {
    let others = families == Families::V4 && !limited;
    [Hook::Xdp, Hook::Tc].into_iter().flat_map(move |hook| {
        let kinds = Kind::ALL.into_iter();
        kinds
            .filter(move |kind| match kind {
                Kind::Relayed(Direction::ToPeer | Direction::ToClient) => true,
                // These do not reach the flows: one world is enough.
                Kind::Passed(_) => others,
            })
            .map(move |kind| (hook, kind))
    })
}

fn row(cell: &Cell, world: &World) -> Result<ProgramRow> {
    let spread = spread(&cell.rounds);
    Ok(ProgramRow {
        hook: cell.hook.to_string(),
        what: cell.kind.name().to_owned(),
        families: world.ring.families.name().to_owned(),
        flows: world.ring.flows,
        limited: world.ring.bytes_per_second > 0,
        packets: times(cell.hook, cell.kind),
        nanos: cell.rounds.clone(),
        spread: spread.context("no round was measured")?,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use test_support::require;

    use super::*;

    #[test]
    fn everything_is_measured_by_each_hook() {
        let privileged = lab_net::new_network_namespace().context("programs want root");
        let Some(_) = require(privileged) else { return };
        let missing = xdp_relay::device::missing_capabilities();
        let may_load = if missing.is_empty() {
            Ok(())
        } else {
            Err(anyhow::anyhow!("BPF programs want {}", missing.join(" and ")))
        };
        let Some(()) = require(may_load) else { return };
        let args = ProgramsArgs {
            // More than a test run has packets, and fewer.
            flows: vec![2, 256],
            rounds: 1,
            runs: 2,
            output: OutputArgs::default(),
            quiet: true,
        };
        let programs = measure(&args).unwrap();
        let rows = |of: &dyn Fn(&&ProgramRow) -> bool| programs.rows.iter().filter(of).count();
        for hook in ["xdp", "tc"] {
            let relayed = rows(&|row| row.hook == hook && row.what.starts_with("relayed"));
            assert_eq!(relayed, 2 * 3 * 2 * 2, "directions, families, limits, flows");
            let passed = rows(&|row| row.hook == hook && row.what.starts_with("passed"));
            assert_eq!(passed, 5 * 2, "frames that are passed");
        }
        assert!(programs.rows.iter().all(|row| row.nanos.len() == 1 && row.nanos[0] > 0.0));
        let names: BTreeSet<_> = Kind::ALL.map(Kind::name).into();
        assert_eq!(names.len(), Kind::ALL.len());
    }

    #[test]
    fn a_ring_has_an_even_number_of_flows() {
        assert_eq!(flows("1000"), Ok(1000));
        for wrong in ["0", "1", "3", "65536", "", "-2"] {
            assert!(flows(wrong).is_err(), "{wrong}");
        }
    }
}
