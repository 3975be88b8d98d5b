//! `turnpike log-level`: logs events of selected clients and users in detail for a limited time.

use std::time::Duration;

use admin::types::{Trace, Traces};

use crate::cli::{self, Level, PathOptions};
use crate::commands::ask;
use crate::escape;
use crate::failure::{Failure, Result};
use crate::output;

pub(crate) fn run(paths: &PathOptions, args: &cli::LogLevel) -> Result<()> {
    let is_limited = args.client.is_some() || args.user.is_some();
    if is_limited && args.level != Some(Level::Debug) {
        let error = anyhow::anyhow!("--client and --user belong to the level debug");
        return Err(Failure::usage(error)
            .hint("write: turnpike log-level debug --client 192.0.2.7 --for \"10 min\""));
    }
    let traces = ask(paths, async |server| match args.level {
        None => server.traces().await,
        Some(Level::Configured) => server.clear_traces().await,
        Some(Level::Debug) => {
            let client = args.client.map(|prefix| prefix.to_string());
            let (user, seconds) = (args.user.clone(), args.time.as_secs());
            server.add_trace(&Trace { client, user, seconds }).await
        }
    })?;
    if args.output.json {
        return output::print_json(&traces);
    }
    output::print(&describe(&traces))
}

fn describe(traces: &Traces) -> String {
    if traces.traces.is_empty() {
        return "the log has the configured level for all clients".to_owned();
    }
    let lines: Vec<_> = traces.traces.iter().map(line).collect();
    lines.join("\n")
}

fn line(trace: &Trace) -> String {
    let of = match (&trace.user, &trace.client) {
        (Some(user), Some(client)) => format!("user {} at {client}", escape::name(user)),
        (Some(user), None) => format!("user {}", escape::name(user)),
        (None, Some(client)) => format!("clients at {client}"),
        (None, None) => "all clients".to_owned(),
    };
    let left = output::duration(Duration::from_secs(trace.seconds));
    format!("{of}: logged in detail for {left}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trace_is_a_line_with_the_time_left() {
        let trace = |client: Option<&str>, user: Option<&str>| Trace {
            client: client.map(str::to_owned),
            user: user.map(str::to_owned),
            seconds: 600,
        };
        let traces = vec![trace(Some("192.0.2.7/32"), None), trace(None, Some("alice"))];
        assert_eq!(
            describe(&Traces { traces }),
            "clients at 192.0.2.7/32: logged in detail for 10 min\n\
             user alice: logged in detail for 10 min"
        );
        assert!(describe(&Traces::default()).contains("configured level"));
    }
}
