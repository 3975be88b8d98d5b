//! Checks of the server's host that affect the configuration: addresses, interfaces, ports, limits,
//! firewall.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::Path;

use admin::Client;
use dataplane::NetOptions;
use linux_net::{own_prefixes, raise_open_files};
use settings::{HostAddresses, Place, RelayEntry, RelayPair, Settings};

use super::firewall;
use crate::boot::Descriptors;
use crate::findings::{Finding, Severity};
use crate::{cores, relay_prefixes, sockets, warnings};

/// Findings about the host, and further results as one line each.
#[derive(Debug, Default)]
pub(super) struct HostReport {
    pub(super) findings: Vec<Finding>,
    pub(super) notes: Vec<String>,
}

/// Returns findings about addresses and interfaces of the configuration that this host lacks.
pub(super) fn missing(
    settings: &Settings,
    addresses: &HostAddresses,
    severity: Severity,
) -> Vec<Finding> {
    let mut all = Vec::new();
    let mut add = |key, place, what: String, help: &str| {
        all.push(Finding { severity, ..Finding::warning(settings, key, what, help).at(place) });
    };
    for (index, entry) in settings.relay.addresses.iter().enumerate() {
        if let RelayEntry::Address { local, .. } = entry
            && !addresses.has(*local)
        {
            add(
                "relay.addresses",
                settings.entry_place("relay.addresses", index),
                format!("{local} is no address of this host"),
                "name one of `ip address`; behind NAT the host's own, and the public one in relay.external",
            );
        }
    }
    for (key, name) in [
        ("sockets.listen_device", &settings.sockets.listen_device),
        ("sockets.relay_device", &settings.sockets.relay_device),
    ] {
        let name = name.as_ref().map(|name| name.as_str());
        if let Some(name) = name.filter(|name| linux_net::interface_index(name).is_err()) {
            let what = format!("this host has no interface {name}");
            add(key, settings.place(key), what, "name one of `ip link`; the server waits for it");
        }
    }
    let own = own_prefixes().unwrap_or_default();
    for (index, prefix) in settings.relay.prefixes.iter().enumerate() {
        if !relay_prefixes::is_delivered(prefix.0, &own) {
            add(
                "relay.prefixes",
                settings.entry_place("relay.prefixes", index),
                format!("this host does not deliver {} to itself", prefix.0),
                &relay_prefixes::route(prefix.0),
            );
        }
    }
    for (key, list) in [("listen", &settings.listen), ("tls.listen", &settings.tls.listen)] {
        for (index, endpoint) in list.iter().enumerate() {
            let ip = endpoint.0.ip();
            if !ip.is_unspecified() && !ip.is_loopback() && !addresses.has(ip) {
                let help = "name one of `ip address`, or 0.0.0.0 for all";
                let what = format!("{ip} is no address of this host");
                add(key, settings.entry_place(key, index), what, help);
            }
        }
    }
    for (index, name) in settings.offload.interfaces.iter().enumerate() {
        if !Path::new("/sys/class/net").join(name.as_str()).exists() {
            add(
                "offload.interfaces",
                settings.entry_place("offload.interfaces", index),
                format!("there is no interface {}", name.as_str()),
                "`ip link` lists them; the kernel path uses it once it is there",
            );
        }
    }
    all
}

/// Examines this host, assuming that the server will run on it.
pub(super) fn examine(
    settings: &Settings,
    relays: &[RelayPair],
    addresses: &HostAddresses,
    names: &[String],
) -> HostReport {
    let mut report = HostReport::default();
    report.findings.extend(missing(settings, addresses, Severity::Problem));
    let running = running_listeners(settings);
    ports(settings, &running, &mut report);
    limits(settings, relays.len(), &mut report);
    reachability(settings, relays, &mut report);
    resolution(settings, relays, names, &mut report);
    firewall(settings, &mut report);
    report
}

/// Returns the listeners of a server that already runs with this configuration.
fn running_listeners(settings: &Settings) -> Vec<SocketAddr> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return Vec::new() };
    let socket = settings.control_socket();
    let status = runtime.block_on(async { Client::connect(&socket).await?.status().await });
    let Ok(status) = status else { return Vec::new() };
    let all = status.listeners.iter().chain(&status.tls_listeners);
    all.filter_map(|at| at.parse().ok()).collect()
}

fn ports(settings: &Settings, running: &[SocketAddr], report: &mut HostReport) {
    let plain = settings.listeners();
    let (udp, tcp) = (settings.udp.enabled, settings.tcp.enabled);
    let listeners = plain.iter().map(|at| (*at, udp, tcp));
    let (tls, dtls) = (settings.tls.enabled, settings.serves_dtls());
    let tls = settings.tls_listen.iter().map(|at| (*at, dtls, tls));
    let mut free = Vec::new();
    for (at, udp, tcp) in listeners.chain(tls) {
        if running.contains(&at) {
            report.notes.push(format!("port: {at} is in use by the running server"));
            continue;
        }
        let mut is_free = true;
        for (transport, wanted) in [("udp", udp), ("tcp", tcp)] {
            let found = match transport {
                _ if !wanted => continue,
                "udp" => sockets::is_free(at, &NetOptions::default()),
                _ => sockets::is_free_for_tcp(at, &NetOptions::default()),
            };
            if let Err(error) = found
                && !sockets::dispensable(at, &error)
            {
                is_free = false;
                report.findings.push(unusable(settings, transport, at, &error));
            }
        }
        if is_free {
            free.push(at.to_string());
        }
    }
    if !free.is_empty() {
        report.notes.push(format!("ports: free at {}", free.join("  ")));
    }
}

fn unusable(settings: &Settings, transport: &str, at: SocketAddr, error: &io::Error) -> Finding {
    let key = if settings.tls_listen.contains(&at) { "tls.listen" } else { "listen" };
    let list = if key == "listen" { &settings.listen } else { &settings.tls.listen };
    let index = list.iter().position(|endpoint| endpoint.0 == at);
    let place = index.map_or_else(|| settings.place(key), |i| settings.entry_place(key, i));
    let (why, help) = sockets::explain(transport, at, error);
    Finding::problem(settings, key, format!("cannot listen on {transport} {at}: {why}"), help)
        .at(place)
}

fn limits(settings: &Settings, relays: usize, report: &mut HostReport) {
    let workers = cores::cores(settings.workers.count, settings.workers.pin).len();
    let wanted = Descriptors::wanted(settings, relays, workers).files();
    match raise_open_files() {
        Ok(files) if files >= wanted => {
            report.notes.push(format!("limits: {files} open files here, {wanted} wanted"));
        }
        Ok(files) => report.findings.push(Finding::warning(
            settings,
            "",
            format!("processes of this shell may open {files} files, and these settings allow {wanted}"),
            format!("for a service LimitNOFILE={wanted}, for a shell `ulimit -Hn {wanted}`"),
        ).at(Place::Default)),
        Err(error) => report.notes.push(format!("limits: not readable: {error}")),
    }
}

/// Reports relay addresses that clients on other hosts cannot reach.
fn reachability(settings: &Settings, relays: &[RelayPair], report: &mut HostReport) {
    for pair in relays {
        let RelayPair { local, public } = *pair;
        if local != public {
            report.notes.push(format!("NAT: {local} is reached at {public}"));
        } else if warnings::is_private(local) {
            report.findings.push(Finding::warning(
                settings,
                "relay.addresses",
                format!("relays are reachable at {local} alone, a private address"),
                "behind NAT set relay.external to the public address",
            ));
        } else {
            report
                .notes
                .push(format!("NAT: none in front of {local}, as far as its address tells"));
        }
    }
}

/// Reports names of certificates that resolve to another host.
fn resolution(
    settings: &Settings,
    relays: &[RelayPair],
    names: &[String],
    report: &mut HostReport,
) {
    const KEY: &str = "tls.certificates";
    for name in
        names.iter().filter(|name| !name.starts_with('*') && name.parse::<IpAddr>().is_err())
    {
        let found: Vec<IpAddr> = match (name.as_str(), 0).to_socket_addrs() {
            Ok(found) => found.map(|at| at.ip()).collect(),
            Err(error) => {
                report.findings.push(Finding::warning(
                    settings,
                    KEY,
                    format!("the name {name} does not resolve here: {error}"),
                    "add an A or AAAA record for it, or name the host otherwise in URIs",
                ));
                continue;
            }
        };
        if relays.iter().any(|pair| found.contains(&pair.public) || found.contains(&pair.local)) {
            report.notes.push(format!("name: {name} leads here"));
        } else {
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            report.findings.push(Finding::warning(
                settings,
                KEY,
                format!("{name} leads to {}, and not to a relay address", found.join(", ")),
                "correct its A and AAAA records, unless a load balancer is there",
            ));
        }
    }
}

/// Reports firewall rules that could drop packets of clients or peers. The verdict of the rules is
/// not evaluated.
fn firewall(settings: &Settings, report: &mut HostReport) {
    let ports = needed_ports(settings);
    match firewall::chains() {
        Ok(chains) if chains.is_empty() => {
            report.notes.push("firewall: no nftables chain sees incoming packets".to_owned());
        }
        Ok(chains) => {
            for chain in chains {
                let name = &chain.name;
                if chain.drops {
                    let what = format!("the firewall drops by default (nftables chain {name})");
                    let help = format!("see that it lets in {ports}: `nft list chain {name}`");
                    report
                        .findings
                        .push(Finding::warning(settings, "", what, help).at(Place::Default));
                } else {
                    report.notes.push(format!(
                        "firewall: nftables chain {name} with {} rules; see that it lets in {ports}",
                        chain.rules
                    ));
                }
            }
        }
        Err(_) => report
            .notes
            .push(format!("firewall: rules are visible to root alone; {ports} need to be let in")),
    }
    let legacy = firewall::legacy_tables();
    if !legacy.is_empty() {
        report.notes.push(format!(
            "firewall: iptables-legacy has tables ({}); see `iptables-legacy -S`",
            legacy.join(", ")
        ));
    }
}

/// Returns the ports that a firewall must permit.
fn needed_ports(settings: &Settings) -> String {
    let listed = |listeners: &mut dyn Iterator<Item = SocketAddr>| {
        let mut ports: Vec<u16> = listeners.map(|at| at.port()).collect();
        ports.sort_unstable();
        ports.dedup();
        ports.iter().map(u16::to_string).collect::<Vec<_>>()
    };
    let plain = |on: bool| settings.listeners().into_iter().filter(move |_| on);
    let tls = |on: bool| settings.tls_listen.iter().copied().filter(move |_| on);
    let mut udp = listed(&mut plain(settings.udp.enabled).chain(tls(settings.serves_dtls())));
    if settings.relay.enabled {
        udp.push(settings.relay.ports.to_string());
    }
    let tcp = listed(&mut plain(settings.tcp.enabled).chain(tls(settings.tls.enabled)));
    let needed = [("udp", udp), ("tcp", tcp)].into_iter().filter(|(_, ports)| !ports.is_empty());
    let needed: Vec<String> =
        needed.map(|(name, ports)| format!("{name} {}", ports.join(","))).collect();
    needed.join(" and ")
}
