//! coturn's client, which sends messages to an echo peer and counts the ones that come back.

use std::time::Duration;

use crate::{ECHO_PORT, Host, Lab, Server, Tool};

const PATIENCE: Duration = Duration::from_secs(120);

/// A client of uclient draws two channel numbers, and one in 16,384 draws the same number twice.
const CHANNEL_CONFLICT: &str = "channel bind: error 400 (Bad Request)";

/// Runs it in the client's host to its end. `identity` is its user and the peer's address (`-u`,
/// `-w`, `-e`), `server` the address of a listener. After a conflict of channels it runs once more,
/// with both outputs in the result: see [`assert_conflict_is_refused`].
#[must_use]
pub fn uclient(lab: &Lab, identity: &[&str], options: &[&str], server: &str) -> Tool {
    let mut command = lab.command(Host::Client, "turnutils_uclient");
    command.args(identity).args(["-r", &ECHO_PORT.to_string(), "-p", "3478"]);
    command.args(options).arg(server);
    let first = Tool::run(&mut command, PATIENCE);
    if !first.output.contains(CHANNEL_CONFLICT) {
        return first;
    }
    let second = Tool::run(&mut command, PATIENCE);
    Tool { output: first.output + &second.output, ..second }
}

/// Checks that the server has counted a conflict of channels if uclient reports one: other requests
/// with the answer 400 are no conflict.
///
/// # Panics
/// It is otherwise.
#[track_caller]
pub fn assert_conflict_is_refused(tool: &Tool, server: &Server) {
    if tool.output.contains(CHANNEL_CONFLICT) {
        let refusals = server.json(&["status"])["refusals"].take();
        let conflicts = refusals["channel_conflict"].as_u64();
        assert!(conflicts > Some(0), "{refusals:#}\n{}", tool.output);
    }
}

/// Checks that so many messages came back, and none is lost.
///
/// # Panics
/// It is otherwise, or uclient failed.
#[track_caller]
pub fn assert_echoed(tool: &Tool, expected: u64) {
    let number = |after: &str| -> Option<u64> {
        let rest = &tool.output[tool.output.rfind(after)? + after.len()..];
        rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    assert!(tool.ok, "uclient failed:\n{}", tool.output);
    assert_eq!(
        number("tot_recv_msgs="),
        Some(expected),
        "messages that came back:\n{}",
        tool.output
    );
    assert_eq!(number("Total lost packets"), Some(0), "lost messages:\n{}", tool.output);
}
