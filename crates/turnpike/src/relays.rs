//! Relay addresses that follow the addresses of the host.

use std::net::{IpAddr, SocketAddr};

use anyhow::anyhow;
use control::{MissingAddresses, ServerInfo};
use settings::value::HttpListen;
use settings::{HostAddresses, MissingRelay, Settings};
use turn_proto::{Policy, RelayAddress};

use crate::devices::Devices;
use crate::failure::{Failure, Result};

/// Returns the addresses and interfaces of the settings that the host lacks, for operators.
pub(crate) fn missing(
    settings: &Settings,
    policy: &Policy,
    (host, devices): (&HostAddresses, &Devices),
    info: &ServerInfo,
) -> MissingAddresses {
    let relays = settings.missing_relays(host).into_iter();
    let mut clauses: Vec<String> =
        relays.map(|MissingRelay { key, what, .. }| format!("{key}: {what}")).collect();
    let is_named = |ip: IpAddr| settings.relay_addresses(host).iter().any(|pair| pair.local == ip);
    let lost = policy.relay.iter().filter(|relay| !relay.is_present && !is_named(relay.local));
    clauses.extend(lost.map(|relay| {
        format!("relay.addresses: {} is no address of this host any more", relay.local)
    }));
    let is_there = |at: &SocketAddr| at.ip().is_unspecified() || host.has(at.ip());
    let listeners = [("listen", &info.listeners), ("tls.listen", &info.tls_listeners)];
    for (key, all) in listeners {
        let missing = all.iter().filter(|at| !is_there(at));
        clauses.extend(missing.map(|at| format!("{key}: {} is no address of this host", at.ip())));
    }
    let http = settings.http.listen.iter().filter_map(|listen| match listen {
        HttpListen::Tcp(at) => Some(("http.listen", *at)),
        HttpListen::Unix(_) => None,
    });
    let api = settings.api.listen.iter().map(|endpoint| ("api.listen", endpoint.0));
    let missing = http.chain(api).filter(|(_, at)| !is_there(at));
    clauses
        .extend(missing.map(|(key, at)| format!("{key}: {} is no address of this host", at.ip())));
    let mut all_listeners = info.listeners.iter().chain(&info.tls_listeners);
    let relays_nothing = !policy.stun_only
        && policy.prefixes.is_empty()
        && policy.relay.iter().all(|relay| !relay.is_present);
    let are_all = relays_nothing || !all_listeners.any(is_there);
    let mut missing = MissingAddresses { clauses, are_all };
    devices.add_to(&mut missing);
    missing
}

/// Returns true if two lists of relay addresses are equal.
pub(crate) fn are_same(one: &[RelayAddress], other: &[RelayAddress]) -> bool {
    let of = |relay: &RelayAddress| (relay.local, relay.public, relay.is_present);
    one.iter().map(of).eq(other.iter().map(of))
}

/// Returns the relay addresses of `now` whose local address is missing from `before`.
pub(crate) fn added<'a>(
    before: &'a Policy,
    now: &'a Policy,
) -> impl Iterator<Item = &'a RelayAddress> {
    let is_new = |relay: &&RelayAddress| before.relay.iter().all(|one| one.local != relay.local);
    now.relay.iter().filter(is_new)
}

/// Refuses to replace a present relay address, which has calls, by an address that the host lacks.
/// Such an address is more likely mistyped than about to appear.
///
/// # Errors
/// The policy `now` drops a present address and adds a missing address. The error names both.
pub(crate) fn refuse_exchange(before: &Policy, now: &Policy) -> Result<()> {
    let given_up = added(now, before).find(|relay| relay.is_present);
    let absent = added(before, now).find(|relay| !relay.is_present);
    let (Some(given_up), Some(absent)) = (given_up, absent) else { return Ok(()) };
    Err(Failure::usage(anyhow!(
        "relay.addresses: {} is no address of this host, and the calls on {} would end for it",
        absent.local,
        given_up.local
    ))
    .hint("name one of `ip address`, or name both until the host has the new one"))
}

/// Returns the warnings about missing relay addresses.
pub(crate) fn warnings(settings: &Settings, host: &HostAddresses) -> Vec<String> {
    let warning = |MissingRelay { key, what, help, .. }| {
        format!("{key}: {what}; the server relays from it as soon as it is there ({help})")
    };
    settings.missing_relays(host).into_iter().map(warning).collect()
}

/// Logs the relay addresses that a change of the host has added or removed.
pub(crate) fn tell(before: &Policy, now: &Policy, settings: &Settings, host: &HostAddresses) {
    let of = |policy: &Policy| -> Vec<IpAddr> {
        let present = policy.relay.iter().filter(|relay| relay.is_present);
        present.map(|relay: &RelayAddress| relay.local).collect()
    };
    let (before, now) = (of(before), of(now));
    for ip in now.iter().filter(|ip| !before.contains(ip)) {
        tracing::info!("new allocations are relayed from {ip}, which this host has now");
    }
    let lost: Vec<&IpAddr> = before.iter().filter(|ip| !now.contains(ip)).collect();
    for ip in &lost {
        tracing::warn!(
            "no new allocation is relayed from {ip}: this host has lost it, or has a better one"
        );
    }
    if !lost.is_empty() {
        for warning in warnings(settings, host) {
            tracing::warn!("{warning}");
        }
    }
}
