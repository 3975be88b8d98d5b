//! Arguments of `turnpike user`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::Output;

#[derive(Debug, Args)]
pub(crate) struct User {
    /// The users' realm [default: the realm of the configuration named with --config, else of the
    /// running server, else of the usual configuration]
    #[arg(long, global = true, value_name = "REALM")]
    pub(crate) realm: Option<String>,
    #[command(subcommand)]
    pub(crate) command: UserCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Add a user, or with --stdin many
    ///
    /// Each line of standard input is a user, NAME:PASSWORD or a JSON object: {"username": "bob",
    /// "password": "...", "allocations_max": 5}, or with the keys "md5" and "sha256" of
    /// `turnpike user export --keys` instead of the password. All are added, or none: each wrong
    /// line is reported with its number.
    Add(UserAdd),
    /// Change the limit of a user; the password stays. With --stdin, limits and passwords of many
    ///
    /// Each line of standard input is as for `turnpike user add --stdin`; an object without a
    /// password changes the limit alone. All are changed, or none.
    Set(UserSet),
    /// Give a user a new password; the rest stays
    #[command(visible_alias = "passwd")]
    Password(UserPassword),
    /// Show a user: its limit, its age and the kinds of its keys, never a key
    Show {
        /// The user's name
        #[arg(value_parser = crate::escape::argument)]
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// List the users
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Print the users as lines of JSON, for `turnpike user set --stdin`; with --keys for
    /// `turnpike user add --stdin` of another server
    Export(UserExport),
    /// Delete a user; its allocations end at their next refresh, or now with --end-sessions
    Delete {
        /// The user's name
        #[arg(value_parser = crate::escape::argument)]
        name: String,
        /// End the user's live sessions
        #[arg(long)]
        end_sessions: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Refuse a user, a credential, a shared secret or a token key from now on, and end its
    /// sessions
    ///
    /// The running server does it within a second and remembers it over restarts, also for users
    /// that are not in its database. Each server has revocations of its own.
    Revoke(UserRevoke),
    /// Accept a revoked user, credential, secret or key again
    Restore(UserRestore),
    /// List the revocations of the running server, of all realms unless one is named
    Revoked {
        #[command(flatten)]
        output: Output,
    },
}

/// The thing that is revoked or restored.
#[derive(Debug, Args)]
pub(crate) struct Revocable {
    /// A user, the user part or the whole name of time-limited credentials, or a name as
    /// `turnpike sessions` shows it
    #[arg(value_parser = crate::escape::argument)]
    pub(crate) name: String,
    /// NAME is that of a shared secret; `default` is auth.secret
    #[arg(long, conflicts_with = "token_key")]
    pub(crate) secret: bool,
    /// NAME is the kid of a key of auth.token_keys
    #[arg(long)]
    pub(crate) token_key: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct UserRevoke {
    #[command(flatten)]
    pub(crate) what: Revocable,
    /// Refuse it for this time: "12 h" [default: until it is restored; a name with an expiry in it,
    /// until then]
    #[arg(long = "for", value_name = "TIME", value_parser = crate::duration::parse)]
    pub(crate) lasts: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct UserRestore {
    #[command(flatten)]
    pub(crate) what: Revocable,
}

/// Source of a password.
#[derive(Debug, Args)]
pub(crate) struct Password {
    /// The password; other users of this host can see it in the list of processes
    #[arg(long, conflicts_with = "password_stdin")]
    pub(crate) password: Option<String>,
    /// Read the password from standard input [default: generate one and print it]
    #[arg(long)]
    pub(crate) password_stdin: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UserAdd {
    /// The user's name
    #[arg(required_unless_present = "stdin")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) password: Password,
    /// Live allocations this user may have, instead of the configured quota; 0: no limit
    #[arg(long, value_name = "N")]
    pub(crate) allocations_max: Option<u32>,
    /// Replace a user of this name: another password, and the limit of this command
    #[arg(long)]
    pub(crate) replace: bool,
    /// Read users from standard input, a line each
    #[arg(long, conflicts_with_all = ["name", "password", "password_stdin"])]
    pub(crate) stdin: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct UserSet {
    /// The user's name
    #[arg(required_unless_present = "stdin", value_parser = crate::escape::argument)]
    pub(crate) name: Option<String>,
    /// Live allocations this user may have; 0: no limit; default: the configured quota
    #[arg(long, value_name = "N|default", value_parser = allocations_max, required_unless_present = "stdin")]
    pub(crate) allocations_max: Option<AllocationsMax>,
    /// Read users from standard input, a line each
    #[arg(long, conflicts_with_all = ["name", "allocations_max"])]
    pub(crate) stdin: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// A user's limit of live allocations; `None` is the configured quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllocationsMax(pub(crate) Option<u32>);

#[derive(Debug, Args)]
pub(crate) struct UserPassword {
    /// The user's name
    #[arg(value_parser = crate::escape::argument)]
    pub(crate) name: String,
    /// End the user's live sessions; otherwise they end at their next refresh
    #[arg(long)]
    pub(crate) end_sessions: bool,
    #[command(flatten)]
    pub(crate) password: Password,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct UserExport {
    /// Write them with their keys, to a new file that only its owner reads. A key is as good as a
    /// password in this realm: keep the file as you keep the database
    #[arg(long, value_name = "FILE")]
    pub(crate) keys: Option<PathBuf>,
}

/// A limit of allocations, or the word for none of its own.
fn allocations_max(text: &str) -> Result<AllocationsMax, String> {
    if text == "default" {
        return Ok(AllocationsMax(None));
    }
    let number = text.parse().map_err(|_| "write a whole number, or \"default\"".to_owned())?;
    Ok(AllocationsMax(Some(number)))
}
