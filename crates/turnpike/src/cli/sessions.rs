//! Arguments of `turnpike sessions` and `turnpike session`.

use clap::{Args, Subcommand};

use super::{ClientAddress, Output};

#[derive(Debug, Args)]
pub(crate) struct Sessions {
    /// Only sessions of one user
    #[arg(long, value_parser = crate::escape::argument)]
    pub(crate) user: Option<String>,
    /// Only sessions of one realm
    #[arg(long)]
    pub(crate) realm: Option<String>,
    /// Only clients at this address, or at this address and port
    #[arg(long, value_name = "IP[:PORT]")]
    pub(crate) client: Option<ClientAddress>,
    /// Order: age, expires, rate, packets, traffic, dropped, user or client; a minus in front
    /// reverses it
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub(crate) sort: Option<String>,
    /// Show the peers of each: its permissions, channels and connections, with the time left
    #[arg(long)]
    pub(crate) peers: bool,
    /// Maximum number of sessions
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// Repaint the terminal each second, with rates, until Ctrl-C; as many sessions as it has lines
    #[arg(long, conflicts_with = "json")]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Session {
    /// End allocations
    ///
    /// All of a user or a client are counted first, and ended once that was agreed to on the
    /// terminal, or with --yes.
    #[command(override_usage = "turnpike session end <ID>...\n       \
        turnpike session end [--user <NAME>] [--client <IP[:PORT]>] [--yes]")]
    End {
        /// Their ids, as `turnpike sessions` shows them
        #[arg(value_name = "ID", required_unless_present_any = ["user", "client"])]
        ids: Vec<String>,
        /// All of one user
        #[arg(long, value_name = "NAME", conflicts_with = "ids", value_parser = crate::escape::argument)]
        user: Option<String>,
        /// All of clients at this address, or at this address and port
        #[arg(long, value_name = "IP[:PORT]", conflicts_with = "ids")]
        client: Option<ClientAddress>,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
        #[command(flatten)]
        output: Output,
    },
}
