//! The bottleneck of a run, from the evidence.

use crate::outcome::LabLimit;

/// Utilisation of a full core; the rest is within the error of its meter.
const FULL: f64 = 0.95;

/// Share of packets lost in one place that makes it the bottleneck.
const MANY_LOST: f64 = 0.001;

/// Measurements of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    /// Utilisation of the relay's busiest core, 0 to 1.
    pub(super) relay_busy: f64,
    /// Utilisation of the generator's busiest core, 0 to 1.
    pub(super) generator_busy: f64,
    /// Packets sent.
    pub(super) sent: u64,
    /// Packets lost.
    pub(super) lost: u64,
    /// Drops of the relay's sockets.
    pub(super) relay_drops: u64,
    /// Drops of the clients' sockets.
    pub(super) client_drops: u64,
}

impl Evidence {
    /// The first bottleneck along the way of a packet.
    pub(super) fn limit(&self) -> LabLimit {
        let many = |lost: u64| lost as f64 > self.sent as f64 * MANY_LOST;
        if self.relay_busy >= FULL {
            LabLimit::RelayCpu
        } else if many(self.relay_drops) {
            LabLimit::SocketBuffer
        } else if many(self.client_drops) {
            LabLimit::Receiver
        } else if many(self.lost) {
            LabLimit::Link
        } else if self.generator_busy >= FULL {
            LabLimit::Generator
        } else {
            LabLimit::Window
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bottleneck_along_the_way_is_the_limit() {
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
            (Evidence { relay_busy: 0.96, generator_busy: 1.0, ..idle }, LabLimit::RelayCpu),
            (Evidence { relay_busy: 0.96, relay_drops: 5000, ..lost }, LabLimit::RelayCpu),
            (Evidence { generator_busy: 1.0, ..idle }, LabLimit::Generator),
            (Evidence { relay_drops: 5000, client_drops: 5000, ..lost }, LabLimit::SocketBuffer),
            (Evidence { client_drops: 5000, generator_busy: 1.0, ..lost }, LabLimit::Receiver),
            (Evidence { generator_busy: 1.0, ..lost }, LabLimit::Link),
            (idle, LabLimit::Window),
        ];
        for (evidence, limit) in cases {
            assert_eq!(evidence.limit(), limit, "{evidence:?}");
        }
    }
}
