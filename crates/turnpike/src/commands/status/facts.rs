//! Facts about the server: addresses, certificates, limits, kernel path, confinement.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use admin::types::{
    Certificate, Confinement, ConfinementLayer, Offload, OffloadInterface, Overview, Redirect,
    RelayAddress, RelayPrefix, Status, Usage,
};

use crate::output::{self, grouped};

pub(super) fn facts(status: &Status, now: &Overview, columns: usize) -> String {
    let mut lines = vec![
        "server".to_owned(),
        format!("  realm        {}", status.realm),
        format!("  listeners    {}", status.listeners.join("  ")),
    ];
    lines.extend(draining(status));
    lines.extend(takeover_and_keeper(status));
    lines.extend(tls(status));
    lines.extend(redirects(&status.redirects));
    lines.extend(relays(status));
    lines.push(workers(status));
    lines.extend(resources(now));
    lines.extend(kernel_path(&status.offload, columns));
    lines.extend(confinement(&status.confinement, columns));
    lines.extend(sessions(status));
    lines.extend(rare_counts(status));
    lines.join("\n")
}

/// Describes allocations that were taken over from another process, and the state of the keeper.
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

/// Describes the servers that clients are redirected to. Returns `None` without such servers.
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

/// Describes the relay addresses with their ports, and prefixes with the number of addresses in
/// use.
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

/// Describes the resources in use, with their limits. Empty if the server does not report
/// resources.
fn resources(now: &Overview) -> Vec<String> {
    let line = |label: &str, Usage { used, most }: Usage, text: &dyn Fn(u64) -> String| {
        let most =
            most.map_or_else(|| "without a limit".to_owned(), |most| format!("of {}", text(most)));
        format!("  {label:<12} {} {most}", text(used))
    };
    let ports = Some(now.resources.relay_ports).filter(|ports| ports.most.is_some());
    let lines = [
        ports.map(|usage| line("relay ports", usage, &grouped)),
        now.resources.memory_bytes.map(|usage| line("memory", usage, &output::bytes)),
        now.resources.open_files.map(|usage| line("open files", usage, &grouped)),
    ];
    lines.into_iter().flatten().collect()
}

/// Describes the number of workers, and the kernel offloads that they use.
fn workers(status: &Status) -> String {
    let on = |on| if on { "on" } else { "off" };
    format!(
        "  workers      {} (GRO {}, GSO {})",
        status.workers,
        on(status.offload.gro),
        on(status.offload.gso)
    )
}

/// Describes the numbers of connections and DTLS sessions.
fn sessions(status: &Status) -> Vec<String> {
    let mut lines = Vec::new();
    if status.connections.total > 0 {
        lines.push(format!(
            "  connections  {} live, {} since the start",
            grouped(status.connections.live),
            grouped(status.connections.total)
        ));
    }
    // Copies from a keeper include sessions that started before this server.
    if status.associations.begun > 0 || status.associations.live > 0 {
        lines.push(format!(
            "  over DTLS    {} live, {} since the start",
            grouped(status.associations.live - status.associations.half_open),
            grouped(status.associations.established)
        ));
    }
    lines
}

/// Describes counts that are zero on most hosts: drops of the kernel, packets of senders on this
/// host, failed receive calls. Zeros are omitted.
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

/// Describes the number of allocations that a draining server waits for, and the remaining time.
fn draining(status: &Status) -> Option<String> {
    let left = output::duration(Duration::from_secs(status.drain_seconds_left?));
    let live = grouped(status.allocations.live);
    Some(format!("  draining     {live} left; the server stops in {left} at the latest"))
}

/// Describes the listeners for TLS, and the expiry of the certificates. Returns `None` without
/// certificates.
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

/// Describes the interfaces and channels of the kernel path, or the reason why it is off. Returns
/// `None` if the server does not report it.
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

/// Describes the confinement of the process. Returns `None` if the server does not report it.
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

/// Describes an interface: `eth0 by xdp`, `eth1 by tc (a reason)`, `tun0 not (a reason)`.
fn interface(interface: &OffloadInterface) -> String {
    let way = interface.hook.as_ref().map_or_else(|| "not".to_owned(), |hook| format!("by {hook}"));
    match interface.why.as_str() {
        "" => format!("{} {way}", interface.name),
        why => format!("{} {way} ({why})", interface.name),
    }
}

/// Lists public addresses, with this host's address if it differs.
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

#[cfg(test)]
mod tests {
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
    fn resources_are_told_with_their_limits() {
        let mut now = Overview::default();
        assert_eq!(resources(&now), [""; 0], "a server that does not tell");
        now.resources.relay_ports = Usage { used: 12, most: Some(16_384) };
        now.resources.memory_bytes = Some(Usage { used: 27 << 20, most: None });
        assert_eq!(
            resources(&now),
            ["  relay ports  12 of 16,384", "  memory       27.0 MiB without a limit"]
        );
    }
}
