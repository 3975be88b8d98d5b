//! Listeners, relay addresses, discovery, redirection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Fate, Host, Work};
use crate::syntax;
use crate::toml;

const PORT: u16 = 3478;
const TLS_PORT: u16 = 5349;

pub(super) fn translate(work: &mut Work) {
    let addresses = ips(work, "listening-ip");
    let port = port(work, "listening-port").unwrap_or(PORT);
    listen(work, &addresses, port);
    tls_listen(work, &addresses, port);
    relay(work, &addresses);
    family(work);
    for (name, key) in
        [("listening-device", "sockets.listen_device"), ("relay-device", "sockets.relay_device")]
    {
        if let Some(device) = work.word(name).map(toml::text) {
            work.toml.set(key, device, name);
        }
    }
    ports(work, port);
    discovery(work, &addresses, port);
    redirect(work);
    for (name, key) in
        [("no-udp", "udp.enabled"), ("no-tcp", "tcp.enabled"), ("stun-only", "relay.enabled")]
    {
        if work.is_on(name) {
            work.toml.set(key, "false".to_owned(), name);
        }
    }
}

/// Value of an option with addresses in place of host names: an address, an address with a port, or
/// two addresses with a slash between them.
pub(super) fn resolved(value: &str, host: &dyn Host) -> String {
    let address = |name: &str| match name.parse::<IpAddr>() {
        // To coturn no address is the one of all interfaces.
        Err(_) if name.is_empty() => Ipv4Addr::UNSPECIFIED.to_string(),
        Err(_) => host.resolve(name).map_or_else(|| name.to_owned(), |found| found.to_string()),
        Ok(_) => name.to_owned(),
    };
    if value.starts_with("$(") || value.parse::<SocketAddr>().is_ok() {
        return value.to_owned();
    }
    if let Some((public, private)) = value.split_once('/') {
        return format!("{}/{}", address(public), address(private));
    }
    let with_port = value.split_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
    match with_port.and_then(|(name, port)| Some((host.resolve(name)?, port.parse().ok()?))) {
        Some((found, port)) => SocketAddr::new(found, port).to_string(),
        None => address(value),
    }
}

/// The family of clients that name none.
fn family(work: &mut Work) {
    let set = |work: &mut Work, value, option: &str| {
        work.toml.set("relay.default_family", toml::text(value), option);
    };
    if let Some(index) = work.last("allocation-default-address-family") {
        match syntax::word(work.value(index)).to_ascii_lowercase().as_str() {
            "ipv4" => work.set(index, Fate::SameHere("IPv4".to_owned())),
            "ipv6" => set(work, "ipv6", "allocation-default-address-family"),
            "keep" => set(work, "client", "allocation-default-address-family"),
            _ => work.left_out(index, "ipv4, ipv6 or keep"),
        }
    }
    if work.is_on("keep-address-family") {
        set(work, "client", "keep-address-family");
    }
}

/// Addresses of an option that may be given several times.
fn ips(work: &mut Work, name: &str) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for index in work.all(name) {
        match syntax::word(work.value(index)).parse::<IpAddr>() {
            Ok(address) if addresses.contains(&address) => {}
            Ok(address) => addresses.push(address),
            Err(_) => work.left_out(index, "an address, or the name of a host with one,"),
        }
    }
    addresses
}

fn port(work: &mut Work, name: &str) -> Option<u16> {
    let index = work.last(name)?;
    let port = syntax::number(work.value(index)).and_then(|port| u16::try_from(port).ok());
    if port.is_none() {
        work.unreadable(index, "a port");
    }
    port.filter(|port| *port != 0)
}

/// Listeners of addresses at a port: wildcards without any address.
fn at(addresses: &[IpAddr], port: u16) -> Vec<SocketAddr> {
    let wildcards: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    // coturn's IPv6 socket receives IPv4 packets as well.
    let is_dual = addresses.is_empty() || addresses.contains(&wildcards[1]);
    let addresses = if is_dual { &wildcards } else { addresses };
    let mut all = Vec::new();
    for address in addresses {
        add(&mut all, SocketAddr::new(*address, port));
    }
    all
}

/// Adds a listener. coturn accepts a wildcard together with addresses that it includes; here the
/// wildcard replaces them.
fn add(all: &mut Vec<SocketAddr>, listener: SocketAddr) {
    let includes = |wide: &SocketAddr, narrow: &SocketAddr| {
        wide == narrow
            || wide.ip().is_unspecified()
                && (wide.is_ipv4(), wide.port()) == (narrow.is_ipv4(), narrow.port())
    };
    if !all.iter().any(|other| includes(other, &listener)) {
        all.retain(|other| !includes(&listener, other));
        all.push(listener);
    }
}

fn list(listeners: &[SocketAddr]) -> String {
    toml::list(&listeners.iter().map(SocketAddr::to_string).collect::<Vec<_>>())
}

fn listen(work: &mut Work, addresses: &[IpAddr], port: u16) {
    let mut all = at(addresses, port);
    for index in work.all("aux-server") {
        match syntax::word(work.value(index)).parse::<SocketAddr>() {
            Ok(server) => add(&mut all, server),
            Err(_) => work.left_out(index, "an address with a port"),
        }
    }
    if all != at(&[], PORT) {
        work.toml.set("listen", list(&all), "listening-ip, listening-port, aux-server");
    }
}

/// The second port. It is of use with a certificate, which `service` looks for.
fn tls_listen(work: &mut Work, addresses: &[IpAddr], plain: u16) {
    let port = port(work, "tls-listening-port").unwrap_or(TLS_PORT);
    let is_served = work.last("cert").is_some() && !work.is_on("no-tls");
    if !is_served {
        if let Some(index) = work.last("tls-listening-port") {
            let reason = "there is no certificate, or no-tls";
            work.set(index, Fate::SameHere(reason.to_owned()));
        }
        return;
    }
    if port == plain {
        // One port serves both.
        work.toml.set("tls.listen", "[]".to_owned(), "tls-listening-port is listening-port");
    } else if !addresses.is_empty() || port != TLS_PORT {
        let all = at(addresses, port);
        work.toml.set("tls.listen", list(&all), "listening-ip, tls-listening-port");
    }
}

/// A relay address with the one that clients are told.
struct Pair {
    public: IpAddr,
    private: IpAddr,
}

fn relay(work: &mut Work, listening: &[IpAddr]) {
    let mut addresses = ips(work, "relay-ip");
    if addresses.is_empty() {
        // As coturn does.
        addresses.extend(listening);
    }
    // Clients would be told an address that is none.
    addresses.retain(|address| !address.is_unspecified());
    let (mut single, mut pairs): (Vec<IpAddr>, Vec<Pair>) = (Vec::new(), Vec::new());
    for index in work.all("external-ip") {
        let value = syntax::word(work.value(index)).to_owned();
        let read = |text: &str| text.parse::<IpAddr>().ok();
        let pair = value.split_once('/').map(|(public, private)| (read(public), read(private)));
        match (pair, read(&value)) {
            (Some((Some(public), Some(private))), _) if private.is_unspecified() => {
                single.push(public);
            }
            (Some((Some(public), Some(private))), _) => pairs.push(Pair { public, private }),
            (None, Some(public)) if work.replaces() && !of_family(&addresses, public) => {
                let reason =
                    "no address of its family is relayed from; coturn has no use for it, either";
                work.set(index, Fate::Unsupported(reason.to_owned()));
            }
            // coturn sends clients this useless address.
            (None, Some(public)) if public.is_unspecified() => {
                work.left_out(index, "an address or a host's name, or public/private,");
            }
            (None, Some(public)) => single.push(public),
            _ if value.starts_with("$(") => {
                let reason = "the container's image looks for it: set `relay.external = \"auto\"` with \
                              `relay.external_stun` or `relay.external_metadata`, or the address";
                work.set(index, Fate::Unsupported(reason.to_owned()));
            }
            (Some(_) | None, _) => {
                work.left_out(index, "an address or a host's name, or public/private,");
            }
        }
    }
    if pairs.is_empty() || !single.is_empty() {
        external(work, &single);
        if !pairs.is_empty() {
            one_counts(work);
        }
        if !addresses.is_empty() {
            work.toml.set("relay.addresses", toml::list(&addresses), "relay-ip, or listening-ip");
        }
        return;
    }
    let is_named = !addresses.is_empty();
    for pair in &pairs {
        if !addresses.contains(&pair.private) {
            addresses.push(pair.private);
        }
    }
    let is_absent = |pair: &Pair| work.absent.contains(&pair.private);
    let entry = |address: &IpAddr| match pairs.iter().find(|pair| pair.private == *address) {
        Some(pair) => format!("{{ local = \"{address}\", public = \"{}\" }}", pair.public),
        None => toml::text(&address.to_string()),
    };
    let mut entries: Vec<String> = addresses.iter().map(entry).collect();
    if !is_named && pairs.iter().all(is_absent) {
        // In a container the pair often names an address of the host. coturn then relays from
        // addresses of the container.
        entries.push(toml::text("auto"));
    }
    let value = format!("[{}]", entries.join(", "));
    work.toml.set("relay.addresses", value, "relay-ip, external-ip");
}

/// Sets the fate of pairs in a file with a single public address.
fn one_counts(work: &mut Work) {
    let reason = "another external-ip has no private address, and counts for all addresses, in coturn as well";
    for index in work.all("external-ip") {
        if work.value(index).contains('/') {
            work.set(index, Fate::Unsupported(reason.to_owned()));
        }
    }
}

/// Returns true if there is an address of the same family. No address stands for all of the host.
fn of_family(addresses: &[IpAddr], public: IpAddr) -> bool {
    addresses.is_empty() || addresses.iter().any(|one| one.is_ipv4() == public.is_ipv4())
}

/// The first public address of each family.
fn external(work: &mut Work, single: &[IpAddr]) {
    let of = |is_ipv4| single.iter().find(|address| address.is_ipv4() == is_ipv4);
    let both: Vec<String> =
        [of(true), of(false)].into_iter().flatten().map(IpAddr::to_string).collect();
    match both.as_slice() {
        [] => {}
        [one] => work.toml.set("relay.external", toml::text(one), "external-ip"),
        more => work.toml.set("relay.external", toml::list(more), "external-ip"),
    }
}

/// Ports of relayed addresses. coturn skips the ports of listeners. Here the range must not contain
/// them, so the longest part without a listener's port is used.
fn ports(work: &mut Work, listener: u16) {
    const FIRST: u16 = 49_152;
    /// Ports below are of other services.
    const LEAST: u16 = 1024;
    let (min, max) = (port(work, "min-port"), port(work, "max-port"));
    if min.is_none() && max.is_none() {
        return;
    }
    let (min, max) = (min.unwrap_or(FIRST), max.unwrap_or(u16::MAX));
    let listeners = [listener, port(work, "tls-listening-port").unwrap_or(TLS_PORT)];
    let Some((first, last)) = longest_without(min.max(LEAST), max, listeners) else {
        let reason = format!(
            "there is no port from {min} to {max} that may be relayed from: ports below {LEAST} are of other services"
        );
        let of = ["max-port", "min-port"].into_iter().find_map(|name| work.last(name));
        return of.into_iter().for_each(|index| work.set(index, Fate::Unreadable(reason.clone())));
    };
    let comment = if (first, last) == (min, max) {
        "min-port, max-port"
    } else {
        "min-port, max-port; without ports below 1024 and those of listeners"
    };
    work.toml.set("relay.ports", toml::text(&format!("{first}-{last}")), comment);
}

/// Longest range of ports between `min` and `max` without a listener's port.
fn longest_without(min: u16, max: u16, mut listeners: [u16; 2]) -> Option<(u16, u16)> {
    listeners.sort_unstable();
    let mut parts = Vec::new();
    let mut first = min;
    for listener in listeners.into_iter().filter(|port| (min..=max).contains(port)) {
        parts.push((first, listener.saturating_sub(1)));
        first = listener.saturating_add(1);
    }
    parts.push((first, max));
    parts.into_iter().filter(|(first, last)| first <= last).max_by_key(|(first, last)| last - first)
}

fn discovery(work: &mut Work, addresses: &[IpAddr], port_one: u16) {
    let Some(index) = work.last("rfc5780") else {
        if let Some(index) = work.last("alt-listening-port") {
            work.set(index, Fate::SameHere("it is for rfc5780".to_owned()));
        }
        return;
    };
    let mut chosen: Vec<IpAddr> = Vec::new();
    for is_ipv4 in [true, false] {
        let family: Vec<_> = addresses.iter().filter(|one| one.is_ipv4() == is_ipv4).collect();
        if let [first, second, ..] = family.as_slice() {
            chosen.extend([**first, **second]);
        }
    }
    if chosen.is_empty() {
        let reason = "it takes two addresses of a family: name them in `discovery.addresses`";
        work.set(index, Fate::Unsupported(reason.to_owned()));
        return;
    }
    let other = port(work, "alt-listening-port").unwrap_or_else(|| port_one.wrapping_add(1));
    work.toml.set("discovery.addresses", toml::list(&chosen), "rfc5780, listening-ip");
    if (port_one, other) != (PORT, PORT + 1) {
        work.toml.set("discovery.ports", format!("[{port_one}, {other}]"), "alt-listening-port");
    }
}

/// Servers of a list here.
const ALTERNATES_MAX: usize = 64;

fn redirect(work: &mut Work) {
    for (name, key) in [
        ("alternate-server", "redirect.servers"),
        ("udp-alternate-server", "redirect.udp"),
        ("tcp-alternate-server", "redirect.tcp"),
        ("tls-alternate-server", "redirect.tls"),
    ] {
        let mut servers: Vec<SocketAddr> = Vec::new();
        for index in work.all(name) {
            let value = syntax::word(work.value(index));
            let server = value
                .parse::<SocketAddr>()
                .or_else(|_| value.parse::<IpAddr>().map(|address| SocketAddr::new(address, PORT)));
            match server {
                Ok(server) if servers.len() < ALTERNATES_MAX => servers.push(server),
                Ok(_) => {
                    let reason = format!("{key} has {ALTERNATES_MAX} servers at most");
                    work.set(index, Fate::Unsupported(reason));
                }
                Err(_) => work.left_out(index, "an address, with or without a port,"),
            }
        }
        if !servers.is_empty() {
            work.toml.set(key, toml::list(&servers), name);
        }
    }
}
