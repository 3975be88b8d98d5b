//! Arguments of `turnpike token`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::Output;

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Make a token for the interface of `[api]` and print it, once
    ///
    /// The server keeps its hash alone. A running server accepts it from now on.
    Add(TokenAdd),
    /// List the tokens
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Remove a token; browsers that signed in with it are signed out
    Remove {
        /// Its name
        name: String,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TokenAdd {
    /// Its name, which each line of the log about its changes has
    pub(crate) name: String,
    /// Its rights
    #[arg(long, value_enum)]
    pub(crate) role: Role,
    /// The only realm that it sees and changes [default: the whole server]
    #[arg(long)]
    pub(crate) realm: Option<String>,
    /// Time until it expires: "30 d" [default: never]
    #[arg(long, value_name = "TIME", value_parser = crate::duration::parse)]
    pub(crate) expires: Option<Duration>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Role {
    /// Ask for time-limited credentials at /turn, and nothing else: for applications
    Mint,
    /// See everything, and change nothing
    Read,
    /// End sessions and reload the configuration, too
    Operate,
    /// Drain the server and change users of the database, too
    Admin,
}

impl From<Role> for admin::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Mint => Self::Mint,
            Role::Read => Self::Read,
            Role::Operate => Self::Operate,
            Role::Admin => Self::Admin,
        }
    }
}
