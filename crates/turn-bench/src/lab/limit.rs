//! What kept a relay from delivering more, decided from what was measured.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A core that is as busy as this is full: the rest is what its meter cannot tell from noise.
const FULL: f64 = 0.95;

/// So many of the packets lost in one place are a reason; fewer are an accident.
const MANY_LOST: f64 = 0.001;

/// Why it was not more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The relay's cores had no time left.
    RelayCpu,
    /// The relay's cores had time, and its sockets dropped what they had no room for.
    SocketBuffer,
    /// The clients' sockets dropped what they had no room for.
    Receiver,
    /// The cores that send and count had no time left, and nothing was lost.
    Generator,
    /// No core was full and no socket dropped anything: one waited for the other, with as many
    /// packets on their way as were allowed.
    Window,
    /// Packets were lost, and not at a socket: in a queue between the devices.
    Link,
}

/// What it is decided from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    /// How busy the busiest core of the relay was, 0 to 1.
    pub(super) relay_busy: f64,
    /// How busy the busiest core of the generator was, 0 to 1.
    pub(super) generator_busy: f64,
    /// Packets sent.
    pub(super) sent: u64,
    /// Those that did not arrive.
    pub(super) lost: u64,
    /// Dropped by the relay's sockets.
    pub(super) relay_drops: u64,
    /// Dropped by the clients' sockets.
    pub(super) client_drops: u64,
}

impl Limit {
    pub(super) fn of(evidence: &Evidence) -> Self {
        let many = |lost: u64| lost as f64 > evidence.sent as f64 * MANY_LOST;
        if evidence.relay_busy >= FULL {
            Self::RelayCpu
        } else if many(evidence.relay_drops) {
            Self::SocketBuffer
        } else if many(evidence.client_drops) {
            Self::Receiver
        } else if many(evidence.lost) {
            Self::Link
        } else if evidence.generator_busy >= FULL {
            Self::Generator
        } else {
            Self::Window
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::RelayCpu => "relay CPU",
            Self::SocketBuffer => "socket buffer",
            Self::Receiver => "receiver",
            Self::Generator => "generator",
            Self::Window => "window",
            Self::Link => "link",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_along_the_way_of_a_packet_is_the_limit() {
        let idle = Evidence {
            relay_busy: 0.5,
            generator_busy: 0.5,
            sent: 1_000_000,
            lost: 0,
            relay_drops: 0,
            client_drops: 0,
        };
        let lost = Evidence { lost: 5000, ..idle };
        let cases = [
            (Evidence { relay_busy: 0.96, generator_busy: 1.0, ..idle }, Limit::RelayCpu),
            (Evidence { relay_busy: 0.96, relay_drops: 5000, ..lost }, Limit::RelayCpu),
            (Evidence { generator_busy: 1.0, ..idle }, Limit::Generator),
            (Evidence { relay_drops: 5000, client_drops: 5000, ..lost }, Limit::SocketBuffer),
            (Evidence { client_drops: 5000, generator_busy: 1.0, ..lost }, Limit::Receiver),
            (Evidence { generator_busy: 1.0, ..lost }, Limit::Link),
            (Evidence { generator_busy: 1.0, relay_drops: 10, lost: 10, ..idle }, Limit::Generator),
            (idle, Limit::Window),
        ];
        for (evidence, limit) in cases {
            assert_eq!(Limit::of(&evidence), limit, "{evidence:?}");
        }
    }
}
