//! Arguments of the modes that send requests.

use std::net::IpAddr;

use clap::Args;
use turn_types::Prefix;

use super::Variant;

/// Arguments of `load` for requests.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Requests (--mode alloc, binding, hostile)")]
pub struct RequestArgs {
    /// Exchanges at the same time, over all threads
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub in_flight: u32,
    /// Threads that send and receive
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
    /// Do not release allocations: they fill the server until they expire
    #[arg(long)]
    pub no_release: bool,
    /// Kind of attack
    #[arg(long, value_enum, required_if_eq("mode", "hostile"))]
    pub variant: Option<Variant>,
    /// Source address of legitimate traffic meanwhile: a client that requests allocations, and with
    /// --peer a call of --sessions flows at --call-rate, which is measured before as well [default:
    /// as --local]
    #[arg(long, value_name = "ADDR")]
    pub bystander: Option<IpAddr>,
    /// Packets per second of that call, over all flows
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub call_rate: u32,
    /// Source addresses of the variant spoofed, an IPv4 network. Answers are counted where they
    /// arrive at this host: 127.0.0.0/8 for a server on the loopback; elsewhere, route the network
    /// here on the server, and run `ip route add local NETWORK dev lo`. Only forge addresses of
    /// your own networks
    #[arg(long, value_name = "NETWORK", default_value = "127.128.0.0/9")]
    pub sources: Prefix,
}
