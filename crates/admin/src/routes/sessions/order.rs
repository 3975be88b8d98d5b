//! Orders of a list of sessions, and places in them.
//!
//! A place is the value that is sorted by, and the id: the next page begins behind it also when its
//! session has ended meanwhile, or has another rate.

use std::cmp::{Ordering, Reverse};
use std::fmt;
use std::net::SocketAddr;

use control::Session;
use turn_types::AllocationId;

use crate::problem::Problem;
use crate::types::SessionRates;

/// Names of the orders.
const NAMES: [(&str, By); 8] = [
    ("age", By::Age),
    ("expires", By::Expires),
    ("rate", By::Rate),
    ("packets", By::Packets),
    ("traffic", By::Traffic),
    ("dropped", By::Dropped),
    ("user", By::User),
    ("client", By::Client),
];

/// An order of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    by: By,
    reverse: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// Oldest first.
    Age,
    /// Soonest end first.
    Expires,
    /// Most bits per second first.
    Rate,
    /// Most packets per second first.
    Packets,
    /// Most bytes first.
    Traffic,
    /// Most dropped packets first.
    Dropped,
    User,
    Client,
}

/// The value that is sorted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Number(u64),
    Text(String),
    /// IPv4 first; address, then port, as numbers.
    Address(SocketAddr),
}

/// The place of a session in an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    key: Key,
    id: AllocationId,
    reverse: bool,
}

impl Ord for Cursor {
    fn cmp(&self, other: &Self) -> Ordering {
        let keys = if self.reverse {
            Reverse(&self.key).cmp(&Reverse(&other.key))
        } else {
            self.key.cmp(&other.key)
        };
        keys.then(self.id.cmp(&other.id))
    }
}

impl PartialOrd for Cursor {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Key::Number(number) => write!(f, "{}.{number}", self.id),
            Key::Text(text) => write!(f, "{}.{text}", self.id),
            Key::Address(address) => write!(f, "{}.{address}", self.id),
        }
    }
}

impl Order {
    /// Reads the name of an order; one with `-` in front is the reverse, and none is `age`.
    pub(super) fn parse(name: &str) -> Result<Self, Problem> {
        let (reverse, plain) = match name.strip_prefix('-') {
            Some(plain) => (true, plain),
            None => (false, if name.is_empty() { "age" } else { name }),
        };
        NAMES
            .iter()
            .find(|(known, _)| *known == plain)
            .map(|&(_, by)| Self { by, reverse })
            .ok_or_else(|| {
                let names = NAMES.map(|(name, _)| name).join(", ");
                Problem::bad_request(
                    format!("\"{name}\" is not an order of sessions"),
                    format!("sort by {names}; a minus in front reverses it"),
                )
            })
    }

    /// Returns whether the order is one of rates.
    pub(super) const fn is_by_rate(self) -> bool {
        matches!(self.by, By::Rate | By::Packets)
    }

    /// The place of a session.
    pub(super) fn place(self, session: &Session, rates: Option<&SessionRates>) -> Cursor {
        let record = &session.record;
        let traffic = &record.traffic;
        let sum = |of: fn(&SessionRates) -> u64| rates.map_or(0, of);
        // The most stands first.
        let most = |number: u64| Key::Number(u64::MAX - number);
        let key = match self.by {
            By::Age => Key::Number(record.created.as_nanos()),
            By::Expires => Key::Number(record.expires.as_nanos()),
            By::Rate => most(sum(|rates| {
                rates.to_peers.bits_per_second.saturating_add(rates.to_client.bits_per_second)
            })),
            By::Packets => most(sum(|rates| {
                rates.to_peers.packets_per_second.saturating_add(rates.to_client.packets_per_second)
            })),
            By::Traffic => most(traffic.to_peer_bytes.saturating_add(traffic.to_client_bytes)),
            By::Dropped => most(traffic.dropped_packets),
            By::User => Key::Text(record.user.to_string()),
            By::Client => Key::Address(record.five_tuple.client.0),
        };
        Cursor { key, id: record.id, reverse: self.reverse }
    }

    /// Reads a place that was written in this order.
    pub(super) fn cursor(self, text: &str) -> Result<Cursor, Problem> {
        let parts = text.split_once('.');
        let read = parts.and_then(|(id, key)| {
            let key = match self.by {
                By::User => Key::Text(key.to_owned()),
                By::Client => Key::Address(key.parse().ok()?),
                By::Age | By::Expires | By::Rate | By::Packets | By::Traffic | By::Dropped => {
                    Key::Number(key.parse().ok()?)
                }
            };
            Some(Cursor { key, id: AllocationId::parse(id)?, reverse: self.reverse })
        });
        read.ok_or_else(|| {
            Problem::bad_request(
                "after is not a place in this order",
                "write the `next` of the page before, with the same sort",
            )
        })
    }
}
