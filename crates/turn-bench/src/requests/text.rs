//! What was measured, for people.

use std::fmt::Write as _;
use std::time::Duration;

use crate::outcome::{Latency, Requests, Used};

/// A run of requests in a few lines.
#[must_use]
pub fn describe(requests: &Requests) -> String {
    let Requests { mode, transport, started, succeeded, failed, datagrams, duration, .. } =
        requests;
    let seconds = duration.as_secs_f64();
    let mut text = format!(
        "{mode}, by {}: {:.0} per second ({succeeded} of {started} in {seconds} s)",
        transport.describe(),
        *succeeded as f64 / seconds
    );
    for (why, times) in failed {
        let _ = write!(text, "\n  failed {times} times: {why}");
    }
    let (sent, received) = datagrams;
    let _ = write!(text, "\n  messages: {sent} sent, {received} received");
    if let Some(latency) = &requests.latency {
        let _ = write!(text, "\n  latency: {}", percentiles(latency));
    }
    text.push_str(&used(&requests.used, *duration, Some((*succeeded, mode))));
    if failed.iter().any(|(why, _)| why.contains("answer")) {
        text.push_str(
            "\n  A server may limit what it answers to strangers (turnpike: \
             quotas.unauthenticated_responses_per_second): lift that before you measure.",
        );
    }
    text
}

/// Percentiles in milliseconds.
pub(super) fn percentiles(latency: &Latency) -> String {
    let ms = |nanos: u64| nanos as f64 / 1e6;
    let Latency { p50, p90, p99, p999, max } = *latency;
    format!(
        "p50 {:.2} ms, p90 {:.2}, p99 {:.2}, p99.9 {:.2}, max {:.2}",
        ms(p50),
        ms(p90),
        ms(p99),
        ms(p999),
        ms(max)
    )
}

/// A line for each core that was watched, and one for the process, with its part of each of so many.
pub(super) fn used(used: &Used, duration: Duration, each: Option<(u64, &str)>) -> String {
    let mut text = String::new();
    for core in &used.cores {
        let _ =
            write!(text, "\n  core {} ({}): {:.1} % busy", core.core, core.role, core.busy * 100.0);
    }
    if let Some(ran) = used.process {
        let part = 100.0 * ran.as_secs_f64() / duration.as_secs_f64();
        let _ = write!(text, "\n  the process: {part:.1} % of a core");
        if let Some((count @ 1.., what)) = each {
            let micros = ran.as_secs_f64() * 1e6 / count as f64;
            let _ = write!(text, ", {micros:.1} us for each {what}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::CoreUse;
    use crate::traffic::Transport;

    #[test]
    fn rates_failures_and_latency_are_told() {
        let requests = Requests {
            mode: "alloc".to_owned(),
            transport: Transport::Udp,
            started: 1001,
            succeeded: 1000,
            failed: vec![("Allocate: no answer".to_owned(), 1)],
            datagrams: (3003, 3000),
            duration: Duration::from_secs(2),
            latency: Some(Latency { p50: 1_500_000, max: 3_000_000, ..Latency::default() }),
            used: Used {
                cores: vec![CoreUse {
                    role: "server".to_owned(),
                    core: 1,
                    busy: 0.5,
                    stat: [0.0; 6],
                }],
                process: Some(Duration::from_millis(60)),
            },
        };
        let text = describe(&requests);
        for said in [
            "500 per second (1000 of 1001 in 2 s)",
            "failed 1 times: Allocate: no answer",
            "p50 1.50 ms",
            "core 1 (server): 50.0 % busy",
            "the process: 3.0 % of a core, 60.0 us for each alloc",
            "unauthenticated_responses_per_second",
        ] {
            assert!(text.contains(said), "{said} is not in:\n{text}");
        }
    }
}
