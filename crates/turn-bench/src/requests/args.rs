//! Arguments of the modes that send requests.

use clap::Args;

/// What `load` takes for requests.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Requests (--mode alloc, binding)")]
pub struct RequestArgs {
    /// Exchanges at the same time, over all threads
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub in_flight: u32,
    /// Threads that send and receive
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
    /// Do not give allocations back: they fill the server until their lifetime ends
    #[arg(long)]
    pub no_release: bool,
}
