//! Counters of the server: traffic, and packets and requests by fate or reason.

use std::collections::BTreeMap;

use admin::types::{Bucket, Status, Traffic, TrafficRates};

use crate::output::{self, Align, Table, grouped};

pub(super) fn traffic(status: &Status, rates: &TrafficRates) -> String {
    let mut columns = vec![
        ("traffic", Align::Left),
        ("packets", Align::Right),
        ("bytes", Align::Right),
        ("packets/s", Align::Right),
        ("Mbit/s", Align::Right),
    ];
    let (all, kernel) = (&status.traffic, &status.offload.by_kernel);
    if *kernel != Traffic::default() {
        columns.push(("by the kernel", Align::Right));
    }
    let mut table = Table::new(&columns);
    table.indent("  ");
    for (name, all, kernel, rate) in [
        ("from clients", all.from_clients, kernel.from_clients, rates.from_clients),
        ("to peers", all.to_peers, kernel.to_peers, rates.to_peers),
        ("from peers", all.from_peers, kernel.from_peers, rates.from_peers),
        ("to clients", all.to_clients, kernel.to_clients, rates.to_clients),
    ] {
        table.row([
            name.to_owned(),
            grouped(all.packets),
            output::bytes(all.bytes),
            grouped(rate.packets_per_second),
            output::megabits(rate.bits_per_second),
            format!("{:.1} %", percent(kernel.packets, all.packets)),
        ]);
    }
    table.render()
}

/// Returns a percentage.
fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

/// Formats counts, largest first.
pub(super) fn counted(counts: &BTreeMap<String, u64>) -> String {
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|(name, count)| (u64::MAX - *count, *name));
    let width = counts.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let line = |(name, count): (&String, &u64)| format!("  {name:width$}  {:>13}", grouped(*count));
    counts.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

pub(super) fn histogram(name: &str, buckets: &[Bucket]) -> String {
    let total: u64 = buckets.iter().map(|bucket| bucket.count).sum();
    let mut lines = vec![name.replace('_', " ")];
    for bucket in buckets {
        let bound = bucket.up_to.map_or_else(|| "more".to_owned(), |up_to| format!("<= {up_to}"));
        let percent = percent(bucket.count, total);
        lines.push(format!("  {bound:<6}  {:>13}  {percent:5.1} %", grouped(bucket.count)));
    }
    lines.join("\n")
}
