//! `turnpike drain`: stops new allocations. The server exits after the last allocation has expired.

use std::time::Duration;

use admin::types::{Drain, DrainRequest, Status};
use admin::{Client, ClientError};
use anyhow::anyhow;
use tokio::time::sleep;

use crate::cli::{self, PathOptions};
use crate::commands::ask;
use crate::failure::{Failure, Result};
use crate::{output, paths};

/// Interval of queries to a draining server.
const LOOK: Duration = Duration::from_millis(250);

pub(crate) fn run(paths: &PathOptions, args: &cli::Drain) -> Result<()> {
    if args.cancel {
        let cancelled = ask(paths, async |client| client.cancel_drain().await)?;
        if args.output.json {
            return output::print_json(&cancelled);
        }
        let left = output::duration(Duration::from_secs(cancelled.seconds_left));
        return output::print(&format!(
            "the drain was cancelled with {left} left: new allocations are taken again"
        ));
    }
    let request = DrainRequest { deadline_seconds: args.deadline.map(|time| time.as_secs()) };
    let drain = ask(paths, async |client| client.drain(request).await)?;
    if args.output.json {
        output::print_json(&drain)?;
    } else {
        output::print(&describe(&drain))?;
    }
    if args.wait { wait(paths, &drain) } else { Ok(()) }
}

fn describe(drain: &Drain) -> String {
    let time = |seconds| output::duration(Duration::from_secs(seconds));
    let deadline = time(drain.deadline_seconds);
    let mut text = match drain.allocations_live {
        0 => "draining: no allocation is live, the server stops now".to_owned(),
        1 => format!(
            "draining: 1 allocation is live; the server stops when it ends, at the latest in {deadline}"
        ),
        live => format!(
            "draining: {} allocations are live; the server stops when the last one ends, at the \
             latest in {deadline}",
            output::grouped(live)
        ),
    };
    if let Some(left) = drain.replaced_seconds_left {
        let replaced = format!("\nthis replaces a drain that had {} left", time(left));
        text.push_str(&replaced);
    }
    text
}

/// Last known state of a draining server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    allocations: u64,
    seconds: u64,
}

/// Reason for the end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Empty,
    Deadline(u64),
    Cancelled,
}

/// Waits until the server has exited.
fn wait(paths: &PathOptions, drain: &Drain) -> Result<()> {
    let socket = paths::control_socket(paths).path;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut left = Left { allocations: drain.allocations_live, seconds: drain.deadline_seconds };
    let end = runtime.block_on(async {
        loop {
            let asked = async { Client::connect(&socket).await?.status().await };
            if let Some(end) = next(&mut left, asked.await)? {
                return Ok::<_, ClientError>(end);
            }
            sleep(LOOK).await;
        }
    });
    match end? {
        End::Empty => Ok(()),
        End::Deadline(live) => Err(Failure::failed(anyhow!(
            "the deadline ended {} live allocations",
            output::grouped(live)
        ))
        .hint("give calls more time with --deadline or shutdown.drain")),
        End::Cancelled => Err(Failure::failed(anyhow!("the drain was cancelled"))
            .hint("the server takes new allocations again")),
    }
}

/// Processes a response or failure of a status query. Returns the end of the wait, if reached.
fn next(left: &mut Left, answer: Result<Status, ClientError>) -> Result<Option<End>, ClientError> {
    match answer {
        Ok(Status { draining: false, .. }) => Ok(Some(End::Cancelled)),
        Ok(status) => {
            left.allocations = status.allocations.live;
            left.seconds = status.drain_seconds_left.unwrap_or_default();
            Ok(None)
        }
        // The server has exited, or exits during the query. The remaining seconds are rounded down,
        // and the last value is 0.
        Err(
            ClientError::NotRunning(_)
            | ClientError::Ended
            | ClientError::Broken(_)
            | ClientError::Refused { .. },
        ) => {
            let cut = left.allocations > 0 && left.seconds == 0;
            Ok(Some(if cut { End::Deadline(left.allocations) } else { End::Empty }))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use admin::types::Allocations;

    use super::*;

    fn status(live: u64, seconds: u64) -> Result<Status, ClientError> {
        let allocations = Allocations { live, ..Allocations::default() };
        let drain_seconds_left = Some(seconds);
        Ok(Status { draining: true, allocations, drain_seconds_left, ..Status::default() })
    }

    fn gone() -> Result<Status, ClientError> {
        Err(ClientError::NotRunning("control.sock".into()))
    }

    #[test]
    fn a_wait_ends_with_the_server_and_says_how() {
        for (answers, end) in [
            (vec![status(2, 60), status(0, 55), gone()], End::Empty),
            (vec![status(2, 60), gone()], End::Empty),
            (vec![status(2, 60), status(2, 0), gone()], End::Deadline(2)),
            (vec![status(0, 0), gone()], End::Empty),
            (vec![status(2, 60), Ok(Status::default())], End::Cancelled),
        ] {
            let mut left = Left { allocations: 9, seconds: 99 };
            let mut ends = answers.into_iter().map(|answer| next(&mut left, answer).unwrap());
            assert_eq!(ends.find_map(|end| end), Some(end));
        }
        let mut left = Left { allocations: 0, seconds: 0 };
        let stuck = Err(ClientError::TimedOut(Duration::from_secs(1)));
        assert!(next(&mut left, stuck).is_err());
    }

    #[test]
    fn a_second_drain_says_what_it_replaces() {
        let drain = Drain { deadline_seconds: 60, allocations_live: 2, ..Drain::default() };
        assert!(!describe(&drain).contains("replaces"));
        let second = describe(&Drain { replaced_seconds_left: Some(3600), ..drain });
        assert!(second.ends_with("this replaces a drain that had 1 h left"), "{second}");
    }
}
