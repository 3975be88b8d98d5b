//! `table`: the comparisons of the summary table, in one run.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::{Args, Parser};

use crate::arguments::{OutputArgs, seconds};
use crate::compare::{self, CompareArgs};
use crate::outcome::Outcome;
use crate::text;

/// A comparison: its servers, its loads, and further options of `compare`.
struct Part {
    servers: &'static [&'static str],
    cells: &'static str,
    options: &'static [&'static str],
    /// Servers of `--beside` take part.
    is_open: bool,
}

/// The comparisons. With the defaults all of them take some seventy minutes.
const PARTS: [Part; 7] = [
    Part {
        servers: &[
            "turnpike-sockets",
            "turnpike-prefix",
            "turnpike-tc",
            "turnpike-xdp",
            "coturn",
            "coturn-fastest",
        ],
        cells: "audio:100:c2p,audio:100:p2c",
        options: &[],
        is_open: true,
    },
    Part {
        servers: &["turnpike-sockets", "turnpike-tc", "turnpike-xdp", "coturn", "coturn-fastest"],
        cells: "video:100:c2p,video:100:p2c",
        options: &[],
        is_open: true,
    },
    Part {
        servers: &["turnpike-sockets", "turnpike-prefix", "turnpike-xdp", "coturn"],
        cells: "alloc,footprint",
        options: &[],
        is_open: true,
    },
    Part {
        servers: &["turnpike", "coturn"],
        cells: "audio:100:c2p,audio:100:p2c",
        options: &["--transport", "tcp"],
        is_open: false,
    },
    Part {
        servers: &["turnpike", "coturn"],
        cells: "audio:100:c2p,audio:100:p2c,alloc",
        options: &["--transport", "tls"],
        is_open: false,
    },
    Part {
        // coturn does not always open fifty sessions over DTLS at once.
        servers: &["turnpike", "coturn"],
        cells: "audio:30:c2p,audio:30:p2c,alloc",
        options: &["--transport", "dtls"],
        is_open: false,
    },
    Part {
        // The same packets per second, without a bulk transfer among the flows and with one.
        servers: &["turnpike-sockets", "coturn"],
        cells: "audio:100:c2p:1200,uneven:100:c2p,audio:100:p2c:1200,uneven:100:p2c",
        options: &["--backend", "sockets", "--max-rate", "20000", "--common", "1"],
        is_open: false,
    },
];

/// Arguments of `table`.
#[derive(Clone, Debug, Args)]
pub struct TableArgs {
    /// Append the result of each comparison to this file as one line of JSON, as soon as it is
    /// there
    #[arg(long, value_name = "FILE")]
    json: PathBuf,
    /// Rounds of each comparison; fewer than six give no verdict
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Measure each run this long, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "0.8", value_parser = seconds)]
    duration: Duration,
    /// Make only this comparison, of 1 to 7; may be given more than once
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=7))]
    part: Vec<u32>,
    /// A further server, NAME=COMMAND as `compare` takes it, for the comparisons over UDP
    #[arg(long, value_name = "NAME=COMMAND")]
    beside: Vec<String>,
    /// Show no progress on standard error
    #[arg(long)]
    quiet: bool,
}

/// A command line of `compare`, as users write it.
#[derive(Parser)]
struct CompareLine {
    #[command(flatten)]
    args: CompareArgs,
}

/// Runs the comparisons, and prints the summary. One that fails is told, and the others go on.
///
/// # Errors
/// A comparison that could not be made; a file that cannot be written.
pub fn run(args: &TableArgs) -> Result<()> {
    let output = OutputArgs { json: Some(args.json.clone()) };
    let (mut outcomes, mut failed) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(lines(args)?) {
        if !args.part.is_empty() && !args.part.contains(&number) {
            continue;
        }
        eprintln!("comparison {number} of {}", PARTS.len());
        match compare::measure(&line) {
            Ok(compared) => {
                let outcome = Outcome::Compare(compared);
                output.write(&outcome)?;
                outcomes.push(outcome);
            }
            Err(error) => {
                eprintln!("comparison {number}: {error:#}");
                failed.push(number.to_string());
            }
        }
    }
    print!("{}", text::summary(&outcomes));
    if failed.is_empty() { Ok(()) } else { Err(anyhow!("failed: {}", failed.join(", "))) }
}

/// The comparisons, as `compare` takes them.
fn lines(args: &TableArgs) -> Result<Vec<CompareArgs>> {
    let rounds = args.rounds.to_string();
    let line = |part: &Part| {
        let mut words = vec!["compare", "--cells", part.cells, "--rounds", &rounds];
        let own = part.servers.iter().copied();
        let beside = args.beside.iter().map(String::as_str).filter(|_| part.is_open);
        own.chain(beside).for_each(|server| words.extend(["--server", server]));
        words.extend(part.options);
        let CompareLine { args: line } = CompareLine::try_parse_from(words)?;
        Ok(CompareArgs { duration: args.duration, quiet: args.quiet, ..line })
    };
    PARTS.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_comparisons_are_command_lines_that_exist() {
        let args = TableArgs {
            json: "x".into(),
            rounds: 7,
            duration: Duration::from_secs(2),
            part: Vec::new(),
            beside: vec!["other=serve {secret}".into()],
            quiet: true,
        };
        let lines = lines(&args).unwrap();
        assert_eq!(lines.len(), PARTS.len());
        for (line, part) in lines.iter().zip(PARTS) {
            assert_eq!((line.rounds, line.duration, line.quiet), (7, Duration::from_secs(2), true));
            assert_eq!(line.server.len(), part.servers.len() + usize::from(part.is_open));
            assert!(line.server.iter().any(|server| server.name == "coturn"));
        }
    }
}
