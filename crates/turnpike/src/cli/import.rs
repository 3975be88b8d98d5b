//! Syntax of `turnpike import`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Output;

/// Another server's configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum Import {
    /// Translate the configuration of coturn, and account for each of its lines
    ///
    /// Without --output the configuration is printed on standard output, the account on standard
    /// error, and nothing is written.
    Coturn(ImportCoturn),
}

#[derive(Debug, Args)]
pub(crate) struct ImportCoturn {
    /// coturn's configuration file, or a file with its command line: a unit of systemd
    /// (`systemctl cat coturn`), a Compose file, or a `docker run` command. The configuration that
    /// it names is read before
    #[arg(default_value = "/etc/turnserver.conf")]
    pub(crate) file: PathBuf,
    /// Write the configuration to a new file, secrets to files beside it, and users into the
    /// database
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Leave coturn's database: copy its users, with their keys, into the server's own, and its
    /// realms, secrets, rules for peers and keys of tokens into the configuration. The URL of the
    /// database, such as sqlite-coturn:///var/lib/turn/turndb or
    /// postgresql://turn@db.example.org/turn. "-" reads the URL, which may hold a password, from
    /// standard input
    #[arg(long, value_name = "URL", requires = "output")]
    pub(crate) users: Option<String>,
    /// Check the new configuration at once, as `turnpike check` does, with its exit status. Without
    /// --output nothing is written, and findings name the lines of coturn's file
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) format: Output,
    /// Options of coturn's command line, behind `--`: they are read behind the file
    #[arg(last = true, value_name = "OPTION")]
    pub(crate) arguments: Vec<String>,
}
