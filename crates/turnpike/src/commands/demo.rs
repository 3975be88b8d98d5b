//! `turnpike demo`: relays an audio and a video flow through a server in both directions, and
//! reports loss and latency.
//!
//! Without `--server`, the server, the client and the peer run in this process on the loopback
//! interface. With `--server`, two clients of that server send to each other's relayed addresses.

mod call;
mod caller;
mod endpoint;
mod flow;
mod local;
mod packet;
mod report;
mod tally;

use std::time::Duration;

use anyhow::anyhow;

use crate::cli;
use crate::failure::{Failure, Result};

/// Maximum share of lost packets in a flow of a successful demo.
const LOSS_MAX: f64 = 0.01;

pub(crate) fn run(args: &cli::Demo) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(demo(args));
    runtime.shutdown_background();
    outcome
}

async fn demo(args: &cli::Demo) -> Result<()> {
    let quiet = args.output.json;
    let options = call::CallOptions { time: Duration::from_secs(args.seconds), quiet };
    let result = match (&args.server, &args.user, &args.password) {
        (Some(server), Some(user), Some(password)) => {
            let login = caller::Login { user, password };
            call::between_two_clients(server, login, options).await?
        }
        // clap ensures that either all three options are present or none.
        _ => {
            let server = local::start().await?;
            let result = call::with_a_peer(&server, options).await;
            server.stop().await;
            result?
        }
    };
    if quiet {
        report::print_json(&result)?;
    } else {
        report::print(&result)?;
    }
    if result.tallies.good(LOSS_MAX) {
        return Ok(());
    }
    Err(Failure::failed(anyhow!("more than {} % of a flow was lost", LOSS_MAX * 100.0)).hint(
        "a busy machine or the end of the session explains it; otherwise look at `turnpike status` for \
         the reasons of dropped packets",
    ))
}
