//! Runs of requests, and attacks.

use std::fmt::Write as _;

use super::traffic::latency;
use super::used;
use crate::outcome::{AttackedCall, Hostile, Requests, Traffic};

pub(super) fn requests(run: &Requests) -> String {
    let Requests { mode, transport, started, succeeded, failed, datagrams, duration, .. } = run;
    let seconds = duration.as_secs_f64();
    let mut text = format!(
        "{mode}, over {}: {:.0} per second ({succeeded} of {started} in {seconds} s)\n",
        transport.describe(),
        *succeeded as f64 / seconds
    );
    text += &failures(failed);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "messages   {} sent, {} received", datagrams.0, datagrams.1);
    if run.latency.is_some() {
        let _ = writeln!(text, "latency    {}", latency(run.latency.as_ref()));
    }
    text += &used(&run.used, *duration, Some((*succeeded, mode)));
    if failed.iter().any(|(reason, _)| reason.contains("answer")) {
        text += "note: servers may limit unauthenticated responses (turnpike: \
                 quotas.unauthenticated_responses_per_second): lift that limit before you measure\n";
    }
    text
}

pub(super) fn hostile(run: &Hostile) -> String {
    let Hostile { variant, sent, sent_bytes, refused, answers, answer_bytes, probe, .. } = run;
    let per_second = |count: u64| count as f64 / run.duration.as_secs_f64();
    let mut text = format!(
        "{variant}: {:.0} datagrams per second sent, {:.0} answers per second\n\
         {sent} datagrams, {sent_bytes} bytes sent ({refused} refused by the kernel); {answers} answers, \
         {answer_bytes} bytes: amplification {:.3}\n\
         legitimate client: {} of {} allocations; latency: {}\n",
        per_second(*sent),
        per_second(*answers),
        run.amplification(),
        probe.succeeded,
        probe.started,
        latency(probe.latency.as_ref()),
    );
    text += &failures(&probe.failed);
    text += &run.call.as_deref().map(call).unwrap_or_default();
    text + &used(&run.used, run.duration, None)
}

fn failures(failed: &[(String, u64)]) -> String {
    failed.iter().map(|(reason, times)| format!("failed     {times} times: {reason}\n")).collect()
}

fn call(call: &AttackedCall) -> String {
    let line = |when: &str, traffic: &Traffic| {
        let lost = traffic.sent.saturating_sub(traffic.delivered);
        let latency = latency(traffic.latency.as_ref());
        format!("call {when}: {} packets, {lost} lost; latency: {latency}\n", traffic.sent)
    };
    let mut text = line("before", &call.quiet) + &line("during", &call.attacked);
    if let (Some(quiet), Some(attacked)) = (call.quiet.latency, call.attacked.latency) {
        let ratio = attacked.p99 as f64 / quiet.p99.max(1) as f64;
        let _ = writeln!(text, "p99 during the attack: {ratio:.2} times that before");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::outcome::{Latency, Used};
    use crate::traffic::Transport;

    #[test]
    fn rates_failures_and_latency_are_shown() {
        let text = requests(&Requests {
            mode: "alloc".to_owned(),
            transport: Transport::Udp,
            started: 1001,
            succeeded: 1000,
            failed: vec![("Allocate: no answer".to_owned(), 1)],
            datagrams: (3003, 3000),
            duration: Duration::from_secs(2),
            latency: Some(Latency { p50: 1_500_000, ..Latency::default() }),
            used: Used::default(),
        });
        for part in [
            "500 per second (1000 of 1001 in 2 s)",
            "1 times: Allocate: no answer",
            "p50 1.50 ms",
            "unauthenticated_responses_per_second",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
    }
}
