//! `turnpike status`: the state of the running server, on one screen.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use admin::types::{
    Bucket, Certificate, Confinement, ConfinementLayer, Offload, OffloadInterface, Overview,
    ProblemNow, Redirect, RelayAddress, RelayPrefix, Status, Traffic, TrafficRates, WorkerLoad,
};
use serde::Serialize;

use crate::cli::{self, PathOptions};
use crate::commands::ask;
use crate::failure::Result;
use crate::output::{self, Align, Table, grouped};

/// The state for programs.
#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    status: &'a Status,
    now: Now<'a>,
}

/// The part of the overview that the state has not.
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
    let mut parts = vec![
        facts(status, columns),
        problems(&overview.problems, columns),
        traffic(status, &overview.rates),
    ];
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

/// Differences from coturn, of a server from coturn's configuration.
fn differences(sentences: &[String], columns: usize) -> Option<String> {
    let list = output::list(sentences, columns);
    (!list.is_empty()).then(|| format!("differs from coturn here\n{list}"))
}

/// The sentences of the page about present faults.
fn problems(problems: &[ProblemNow], columns: usize) -> String {
    if problems.is_empty() {
        return "nothing is wrong now".to_owned();
    }
    let line = |problem: &ProblemNow| {
        let label = if problem.is_severe { "  SEVERE  " } else { "          " };
        let text = output::wrapped(&problem.text, label.len(), columns);
        format!("{label}{}", text.trim_start())
    };
    let lines: Vec<String> = problems.iter().map(line).collect();
    format!("wrong now\n{}", lines.join("\n"))
}

fn facts(status: &Status, columns: usize) -> String {
    let state = if status.draining { ", draining" } else { "" };
    let mut lines = vec![
        format!(
            "turnpike {}, up {}{state}",
            status.version,
            output::duration(Duration::from_secs(status.uptime_seconds))
        ),
        format!("  realm        {}", status.realm),
        format!("  listeners    {}", status.listeners.join("  ")),
    ];
    lines.extend(draining(status));
    lines.extend(takeover_and_keeper(status));
    lines.extend(tls(status));
    lines.extend(redirects(&status.redirects));
    lines.extend(relays(status));
    lines.push(workers(status));
    lines.extend(kernel_path(&status.offload, columns));
    lines.extend(confinement(&status.confinement, columns));
    lines.extend(sessions(status));
    lines.extend(rare_counts(status));
    lines.join("\n")
}

/// Allocations that were taken over from another process, and the state of the keeper.
fn takeover_and_keeper(status: &Status) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(status.took_over.as_ref().map(|it| {
        format!(
            "  took over    {} allocations of process {}, in a pause of {:.1} ms",
            it.allocations,
            it.process,
            it.pause_microseconds as f64 / 1000.0
        )
    }));
    lines.extend(status.keeper.map(|process| {
        format!("  keeper       process {process} has copies, for the case of a crash")
    }));
    lines.extend(
        status.keeper_unusable.iter().map(|why| format!("  keeper       cannot be used: {why}")),
    );
    lines
}

/// Servers that clients are redirected to. `None` without any.
fn redirects(redirects: &[Redirect]) -> Option<String> {
    if redirects.is_empty() {
        return None;
    }
    let server = |one: &Redirect| {
        let transport =
            if one.transport == "any" { "" } else { &format!(" for {}", one.transport) };
        let silent = if one.answers { "" } else { " (does not answer)" };
        format!("{}{transport}{silent}", one.server)
    };
    let servers: Vec<String> = redirects.iter().map(server).collect();
    Some(format!("  redirects to {}", servers.join(", ")))
}

/// Relay addresses with their ports, and prefixes with the number of addresses in use.
fn relays(status: &Status) -> Vec<String> {
    let mut lines = vec![format!(
        "  relays from  {}, ports {}",
        relayed_from(&status.relay),
        status.relay_ports
    )];
    lines.extend(status.relay_prefixes.iter().map(|prefix| {
        let RelayPrefix { network, used, most, .. } = prefix;
        format!("               {network}, an address for each allocation: {used} of {most} in use")
    }));
    lines
}

/// Number of workers, and their offloads of the kernel.
fn workers(status: &Status) -> String {
    let on = |on| if on { "on" } else { "off" };
    format!(
        "  workers      {} (GRO {}, GSO {})",
        status.workers,
        on(status.offload.gro),
        on(status.offload.gso)
    )
}

/// Numbers of allocations, connections and DTLS sessions.
fn sessions(status: &Status) -> Vec<String> {
    let mut lines = vec![format!(
        "  allocations  {} live, {} since the start",
        grouped(status.allocations.live),
        grouped(status.allocations.total)
    )];
    if status.connections.total > 0 {
        lines.push(format!(
            "  connections  {} live, {} since the start",
            grouped(status.connections.live),
            grouped(status.connections.total)
        ));
    }
    // A keeper's copies have sessions of before the start.
    if status.associations.begun > 0 || status.associations.live > 0 {
        lines.push(format!(
            "  over DTLS    {} live, {} since the start",
            grouped(status.associations.live - status.associations.half_open),
            grouped(status.associations.established)
        ));
    }
    lines
}

/// Counts that are zero on most hosts: drops of the kernel, packets of senders on this host, failed
/// receive calls. Zeros are left out.
fn rare_counts(status: &Status) -> Vec<String> {
    let mut lines = Vec::new();
    if status.kernel_drops > 0 {
        lines.push(format!(
            "  kernel drops {} (receive buffers were full: see sockets.receive_buffer and \
             net.core.rmem_max)",
            grouped(status.kernel_drops)
        ));
    }
    if status.offload.partial_checksums > 0 {
        lines.push(format!(
            "  this machine {} packets of its own senders were relayed by the kernel",
            grouped(status.offload.partial_checksums)
        ));
    }
    if let Some(lost) = status.offload.redirects_lost.filter(|lost| *lost > 0) {
        lines.push(format!(
            "  lost by XDP  {} (frames that no interface took, of all programs of this host: see \
             `ip -s link`)",
            grouped(lost)
        ));
    }
    if status.receive_errors > 0 {
        lines.push(format!("  receive errors {}", grouped(status.receive_errors)));
    }
    lines
}

/// Number of allocations that a draining server waits for, and the time left.
fn draining(status: &Status) -> Option<String> {
    let left = output::duration(Duration::from_secs(status.drain_seconds_left?));
    let live = grouped(status.allocations.live);
    Some(format!("  draining     {live} left; the server stops in {left} at the latest"))
}

/// Listeners for TLS, and expiry of the certificates. Nothing of a server without one.
fn tls(status: &Status) -> Option<String> {
    let first = status.certificates.first()?;
    let mut places = vec!["at the listeners"];
    places.extend(status.tls_listeners.iter().map(String::as_str));
    let now = SystemTime::now();
    let until = |one: &Certificate| {
        let ends = UNIX_EPOCH + Duration::from_secs(one.expires_unix);
        match ends.duration_since(now) {
            Ok(left) => format!("{} (valid for {})", one.file, output::duration(left)),
            Err(_) => format!("{} (EXPIRED)", one.file),
        }
    };
    let label = if status.dtls { "TLS, DTLS   " } else { "TLS         " };
    let mut said = format!("  {label} {}; {}", places.join("  "), until(first));
    for one in &status.certificates[1..] {
        // Writing to a String cannot fail.
        let _ = write!(said, "\n               {}", until(one));
    }
    Some(said)
}

/// Interfaces and channels of the kernel path, or the reason for its absence. Nothing of a
/// server that does not report it.
fn kernel_path(offload: &Offload, columns: usize) -> Option<String> {
    const LABEL: &str = "  kernel path  ";
    if offload.mode.is_empty() {
        return None;
    }
    let mut said: Vec<String> =
        offload.off_because.iter().map(|why| format!("off: {why}")).collect();
    said.extend(offload.interfaces.iter().map(interface));
    said.extend(offload.settings.iter().map(|setting| format!("{setting} is on for it")));
    if offload.off_because.is_none() {
        let (flows, most) = (grouped(offload.flows), grouped(offload.flows_max));
        let memory = output::bytes(offload.memory_bytes);
        said.push(format!("{flows} of {most} channels, {memory}"));
        said.push(output::PAST_THE_FIREWALL.to_owned());
    }
    let said = output::wrapped(&said.join("; "), LABEL.len(), columns);
    Some(format!("{LABEL}{}", said.trim_start()))
}

/// Confinement of the process. Nothing of a server that does not report it.
fn confinement(confinement: &Confinement, columns: usize) -> Option<String> {
    const LABEL: &str = "  confinement  ";
    if *confinement == Confinement::default() {
        return None;
    }
    let layer = |name: &str, layer: &ConfinementLayer| {
        let state = if layer.on { "on" } else { "off" };
        let colon = if layer.why.is_empty() { "" } else { ": " };
        format!("{name} {state}{colon}{}", layer.why)
    };
    let mut said =
        vec![layer("landlock", &confinement.landlock), layer("seccomp", &confinement.seccomp)];
    if confinement.capabilities.is_empty() {
        said.push("no capabilities".to_owned());
    }
    let mut reasons: Vec<&str> = confinement.capabilities.iter().map(|one| &*one.why).collect();
    reasons.dedup();
    for why in reasons {
        let names = confinement.capabilities.iter().filter(|one| one.why == why);
        let names: Vec<&str> = names.map(|one| &*one.name).collect();
        said.push(format!("{} for {why}", names.join(", ")));
    }
    let said = output::wrapped(&said.join("; "), LABEL.len(), columns);
    Some(format!("{LABEL}{}", said.trim_start()))
}

/// `eth0 by xdp`, `eth1 by tc (a reason)`, `tun0 not (a reason)`.
fn interface(interface: &OffloadInterface) -> String {
    let way = interface.hook.as_ref().map_or_else(|| "not".to_owned(), |hook| format!("by {hook}"));
    match interface.why.as_str() {
        "" => format!("{} {way}", interface.name),
        why => format!("{} {way} ({why})", interface.name),
    }
}

/// The public address, and the one of this host where that differs.
fn relayed_from(relays: &[RelayAddress]) -> String {
    if relays.is_empty() {
        return "no address of its own".to_owned();
    }
    relays.iter().map(relay).collect::<Vec<_>>().join(", ")
}

fn relay(relay: &RelayAddress) -> String {
    let RelayAddress { local, public, is_missing } = relay;
    let missing = if *is_missing { " (missing)" } else { "" };
    if local == public {
        return format!("{public}{missing}");
    }
    format!("{public} (here {local}){missing}")
}

fn traffic(status: &Status, rates: &TrafficRates) -> String {
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

/// For people: rounding is the purpose.
fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
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
        let percent = percent(bucket.count, total);
        lines.push(format!("  {bound:<6}  {:>13}  {percent:5.1} %", grouped(bucket.count)));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use admin::types::Volume;

    use super::*;

    #[test]
    fn the_confinement_is_a_line_that_says_what_is_not_in_force() {
        use admin::types::Capability;
        let capability =
            |name: &str| Capability { name: name.into(), why: "the kernel path".into() };
        let mut one = Confinement {
            landlock: ConfinementLayer { on: true, why: String::new() },
            seccomp: ConfinementLayer { on: false, why: "the kernel has none".into() },
            capabilities: vec![capability("CAP_BPF"), capability("CAP_NET_ADMIN")],
        };
        assert_eq!(
            confinement(&one, 200).unwrap(),
            "  confinement  landlock on; seccomp off: the kernel has none; \
             CAP_BPF, CAP_NET_ADMIN for the kernel path"
        );
        one.capabilities.clear();
        assert!(confinement(&one, 200).unwrap().ends_with("; no capabilities"));
        assert_eq!(confinement(&Confinement::default(), 200), None);
    }

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
        assert!(text.starts_with("turnpike 1.2.3, up 1 h 1 min, draining\n"), "{text}");
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
        assert!(describe(&Status::default(), &now, false).contains("\n\nnothing is wrong now\n\n"));
    }

    #[test]
    fn certificates_are_told_with_their_ends() {
        let in_days = |days: u64| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            now + days * 86_400 + 60
        };
        let one = |file: &str, expires_unix| Certificate { file: file.into(), expires_unix };
        let status = Status {
            tls_listeners: vec!["0.0.0.0:5349".into()],
            certificates: vec![one("a.pem", in_days(30)), one("b.pem", 1)],
            ..Status::default()
        };
        assert_eq!(
            tls(&status).unwrap(),
            "  TLS          at the listeners  0.0.0.0:5349; a.pem (valid for 30 d)\n\
             \x20              b.pem (EXPIRED)"
        );
        assert_eq!(tls(&Status::default()), None);
    }

    fn interface(name: &str, hook: Option<&str>, why: &str) -> OffloadInterface {
        OffloadInterface { name: name.into(), hook: hook.map(Into::into), why: why.into() }
    }

    #[test]
    fn the_kernel_path_is_told_in_words() {
        let mut offload = Offload {
            mode: "auto".into(),
            interfaces: vec![
                interface("eth0", Some("xdp"), ""),
                interface("eth1", Some("tc"), "a virtual link: packets come merged"),
                interface("tun0", None, "no Ethernet frames"),
            ],
            flows: 1234,
            flows_max: 16_384,
            memory_bytes: 9 << 20,
            ..Offload::default()
        };
        assert_eq!(
            kernel_path(&offload, 60).unwrap(),
            "  kernel path  eth0 by xdp; eth1 by tc (a virtual link:\n\
             \x20              packets come merged); tun0 not (no Ethernet\n\
             \x20              frames); 1,234 of 16,384 channels, 9.00 MiB;\n\
             \x20              this host's firewall sees one packet of each\n\
             \x20              flow in two seconds; offload.mode = \"off\" has\n\
             \x20              it see all"
        );
        offload.off_because = Some("CAP_BPF is missing".into());
        offload.interfaces.clear();
        let text = kernel_path(&offload, 80).unwrap();
        assert_eq!(text, "  kernel path  off: CAP_BPF is missing");
        assert_eq!(kernel_path(&Offload::default(), 80), None, "a server that does not tell");
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
