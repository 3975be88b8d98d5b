//! State of the server in five sentences.

use std::time::Duration;

use admin::types::{Overview, ProblemNow, Status};

use crate::output::{self, grouped};

pub(super) fn summary(status: &Status, now: &Overview, columns: usize) -> String {
    let sentences =
        [serves(status), wrong(&now.problems), allocations(status), traffic(now), refusals(now)];
    sentences.map(|sentence| output::wrapped(&sentence, 0, columns)).join("\n")
}

fn serves(status: &Status) -> String {
    let Status { version, realm, .. } = status;
    let age = output::duration(Duration::from_secs(status.uptime_seconds));
    let end = status.drain_seconds_left.map(|seconds| {
        let left = output::duration(Duration::from_secs(seconds));
        format!(", in {left} at the latest")
    });
    if status.draining {
        let end = end.unwrap_or_default();
        return format!(
            "turnpike {version}, started {age} ago, is draining: it ends with the last allocation{end}."
        );
    }
    format!("turnpike {version}, started {age} ago, serves the realm {realm}.")
}

fn wrong(problems: &[ProblemNow]) -> String {
    let severe = problems.iter().filter(|problem| problem.is_severe).count();
    match (problems.len(), severe) {
        (0, _) => "Nothing is wrong now.".to_owned(),
        (1, 0) => "One thing is wrong now.".to_owned(),
        (1, _) => "One thing is wrong now, and severe.".to_owned(),
        (all, 0) => format!("{all} things are wrong now."),
        (all, severe) => format!("{all} things are wrong now, {severe} of them severe."),
    }
}

fn allocations(status: &Status) -> String {
    let (live, total) = (status.allocations.live, status.allocations.total);
    let live = match live {
        0 => "No allocation is live".to_owned(),
        1 => "1 allocation is live".to_owned(),
        live => format!("{} allocations are live", grouped(live)),
    };
    format!("{live}; {} began since the start.", grouped(total))
}

fn traffic(now: &Overview) -> String {
    // Responses are also packets to clients, but not relayed data.
    let (to_peers, from_peers) = (now.rates.to_peers, now.rates.from_peers);
    let packets = to_peers.packets_per_second + from_peers.packets_per_second;
    if packets == 0 {
        return "No data is relayed now.".to_owned();
    }
    let bits = output::megabits(to_peers.bits_per_second + from_peers.bits_per_second);
    let by_kernel = match (&now.kernel_path_off, now.kernel_share_percent) {
        (None, Some(percent)) => format!(", {percent} % of the packets by the kernel path"),
        (Some(_), _) | (None, None) => String::new(),
    };
    format!("{} packets/s ({bits} Mbit/s) are relayed{by_kernel}.", grouped(packets))
}

/// Summarizes refused requests of the last minute. Refusals without advice are omitted, because
/// they are the first steps of every client.
fn refusals(now: &Overview) -> String {
    let recent = now.refusals.iter().filter(|one| one.last_minute > 0 && !one.advice.is_empty());
    let count: u64 = recent.clone().map(|one| one.last_minute).sum();
    let requests = if count == 1 { "request was" } else { "requests were" };
    match recent.max_by_key(|one| one.last_minute) {
        None => "No request was refused in the last minute.".to_owned(),
        Some(most) => {
            let or_most = if most.last_minute == count { "" } else { "most " };
            format!(
                "{} {requests} refused in the last minute, {or_most}for {} (turnpike why tells more).",
                grouped(count),
                most.reason
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use admin::types::{Allocations, Rate, ReasonCount};

    use super::*;

    #[test]
    fn five_sentences_tell_the_state() {
        let status = Status {
            version: "1.2.3".into(),
            realm: "a.example".into(),
            uptime_seconds: 3700,
            allocations: Allocations { live: 1, total: 1234, moved: 0 },
            ..Status::default()
        };
        let reason = |reason: &str, last_minute, advice: &str| ReasonCount {
            reason: reason.into(),
            last_minute,
            advice: advice.into(),
            ..ReasonCount::default()
        };
        let problem = ProblemNow { is_severe: true, text: "It burns.".into() };
        let mut now = Overview {
            problems: vec![problem.clone(), ProblemNow { is_severe: false, ..problem }],
            refusals: vec![
                reason("no_credentials", 900, ""),
                reason("unknown_user", 2, "Add."),
                reason("user_quota", 3, "Raise."),
            ],
            kernel_share_percent: Some(97),
            ..Overview::default()
        };
        now.rates.to_peers = Rate { packets_per_second: 51_200, bits_per_second: 64_500_000 };
        assert_eq!(
            summary(&status, &now, 200).lines().collect::<Vec<_>>(),
            [
                "turnpike 1.2.3, started 1 h 1 min ago, serves the realm a.example.",
                "2 things are wrong now, 1 of them severe.",
                "1 allocation is live; 1,234 began since the start.",
                "51,200 packets/s (64.500 Mbit/s) are relayed, 97 % of the packets by the kernel path.",
                "5 requests were refused in the last minute, most for user_quota (turnpike why tells more).",
            ]
        );
        let quiet = summary(&status, &Overview::default(), 200);
        for sentence in ["Nothing is wrong", "No data is relayed", "No request was refused"] {
            assert!(quiet.contains(sentence), "{quiet}");
        }
        let status = Status { draining: true, drain_seconds_left: Some(90), ..status };
        let draining = summary(&status, &now, 200);
        assert!(draining.contains("with the last allocation, in 1 min 30 s at the latest."));
    }
}
