//! `turnpike drain`: no new allocations; the server ends when the last one has.

use std::time::Duration;

use admin::types::DrainRequest;

use crate::cli::{self, Place};
use crate::commands::ask;
use crate::failure::Result;
use crate::output;

pub(crate) fn run(place: &Place, args: &cli::Drain) -> Result<()> {
    let request = DrainRequest { deadline_seconds: args.deadline.map(|time| time.as_secs()) };
    let drain = ask(place, async |client| client.drain(request).await)?;
    if args.output.json {
        return output::print_json(&drain);
    }
    let deadline = output::duration(Duration::from_secs(drain.deadline_seconds));
    output::print(&match drain.allocations_live {
        0 => "draining: no allocation is live, the server stops now".to_owned(),
        1 => format!(
            "draining: 1 allocation is live; the server stops when it ends, at the latest in {deadline}"
        ),
        live => format!(
            "draining: {} allocations are live; the server stops when the last one ends, at the \
             latest in {deadline}",
            output::grouped(live)
        ),
    })
}
