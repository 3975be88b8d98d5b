//! Quotas, lifetimes, buffers, workers.

use super::{Fate, Work};
use crate::toml;

pub(super) fn translate(work: &mut Work) {
    quota(work, "user-quota", "quotas.allocations_per_user");
    quota(work, "total-quota", "quotas.allocations_total");
    bandwidth(work);
    capacity(work);
    drain(work);
    nonce(work);
    allocation_lifetime(work);
    lifetime(work, "permission-lifetime", "lifetimes.permission", (300, 3600));
    lifetime(work, "channel-lifetime", "lifetimes.channel", (600, 3600));
    buffers(work);
    workers(work);
}

/// A session of coturn takes no more than all of `bps-capacity`.
fn bandwidth(work: &mut Work) {
    let capacity = work.number("bps-capacity").filter(|bytes| *bytes > 0);
    let Some(bytes) = work.number("max-bps").filter(|bytes| *bytes > 0) else { return };
    let taken = capacity.map_or(bytes, |capacity| bytes.min(capacity));
    let comment = if taken == bytes { "max-bps" } else { "max-bps, and no more than bps-capacity" };
    work.toml.set("quotas.bytes_per_second", toml::text(&format!("{taken} B")), comment);
}

/// Coturn's sessions take their `max-bps` of it.
fn capacity(work: &mut Work) {
    let Some(index) = work.last("bps-capacity") else { return };
    match (work.number("bps-capacity"), work.number("max-bps")) {
        (None, _) => {}
        (Some(0), _) => work.set(index, Fate::SameHere("it is off".to_owned())),
        (Some(_), None | Some(0)) => {
            let reason =
                "it has no effect without max-bps, which is what an allocation takes of it";
            work.set(index, Fate::SameHere(reason.to_owned()));
        }
        (Some(bytes), Some(_)) => {
            let value = toml::text(&format!("{bytes} B"));
            work.toml.set("quotas.bytes_per_second_total", value, "bps-capacity");
        }
    }
}

fn drain(work: &mut Work) {
    if let Some(left) = work.number("drain-min-allocations").filter(|left| *left > 0) {
        let value = left.min(10_000_000).to_string();
        work.toml.set("shutdown.drain_allocations_left", value, "drain-min-allocations");
    }
}

fn quota(work: &mut Work, name: &str, key: &'static str) {
    const MOST: u64 = 10_000_000;
    if let Some(number) = work.number(name) {
        work.toml.set(key, number.min(MOST).to_string(), name);
    }
}

/// A time in seconds, within bounds.
fn lifetime(work: &mut Work, name: &str, key: &'static str, (least, most): (u64, u64)) {
    let Some(seconds) = work.number(name) else { return };
    let taken = seconds.clamp(least, most);
    let comment = if taken == seconds {
        name.to_owned()
    } else {
        format!("{name}={seconds}; {least} to {most} s are possible")
    };
    work.toml.set(key, toml::text(&format!("{taken} s")), comment);
}

/// Limits the default lifetime to the longest lifetime.
fn allocation_lifetime(work: &mut Work) {
    const BOUNDS: (u64, u64) = (60, 86_400);
    /// Default lifetime in seconds (RFC 8656 §3.2).
    const DEFAULT: u64 = 600;
    lifetime(work, "max-allocate-lifetime", "lifetimes.allocation_max", BOUNDS);
    if let Some(longest) = work.number("max-allocate-lifetime").filter(|most| *most < DEFAULT) {
        let value = toml::text(&format!("{} s", longest.max(BOUNDS.0)));
        work.toml.set("lifetimes.allocation_default", value, "max-allocate-lifetime");
    }
}

/// 0 is "never stale" in coturn.
fn nonce(work: &mut Work) {
    const BOUNDS: (u64, u64) = (60, 3600);
    for index in work.all("stale-nonce") {
        if work.value(index).is_empty() {
            work.set(index, Fate::SameHere("a nonce lasts 10 minutes".to_owned()));
        }
    }
    match work.number("stale-nonce") {
        Some(0) => {
            let comment = "stale-nonce=0; a nonce lasts an hour at most (RFC 8656 §5)";
            work.toml.set("lifetimes.nonce", toml::text("1 h"), comment);
        }
        Some(_) => lifetime(work, "stale-nonce", "lifetimes.nonce", BOUNDS),
        None => {}
    }
}

fn buffers(work: &mut Work) {
    const BOUNDS: (u64, u64) = (64 << 10, 256 << 20);
    if let Some(bytes) = work.number("sock-buf-size").filter(|bytes| *bytes > 0) {
        let value = toml::text(&format!("{} B", bytes.clamp(BOUNDS.0, BOUNDS.1)));
        for key in ["sockets.receive_buffer", "sockets.send_buffer"] {
            work.toml.set(key, value.clone(), "sock-buf-size");
        }
    }
}

fn workers(work: &mut Work) {
    const MOST: u64 = 256;
    let (Some(number), Some(index)) = (work.number("relay-threads"), work.last("relay-threads"))
    else {
        return;
    };
    if number == 0 {
        let reason = "there is one worker at least";
        work.set(index, Fate::Unsupported(reason.to_owned()));
        return;
    }
    work.toml.set("workers.count", number.min(MOST).to_string(), "relay-threads");
}
