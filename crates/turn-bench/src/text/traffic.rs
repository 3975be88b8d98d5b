//! Runs of packets, and searches for the highest rate.

use std::fmt::Write as _;

use super::{table, units, used};
use crate::outcome::{FindMax, Latency, Limit, Traffic};
use crate::traffic::{Direction, Shape, Transport};

/// Shares below this are not worth a note.
const NEGLIGIBLE: f64 = 0.001;

pub(super) fn traffic(traffic: &Traffic) -> String {
    let spec = &traffic.spec;
    let rate = spec.rate.map_or_else(|| "unlimited rate".to_owned(), |rate| format!("{rate}/s"));
    let direction = match spec.direction {
        Direction::ClientToPeer => "client to peer",
        Direction::PeerToClient => "peer to client",
        Direction::Echo => "client to peer and back",
    };
    let shape = match spec.shape {
        Shape::Audio => "audio",
        Shape::Video => "video",
        Shape::Flood => "flood",
        Shape::Uneven => "uneven",
    };
    let over = if traffic.transport == Transport::Udp {
        String::new()
    } else {
        format!(", clients over {}", traffic.transport.describe())
    };
    let seconds = spec.duration.as_secs_f64();
    let mut text = format!(
        "{direction}, {shape} packets of {} bytes, {} flows, {rate}, {seconds:.1} s, by {}{over}\n\
         sent       {} ({:.0}/s)\n\
         delivered  {} ({:.0}/s), lost {:.3} %, {} duplicates, {} reordered, {} damaged\n\
         latency    {}\n",
        spec.size,
        traffic.flows,
        traffic.backend.name(),
        traffic.sent,
        traffic.sent as f64 / seconds,
        traffic.delivered,
        traffic.delivered_per_second(),
        100.0 * traffic.loss(),
        traffic.duplicates,
        traffic.reordered,
        traffic.damaged,
        latency(traffic.latency.as_ref()),
    );
    text += &used(&traffic.used, spec.duration, Some((traffic.delivered, "packet")));
    for doubt in doubts(traffic) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "note: {doubt}");
    }
    text
}

/// Reasons why the figures may describe the load tool rather than the server.
fn doubts(traffic: &Traffic) -> Vec<String> {
    let mut doubts = Vec::new();
    if traffic.behind > NEGLIGIBLE {
        doubts.push(format!(
            "the sender was late and skipped {:.1} % of the offered packets: give it more threads or \
             cores, or lower the rate",
            100.0 * traffic.behind
        ));
    }
    let tried = (traffic.sent + traffic.refused).max(1) as f64;
    if traffic.held_back() > NEGLIGIBLE {
        doubts.push(format!(
            "backpressure: {} packets ({:.1} %) were not sent because the connections were full. The \
             server, or the path to it, was the limit; they do not count as sent",
            traffic.refused,
            100.0 * traffic.held_back()
        ));
    } else if traffic.refused as f64 > NEGLIGIBLE * tried {
        doubts.push(format!(
            "the sender's own kernel refused {} packets (full queue, or too large for the link); they \
             do not count as sent",
            traffic.refused
        ));
    }
    if traffic.dropped as f64 > NEGLIGIBLE * traffic.sent.max(1) as f64 {
        doubts.push(format!(
            "{} packets were relayed and dropped by full sockets of the load tool: give the receiving \
             side more threads or cores, or raise net.core.rmem_max",
            traffic.dropped
        ));
    }
    doubts
}

pub(super) fn find_max(found: &FindMax) -> String {
    let mut heading = vec!["offered/s", "delivered/s", "lost"];
    let is_stream = found.confirmed.transport.is_stream();
    if is_stream {
        heading.push("held back");
    }
    let rows = found.points.iter().map(|point| {
        let mut row = vec![
            format!("{:.0}", point.offered),
            format!("{:.0}", point.delivered),
            format!("{:.3} %", 100.0 * point.loss),
        ];
        row.extend(is_stream.then(|| format!("{:.3} %", 100.0 * point.held_back)));
        row
    });
    let points = table(heading.into_iter().map(str::to_owned).collect(), rows);
    let note = match found.limit {
        Limit::Server => "",
        Limit::Generator => {
            "note: the load tool could send no more: the server's limit is at least as high"
        }
        Limit::Unconfirmed => {
            "note: no rate was delivered with so little loss in the confirming run: this is the one \
             that lost least"
        }
    };
    format!("{points}\nconfirmed: {}{note}", traffic(&found.confirmed))
}

/// Percentiles of a latency.
pub(super) fn latency(latency: Option<&Latency>) -> String {
    let Some(Latency { p50, p90, p99, p999, max }) = latency else {
        return "unknown: nothing arrived, or sender and receiver have different clocks".to_owned();
    };
    let [p50, p90, p99, p999, max] =
        [p50, p90, p99, p999, max].map(|nanos| units::nanos(*nanos as f64));
    format!("p50 {p50}, p90 {p90}, p99 {p99}, p99.9 {p999}, max {max}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run without doubts.
    fn run() -> Traffic {
        Traffic {
            latency: Some(Latency { p50: 15_000, ..Latency::default() }),
            ..Traffic::example(Direction::ClientToPeer)
        }
    }

    #[test]
    fn a_run_without_doubts_has_no_notes() {
        let text = traffic(&run());
        for part in
            ["client to peer, video", "sent       2000 (1000/s)", "lost 0.500 %", "p50 15.0 µs"]
        {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("note:") && !text.contains("over"), "{text}");
        let text = traffic(&Traffic { transport: Transport::Tls, ..run() });
        assert!(text.contains("by sockets, clients over TLS 1.3 (TLS_AES_128_GCM"), "{text}");
    }

    #[test]
    fn limits_of_the_load_tool_are_reported() {
        let doubts = |change: fn(&mut Traffic)| {
            let mut traffic = run();
            change(&mut traffic);
            doubts(&traffic).join("\n")
        };
        assert!(doubts(|t| t.behind = 0.031).contains("3.1 %"));
        assert!(doubts(|t| t.refused = 50).contains("refused 50 packets"));
        assert!(doubts(|t| t.dropped = 7).contains("7 packets were relayed"));
        let held = doubts(|t| (t.refused, t.transport) = (500, Transport::Tls));
        assert!(held.starts_with("backpressure: 500 packets (20.0 %)"), "{held}");
        assert_eq!(doubts(|t| (t.behind, t.refused, t.dropped) = (0.0005, 1, 1)), "");
    }
}
