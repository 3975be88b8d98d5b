//! Relay addresses that come and go with the addresses of the host.

use std::net::{IpAddr, SocketAddr};

use anyhow::anyhow;
use control::{MissingAddresses, ServerInfo};
use settings::value::HttpListen;
use settings::{HostAddresses, MissingRelay, Settings};
use turn_proto::{Policy, RelayAddress};

use crate::devices::Devices;
use crate::failure::{Failure, Result};

/// Addresses and interfaces of the settings that the host does not have, for operators.
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

/// Returns true if the rules need no change of their relay addresses.
pub(crate) fn are_same(one: &[RelayAddress], other: &[RelayAddress]) -> bool {
    let of = |relay: &RelayAddress| (relay.local, relay.public, relay.is_present);
    one.iter().map(of).eq(other.iter().map(of))
}

/// Relay addresses that were not there before.
pub(crate) fn added<'a>(
    before: &'a Policy,
    now: &'a Policy,
) -> impl Iterator<Item = &'a RelayAddress> {
    let is_new = |relay: &&RelayAddress| before.relay.iter().all(|one| one.local != relay.local);
    now.relay.iter().filter(is_new)
}

/// Refuses to give an address up, with its calls, for another one that the host does not have: a
/// mistyped address is likelier than one that comes.
///
/// # Errors
/// The addresses, for the operator.
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

/// The warnings about relay addresses that are missing.
pub(crate) fn warnings(settings: &Settings, host: &HostAddresses) -> Vec<String> {
    let warning = |MissingRelay { key, what, help, .. }| {
        format!("{key}: {what}; the server relays from it as soon as it is there ({help})")
    };
    settings.missing_relays(host).into_iter().map(warning).collect()
}

/// Logs the difference that a change of the host has made.
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
