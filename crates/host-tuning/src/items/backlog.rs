//! Packets on their way from the card to the sockets.

use super::sysctl;
use crate::entry::{Area, By, Entry};
use crate::host::Host;
use crate::item::Item;

pub(crate) static MAX_BACKLOG: Entry = Entry {
    name: "net.core.netdev_max_backlog",
    area: Area::Host,
    by: By::Us,
    rule: "at least 8192",
    why: "Packets that RPS hands to another processor, and all that virtual interfaces carry, wait \
          in this queue, and 8192 are 8 ms at a million packets a second.",
};

pub(crate) static BUDGET: Entry = Entry {
    name: "net.core.netdev_budget",
    area: Area::Host,
    by: By::Us,
    rule: "at least 600",
    why: "So many packets are received in one turn of the soft interrupt; at high rates the \
          default of 300 ends turns while the card's ring fills.",
};

pub(crate) static BUDGET_USECS: Entry = Entry {
    name: "net.core.netdev_budget_usecs",
    area: Area::Host,
    by: By::Us,
    rule: "at least 8000",
    why: "A turn of the soft interrupt ends after this time too; the default is two ticks of the \
          kernel's clock, which on many kernels is 2 ms.",
};

pub(crate) static FLOW_ENTRIES: Entry = Entry {
    name: "net.core.rps_sock_flow_entries",
    area: Area::Host,
    by: By::Hand,
    rule: "any",
    why: "This table steers packets to where a program last read its connected socket, and \
          Turnpike's sockets are not connected: it neither helps nor harms.",
};

/// Received packets that may wait for a processor: 8 ms, the time that one turn of the soft
/// interrupt may take, at a million packets a second.
const BACKLOG: u64 = 8192;

/// Packets in one turn: twice the default.
const TURN_PACKETS: u64 = 600;

/// Microseconds in one turn: two ticks of a kernel with 250 a second.
const TURN_USECS: u64 = 8000;

pub(crate) fn look(host: &Host) -> Vec<Item> {
    vec![
        sysctl::at_least(host, &MAX_BACKLOG, BACKLOG),
        sysctl::at_least(host, &BUDGET, TURN_PACKETS),
        sysctl::at_least(host, &BUDGET_USECS, TURN_USECS),
        sysctl::read(host, &FLOW_ENTRIES)
            .map_or_else(|item| *item, |now| Item::good(&FLOW_ENTRIES, now)),
    ]
}
