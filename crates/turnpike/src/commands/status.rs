//! `turnpike status`: reports the state of the running server in five sentences, with the figures.

mod counts;
mod facts;
mod summary;

use admin::types::{Overview, ProblemNow, Status, TrafficRates, WorkerLoad};
use serde::Serialize;

use self::counts::{counted, histogram, traffic};
use crate::cli::{self, PathOptions};
use crate::commands::ask;
use crate::failure::Result;
use crate::output;

/// State of the server, for programs.
#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    status: &'a Status,
    now: Now<'a>,
}

/// Parts of the overview that the state lacks.
#[derive(Debug, Serialize)]
struct Now<'a> {
    rates: TrafficRates,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel_share_percent: Option<u64>,
    workers: &'a [WorkerLoad],
    problems: &'a [ProblemNow],
}

pub(crate) fn run(paths: &PathOptions, args: &cli::Status) -> Result<()> {
    let (status, overview) =
        ask(paths, async |client| Ok((client.status().await?, client.overview().await?)))?;
    if args.output.json {
        let Overview { rates, kernel_share_percent, workers, problems, .. } = &overview;
        let (rates, kernel_share_percent) = (*rates, *kernel_share_percent);
        let now = Now { rates, kernel_share_percent, workers, problems };
        return output::print_json(&Report { status: &status, now });
    }
    output::print(&describe(&status, &overview, args.verbose))
}

fn describe(status: &Status, overview: &Overview, verbose: bool) -> String {
    let columns = output::columns();
    let mut parts = vec![summary::summary(status, overview, columns)];
    parts.extend(problems(&overview.problems, columns));
    parts.push(facts::facts(status, overview, columns));
    parts.push(traffic(status, &overview.rates));
    for (heading, counts) in [
        ("packets, by fate", &status.fates),
        ("dropped packets, by reason", &status.drops),
        ("packets that the kernel path left to the sockets, by reason", &status.offload.passed),
        ("refused requests, by reason", &status.refusals),
        ("ended allocations, by reason", &status.ended),
        ("refused connections, by reason", &status.connections.refused),
        ("ended connections, by reason", &status.connections.ended),
        ("refused DTLS sessions, by reason", &status.associations.refused),
        ("ended DTLS sessions, by reason", &status.associations.ended),
    ] {
        if !counts.is_empty() {
            parts.push(format!("{heading}\n{}", counted(counts)));
        }
    }
    if verbose {
        for (name, buckets) in &status.occupancy {
            parts.push(histogram(name, buckets));
        }
    }
    parts.extend(differences(&status.coturn_differences, columns));
    parts.join("\n\n")
}

/// Describes differences from coturn, for a server with coturn's configuration.
fn differences(sentences: &[String], columns: usize) -> Option<String> {
    let list = output::list(sentences, columns);
    (!list.is_empty()).then(|| format!("differs from coturn here\n{list}"))
}

/// Describes present faults with the sentences of the status page.
fn problems(problems: &[ProblemNow], columns: usize) -> Option<String> {
    if problems.is_empty() {
        return None;
    }
    let line = |problem: &ProblemNow| {
        let label = if problem.is_severe { "  SEVERE  " } else { "          " };
        let text = output::wrapped(&problem.text, label.len(), columns);
        format!("{label}{}", text.trim_start())
    };
    let lines: Vec<String> = problems.iter().map(line).collect();
    Some(format!("wrong now\n{}", lines.join("\n")))
}

#[cfg(test)]
mod tests {
    use admin::types::{Bucket, RelayAddress, Volume};

    use super::*;

    #[test]
    fn shows_what_matters_and_no_more() {
        let status = Status {
            version: "1.2.3".into(),
            uptime_seconds: 3700,
            draining: true,
            drain_seconds_left: Some(90),
            listeners: vec!["0.0.0.0:3478".into()],
            relay: vec![RelayAddress {
                local: "10.0.0.5".into(),
                public: "203.0.113.7".into(),
                is_missing: false,
            }],
            relay_ports: "49152-65535".into(),
            drops: [("no_permission".to_owned(), 5), ("bandwidth".to_owned(), 50)].into(),
            occupancy: [(
                "received_segments".to_owned(),
                vec![Bucket { up_to: Some(1), count: 3 }, Bucket { up_to: None, count: 1 }],
            )]
            .into(),
            ..Status::default()
        };
        let text = describe(&status, &Overview::default(), false);
        assert!(text.starts_with("turnpike 1.2.3, started 1 h 1 min ago, is draining"), "{text}");
        let left = "draining     0 left; the server stops in 1 min 30 s at the latest";
        assert!(text.contains(left), "{text}");
        assert!(text.contains("203.0.113.7 (here 10.0.0.5), ports 49152-65535"), "{text}");
        assert!(text.find("bandwidth").unwrap() < text.find("no_permission").unwrap(), "{text}");
        assert!(!text.contains("refused requests"), "nothing was refused: {text}");
        assert!(!text.contains("segments"), "{text}");
        assert!(!text.contains("kernel drops"), "{text}");
        let verbose = describe(&status, &Overview::default(), true);
        assert!(verbose.contains("received segments\n  <= 1"), "{verbose}");
        assert!(verbose.contains("75.0 %"), "{verbose}");
    }

    #[test]
    fn rates_and_present_faults_are_those_of_the_page() {
        use admin::types::Rate;
        let fault = |is_severe, text: &str| ProblemNow { is_severe, text: text.into() };
        let mut now = Overview {
            problems: vec![
                fault(true, "Worker 0 takes 97 % of its core."),
                fault(false, "It drains."),
            ],
            ..Overview::default()
        };
        now.rates.to_peers = Rate { packets_per_second: 51_200, bits_per_second: 64_500_000 };
        let text = describe(&Status::default(), &now, false);
        let faults =
            "\n\nwrong now\n  SEVERE  Worker 0 takes 97 % of its core.\n          It drains.\n\n";
        assert!(text.contains(faults), "{text}");
        let line = text.lines().find(|line| line.starts_with("  to peers")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words, ["to", "peers", "0", "0", "B", "51,200", "64.500"]);
        now.problems.clear();
        assert!(describe(&Status::default(), &now, false).contains("\nNothing is wrong now.\n"));
    }

    #[test]
    fn what_the_kernel_carried_is_a_share_of_the_whole() {
        let mut status = Status::default();
        status.traffic.from_clients = Volume { packets: 2000, bytes: 300_000 };
        status.traffic.to_peers = Volume { packets: 1900, bytes: 290_000 };
        assert!(
            !describe(&status, &Overview::default(), false).contains("kernel"),
            "nothing to tell"
        );

        status.offload.by_kernel.from_clients = Volume { packets: 1500, bytes: 200_000 };
        status.offload.passed = [("refresh".to_owned(), 7)].into();
        let text = describe(&status, &Overview::default(), false);
        let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap().to_owned();
        assert!(line("traffic ").ends_with("by the kernel"), "{text}");
        assert!(line("from clients").ends_with("75.0 %"), "{text}");
        assert!(line("to peers").ends_with("0.0 %"), "{text}");
        assert!(text.contains("left to the sockets, by reason\n  refresh "), "{text}");
        assert!(!text.contains("lost by XDP") && !text.contains("this machine"), "{text}");
        status.offload.partial_checksums = 5678;
        let text = describe(&status, &Overview::default(), false);
        assert!(text.contains("  this machine 5,678 packets of its own senders"), "{text}");
        status.offload.redirects_lost = Some(1234);
        let text = describe(&status, &Overview::default(), false);
        assert!(text.contains("lost by XDP  1,234 (frames that no interface took"), "{text}");
    }
}
