//! The kernel's table of connections, which a stateful firewall and NAT keep for every packet.

use super::sysctl;
use crate::entry::{Area, By, Entry};
use crate::host::Host;
use crate::item::{Item, Verdict};
use crate::setting::sysctl_path;
use crate::wants::Wants;

pub(crate) static MAX: Entry = Entry {
    name: "net.netfilter.nf_conntrack_max",
    area: Area::Host,
    by: By::Us,
    rule: "at least 4 per relayed address that may be live",
    why: "Each call is several flows in the table of connections, and when it is full the kernel \
          drops the packets of new ones.",
};

pub(crate) static BUCKETS: Entry = Entry {
    name: "net.netfilter.nf_conntrack_buckets",
    area: Area::Host,
    by: By::Us,
    rule: "at least a quarter of nf_conntrack_max",
    why: "With more than a few flows in each bucket every packet's lookup walks a long list.",
};

pub(crate) static UDP_TIMEOUT: Entry = Entry {
    name: "net.netfilter.nf_conntrack_udp_timeout",
    area: Area::Host,
    by: By::Hand,
    rule: "any",
    why: "It is for flows that nobody has answered, and short is right: a flood of them leaves the \
          table soon.",
};

pub(crate) static STREAM_TIMEOUT: Entry = Entry {
    name: "net.netfilter.nf_conntrack_udp_timeout_stream",
    area: Area::Host,
    by: By::Us,
    rule: "at least 300 (seconds)",
    why: "A permission lasts 300 seconds (RFC 8656 section 9), and a firewall that lets in answers \
          alone forgets a quiet peer sooner with the default of 120.",
};

pub(crate) static NOTRACK: Entry = Entry {
    name: "notrack",
    area: Area::Host,
    by: By::Hand,
    rule: "no connection tracking for the relay ports and listeners",
    why: "Turnpike keeps its own table of who may talk to whom, and the kernel's costs a lookup per \
          packet and an entry per flow.",
};

/// Flows per relayed address: the client's, and those of a few peers (candidates that are tried and
/// the one that is used).
const FLOWS_PER_RELAY: u64 = 4;

/// Flows per bucket, past which a lookup walks a list. The kernel's own default is between 1 and 4.
const FLOWS_PER_BUCKET: u64 = 4;

/// Seconds a permission lasts (RFC 8656 section 9).
const PERMISSION_SECONDS: u64 = 300;

const COUNT: &str = "net.netfilter.nf_conntrack_count";

pub(crate) fn look(host: &Host, wants: &Wants) -> Vec<Item> {
    let count = host.read(&sysctl_path(COUNT)).ok().and_then(|count| count.parse::<u64>().ok());
    let idle = match count {
        None => "not loaded",
        Some(0) => "tracks no flow",
        Some(_) => return tracking(host, wants),
    };
    [&MAX, &BUCKETS, &UDP_TIMEOUT, &STREAM_TIMEOUT, &NOTRACK]
        .map(|entry| {
            let value = sysctl::read(host, entry).ok().filter(|_| count.is_some());
            let now = value.map_or_else(|| idle.to_owned(), |value| format!("{value}, unused"));
            Item::good(entry, now)
        })
        .into()
}

fn tracking(host: &Host, wants: &Wants) -> Vec<Item> {
    let wanted = wants.relayed.saturating_mul(FLOWS_PER_RELAY);
    let most = sysctl::number(host, &MAX).unwrap_or_default().max(wanted);
    vec![
        sysctl::at_least(host, &MAX, wanted),
        sysctl::at_least(host, &BUCKETS, most.div_ceil(FLOWS_PER_BUCKET)),
        sysctl::read(host, &UDP_TIMEOUT)
            .map_or_else(|item| *item, |now| Item::good(&UDP_TIMEOUT, now)),
        sysctl::at_least(host, &STREAM_TIMEOUT, PERMISSION_SECONDS),
        notrack(wants),
    ]
}

/// Whether rules of the operator's leave the ports out already is not looked at: rules may be kept in
/// more than one place, and reading them needs root.
fn notrack(wants: &Wants) -> Item {
    let (first, last) = wants.relay_ports;
    let listeners = wants.listen_ports.iter().map(|port| format!("{port}, "));
    let ports = format!("{{ {}{first}-{last} }}", listeners.collect::<String>());
    let how =
        "only where your firewall accepts these ports by number, and not by state; nothing to do \
               if your rules leave them out already"
            .to_owned();
    let commands = [
        "add table inet turnpike".to_owned(),
        "'add chain inet turnpike in { type filter hook prerouting priority raw; }'".to_owned(),
        "'add chain inet turnpike out { type filter hook output priority raw; }'".to_owned(),
        format!("'add rule inet turnpike in udp dport {ports} notrack'"),
        format!("'add rule inet turnpike out udp sport {ports} notrack'"),
    ]
    .map(|command| format!("nft {command}"));
    let advised = "off for the server's ports".to_owned();
    let verdict = Verdict::ByHand { advised, how, commands: commands.into() };
    Item::new(&NOTRACK, "flows are tracked on this host", verdict)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fake, advised, wants};

    #[test]
    fn a_table_that_is_not_used_needs_nothing() {
        let fake = Fake::new();
        let items = look(fake.host(), &wants());
        assert!(items.iter().all(|item| item.verdict == Verdict::Good), "{items:?}");
        fake.put(&sysctl_path(COUNT), "0");
        fake.put(&sysctl_path(MAX.name), "1024");
        let items = look(fake.host(), &wants());
        assert!(items.iter().all(|item| item.verdict == Verdict::Good), "{items:?}");
        assert_eq!(items[0].now, "1024, unused");
    }

    #[test]
    fn a_table_in_use_has_room_for_every_relay() {
        let fake = Fake::new();
        for (name, value) in [
            (COUNT, "12"),
            (MAX.name, "32768"),
            (BUCKETS.name, "8192"),
            (UDP_TIMEOUT.name, "30"),
            (STREAM_TIMEOUT.name, "120"),
        ] {
            fake.put(&sysctl_path(name), value);
        }
        let items = look(fake.host(), &wants());
        let advised: Vec<Option<String>> = items.iter().map(advised).collect();
        let expected = [Some("65536"), Some("16384"), None, Some("300"), None];
        assert_eq!(advised, expected.map(|text| text.map(str::to_owned)));
        let Verdict::ByHand { commands, .. } = &items[4].verdict else { panic!("{:?}", items[4]) };
        let rule = "nft 'add rule inet turnpike in udp dport { 3478, 49152-65535 } notrack'";
        assert_eq!(commands[3], rule);
    }
}
