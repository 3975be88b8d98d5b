//! Results in words.

use std::fmt::Write as _;

use crate::engine::progress::micros;
use crate::outcome::{CoreUse, FindMax, Latency, Limit, Traffic};
use crate::traffic::{Direction, Shape, Transport};

/// Shares below this are not worth a word.
const NEGLIGIBLE: f64 = 0.001;

impl Traffic {
    /// What became of the run, in a few lines without an end of the last.
    #[must_use]
    pub fn summary(&self) -> String {
        let spec = &self.spec;
        let rate = spec.rate.map_or_else(|| "as many as go".to_owned(), |r| format!("{r}/s"));
        let mut text = format!(
            "{}, {} packets of {} bytes, {} flows, {rate}, {:.1} s, by {}\n",
            direction(spec.direction),
            shape(spec.shape),
            spec.size,
            self.flows,
            spec.duration.as_secs_f64(),
            way(self),
        );
        let sent_per_second = self.sent as f64 / spec.duration.as_secs_f64();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "sent       {} ({sent_per_second:.0}/s)", self.sent);
        let _ = writeln!(
            text,
            "delivered  {} ({:.0}/s), lost {:.3} %, {} twice, {} out of order, {} damaged",
            self.delivered,
            self.delivered_per_second(),
            100.0 * self.loss(),
            self.duplicates,
            self.reordered,
            self.damaged,
        );
        let _ = writeln!(text, "latency    {}", latency(self.latency.as_ref()));
        self.used.cores.iter().for_each(|core| {
            let _ = writeln!(text, "{}", core_line(core));
        });
        if let Some(ran) = self.used.process {
            let part = 100.0 * ran.as_secs_f64() / spec.duration.as_secs_f64();
            let each = ran.as_nanos() / u128::from(self.delivered.max(1));
            let _ = writeln!(text, "process    {part:.1} % of a core, {each} ns for each packet");
        }
        self.doubts().iter().for_each(|doubt| {
            let _ = writeln!(text, "note: {doubt}");
        });
        text.truncate(text.trim_end().len());
        text
    }

    /// Why the numbers may say more of the benchmark than of the server; empty when they do not.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if self.behind > NEGLIGIBLE {
            doubts.push(format!(
                "the sender left out {:.1} % of the packets asked for because it was late: give it \
                 more threads or cores, or ask for less",
                100.0 * self.behind
            ));
        }
        let tried = (self.sent + self.refused).max(1) as f64;
        if self.held_back() > NEGLIGIBLE {
            doubts.push(format!(
                "backpressure: {} packets ({:.1} %) could not be sent because the connections were \
                 full of earlier ones. The server, or the way to it, was the limit; they do not count \
                 as sent",
                self.refused,
                100.0 * self.held_back()
            ));
        } else if self.refused as f64 > NEGLIGIBLE * tried {
            doubts.push(format!(
                "the sender's own kernel refused {} packets (full queue, or too large for the \
                 link); they do not count as sent",
                self.refused
            ));
        }
        if self.dropped as f64 > NEGLIGIBLE * self.sent.max(1) as f64 {
            doubts.push(format!(
                "{} packets arrived at sockets of the benchmark that were full: the server relayed \
                 them. Give the receiving side more threads or cores, or raise net.core.rmem_max",
                self.dropped
            ));
        }
        doubts
    }
}

impl FindMax {
    /// What was found, in a few lines without an end of the last.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut text = String::from("    offered/s   delivered/s      lost");
        let is_stream = self.confirmed.transport.is_stream();
        text.push_str(if is_stream { "  held back\n" } else { "\n" });
        for point in &self.points {
            let _ = write!(
                text,
                "{:>13.0} {:>13.0} {:>8.3} %",
                point.offered,
                point.delivered,
                100.0 * point.loss
            );
            let _ = match is_stream {
                true => writeln!(text, " {:>8.3} %", 100.0 * point.held_back),
                false => writeln!(text),
            };
        }
        let _ = write!(text, "\nconfirmed: {}", self.confirmed.summary());
        let limit = match self.limit {
            Limit::Server => None,
            Limit::Generator => Some(
                "this is all that the benchmark could send: the server's limit is at least as \
                 high",
            ),
            Limit::Unconfirmed => Some(
                "no rate was delivered with so little loss for as long as the confirming run: \
                 this is the one that lost least",
            ),
        };
        if let Some(limit) = limit {
            let _ = write!(text, "\nnote: {limit}");
        }
        text
    }
}

/// What sent, and by what clients are connected.
fn way(traffic: &Traffic) -> String {
    let by = traffic.backend.name();
    if traffic.transport == Transport::Udp {
        return by.to_owned();
    }
    format!("{by}, clients over {}", traffic.transport.describe())
}

fn latency(latency: Option<&Latency>) -> String {
    latency.map_or_else(
        || "unknown: nothing arrived, or sender and receiver have different clocks".to_owned(),
        |one| {
            format!(
                "p50 {}, p90 {}, p99 {}, p99.9 {}, max {}",
                micros(one.p50),
                micros(one.p90),
                micros(one.p99),
                micros(one.p999),
                micros(one.max)
            )
        },
    )
}

fn core_line(core: &CoreUse) -> String {
    let [user, system, softirq, irq, steal, idle] = core.stat.map(|share| share * 100.0);
    format!(
        "core {:<5} {} {:.1} % busy; /proc/stat: user {user:.0} %, system {system:.0} %, softirq \
         {softirq:.0} %, irq {irq:.0} %, steal {steal:.0} %, idle {idle:.0} %",
        core.core,
        core.role,
        100.0 * core.busy
    )
}

const fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::ClientToPeer => "client to peer",
        Direction::PeerToClient => "peer to client",
        Direction::Echo => "client to peer and back",
    }
}

const fn shape(shape: Shape) -> &'static str {
    match shape {
        Shape::Audio => "audio",
        Shape::Video => "video",
        Shape::Flood => "flood",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::outcome::Used;
    use crate::traffic::Backend;
    use crate::traffic::TrafficSpec;

    fn traffic() -> Traffic {
        let spec = TrafficSpec {
            shape: Shape::Video,
            direction: Direction::ClientToPeer,
            size: 1200,
            rate: Some(1000),
            warm_up: Duration::ZERO,
            duration: Duration::from_secs(2),
        };
        Traffic {
            spec,
            backend: Backend::Sockets,
            transport: Transport::Udp,
            flows: 3,
            sent: 2000,
            refused: 0,
            behind: 0.0,
            delivered: 1990,
            duplicates: 1,
            reordered: 2,
            damaged: 0,
            dropped: 0,
            latency: Some(Latency { p50: 1500, ..Latency::default() }),
            used: Used::default(),
        }
    }

    #[test]
    fn a_good_run_is_told_without_doubts() {
        let text = traffic().summary();
        for part in
            ["client to peer, video", "sent       2000 (1000/s)", "lost 0.500 %", "p50 1.5us"]
        {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("note:") && !text.contains("over"), "{text}");
        let text = Traffic { transport: Transport::Tls, ..traffic() }.summary();
        assert!(text.contains("by sockets, clients over TLS 1.3 (TLS_AES_128_GCM"), "{text}");
    }

    #[test]
    fn what_the_process_took_is_told_where_it_was_watched() {
        assert!(!traffic().summary().contains("process"));
        let used = Used { process: Some(Duration::from_millis(199)), ..Used::default() };
        let text = Traffic { used, ..traffic() }.summary();
        assert!(text.contains("process    10.0 % of a core, 100000 ns for each packet"), "{text}");
    }

    #[test]
    fn whatever_is_the_benchmarks_fault_is_told() {
        let doubts = |change: fn(&mut Traffic)| {
            let mut traffic = traffic();
            change(&mut traffic);
            traffic.doubts().join("\n")
        };
        assert!(doubts(|t| t.behind = 0.031).contains("3.1 %"));
        assert!(doubts(|t| t.refused = 50).contains("refused 50 packets"));
        assert!(doubts(|t| t.dropped = 7).contains("7 packets arrived at sockets"));
        let held = doubts(|t| (t.refused, t.transport) = (500, Transport::Tls));
        assert!(held.starts_with("backpressure: 500 packets (20.0 %)"), "{held}");
        assert_eq!(doubts(|t| (t.behind, t.refused, t.dropped) = (0.0005, 1, 1)), "");
    }
}
