//! `turnpike status`: what the running server is and does, on one screen.

use std::collections::BTreeMap;
use std::time::Duration;

use admin::types::{Bucket, RelayAddress, Status};

use crate::cli::{self, Place};
use crate::commands::ask;
use crate::failure::Result;
use crate::output::{self, Align, Table, grouped};

pub(crate) fn run(place: &Place, args: &cli::Status) -> Result<()> {
    let status = ask(place, async |client| client.status().await)?;
    if args.output.json {
        return output::print_json(&status);
    }
    output::print(&describe(&status, args.verbose))
}

fn describe(status: &Status, verbose: bool) -> String {
    let mut parts = vec![facts(status), traffic(status)];
    for (heading, counts) in [
        ("packets, by what became of them", &status.fates),
        ("dropped packets, by reason", &status.drops),
        ("refused requests, by reason", &status.refusals),
        ("ended allocations, by reason", &status.ended),
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
    parts.join("\n\n")
}

fn facts(status: &Status) -> String {
    let state = if status.draining { ", draining" } else { "" };
    let on = |on| if on { "on" } else { "off" };
    let mut lines = vec![
        format!(
            "turnpike {}, up {}{state}",
            status.version,
            output::duration(Duration::from_secs(status.uptime_seconds))
        ),
        format!("  realm        {}", status.realm),
        format!("  listeners    {}", status.listeners.join("  ")),
        format!(
            "  relays from  {}, ports {}",
            status.relay.iter().map(relay).collect::<Vec<_>>().join(", "),
            status.relay_ports
        ),
        format!(
            "  workers      {} (GRO {}, GSO {})",
            status.workers,
            on(status.offload.gro),
            on(status.offload.gso)
        ),
        format!(
            "  allocations  {} live, {} since the start",
            grouped(status.allocations.live),
            grouped(status.allocations.total)
        ),
    ];
    if status.kernel_drops > 0 {
        lines.push(format!(
            "  kernel drops {} (receive buffers were full: see sockets.receive_buffer and \
             net.core.rmem_max)",
            grouped(status.kernel_drops)
        ));
    }
    if status.receive_errors > 0 {
        lines.push(format!("  receive errors {}", grouped(status.receive_errors)));
    }
    lines.join("\n")
}

/// An address as clients are told it, and what it is on this host where that differs.
fn relay(relay: &RelayAddress) -> String {
    if relay.local == relay.public {
        return relay.public.clone();
    }
    format!("{} (here {})", relay.public, relay.local)
}

fn traffic(status: &Status) -> String {
    let mut table =
        Table::new(&[("traffic", Align::Left), ("packets", Align::Right), ("bytes", Align::Right)]);
    let traffic = &status.traffic;
    for (name, volume) in [
        ("  from clients", traffic.from_clients),
        ("  to peers", traffic.to_peers),
        ("  from peers", traffic.from_peers),
        ("  to clients", traffic.to_clients),
    ] {
        table.row([name.to_owned(), grouped(volume.packets), output::bytes(volume.bytes)]);
    }
    table.render()
}

/// Counts, the largest first.
fn counted(counts: &BTreeMap<String, u64>) -> String {
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|(name, count)| (u64::MAX - *count, *name));
    let width = counts.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let line = |(name, count): (&String, &u64)| format!("  {name:width$}  {:>13}", grouped(*count));
    counts.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

fn histogram(name: &str, buckets: &[Bucket]) -> String {
    let total: u64 = buckets.iter().map(|bucket| bucket.count).sum();
    let mut lines = vec![name.replace('_', " ")];
    for bucket in buckets {
        let bound = bucket.up_to.map_or_else(|| "more".to_owned(), |up_to| format!("<= {up_to}"));
        // Percentages for people: rounding is the purpose.
        let percent = bucket.count as f64 * 100.0 / total.max(1) as f64;
        lines.push(format!("  {bound:<6}  {:>13}  {percent:5.1} %", grouped(bucket.count)));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_what_matters_and_no_more() {
        let status = Status {
            version: "1.2.3".into(),
            uptime_seconds: 3700,
            draining: true,
            listeners: vec!["0.0.0.0:3478".into()],
            relay: vec![RelayAddress { local: "10.0.0.5".into(), public: "203.0.113.7".into() }],
            relay_ports: "49152-65535".into(),
            drops: [("no_permission".to_owned(), 5), ("bandwidth".to_owned(), 50)].into(),
            occupancy: [(
                "received_segments".to_owned(),
                vec![Bucket { up_to: Some(1), count: 3 }, Bucket { up_to: None, count: 1 }],
            )]
            .into(),
            ..Status::default()
        };
        let text = describe(&status, false);
        assert!(text.starts_with("turnpike 1.2.3, up 1 h 1 min, draining\n"), "{text}");
        assert!(text.contains("203.0.113.7 (here 10.0.0.5), ports 49152-65535"), "{text}");
        assert!(text.find("bandwidth").unwrap() < text.find("no_permission").unwrap(), "{text}");
        assert!(!text.contains("refused requests"), "nothing was refused: {text}");
        assert!(!text.contains("segments"), "{text}");
        assert!(!text.contains("kernel drops"), "{text}");
        let verbose = describe(&status, true);
        assert!(verbose.contains("received segments\n  <= 1"), "{verbose}");
        assert!(verbose.contains("75.0 %"), "{verbose}");
    }
}
