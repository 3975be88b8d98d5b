//! The command line: its syntax, without the commands.

mod client;
mod import;
mod init;
mod run;
mod sessions;
mod token;
mod user;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::coturn::CoturnConfig;
use crate::process::ProcessOptions;

pub(crate) use self::client::ClientAddress;
pub(crate) use self::import::{Import, ImportCoturn};
pub(crate) use self::init::Init;
pub(crate) use self::run::Run;
pub(crate) use self::sessions::{Session, Sessions};
pub(crate) use self::token::{Token, TokenAdd};
pub(crate) use self::user::{
    AllocationsMax, Password, Revocable, User, UserAdd, UserCommand, UserExport, UserPassword,
    UserRestore, UserRevoke, UserSet,
};

/// The version, and the commit of this build.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("BUILD_COMMIT"), ")");

/// A TURN and STUN server.
///
/// Without a command it runs the server. Without a configuration file it starts with safe defaults
/// and one generated user, and prints how to try it.
#[derive(Debug, Parser)]
#[command(name = "turnpike", version = VERSION, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) paths: PathOptions,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Paths of the server's files: the same for the server and for commands that talk to it.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PathOptions {
    /// Configuration file [default: $TURNPIKE_CONFIG, else /etc/turnpike/turnpike.toml if it is
    /// there]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Paths", display_order = 900)]
    pub(crate) config: Option<PathBuf>,
    /// Directory of the user database and the control socket [default: $TURNPIKE_DATA, else as
    /// configured, else /var/lib/turnpike for root and services, ~/.local/share/turnpike for
    /// others]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Paths", display_order = 901)]
    pub(crate) data: Option<PathBuf>,
    /// Control socket [default: control.sock in the data directory]
    #[arg(long, global = true, value_name = "PATH", help_heading = "Paths", display_order = 902)]
    pub(crate) socket: Option<PathBuf>,
    /// Configuration of coturn to run from.
    #[arg(skip)]
    pub(crate) coturn: Option<CoturnConfig>,
    /// Place of the server in the system.
    #[arg(skip)]
    pub(crate) process: ProcessOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server (the default)
    Run(Run),
    /// Write a configuration: asks five questions on a terminal, or takes flags; replaces nothing
    Init(Init),
    /// Check a configuration file, its certificates and the modes of its files, and show the URIs
    /// for clients
    ///
    /// Exit status: 0 valid, perhaps with warnings; 1 valid, with problems that keep clients away
    /// or show secrets to others; 2 not valid.
    Check(Check),
    /// Manage the users of the database
    User(User),
    /// Manage the tokens of the interface and the page of `[api]`
    #[command(subcommand)]
    Token(Token),
    /// Generate a time-limited credential from a shared secret
    Credentials(Credentials),
    /// Relay a demonstration call: a server, a client and a peer in one process
    Demo(Demo),
    /// Test a STUN or TURN server from this host, as a client
    ///
    /// Exit status: 0 OK, 1 warning (a certificate that expires soon, a relay that cannot be tested
    /// from this host), 2 failure.
    Probe(Probe),
    /// Show the state of the running server
    Status(Status),
    /// List live allocations
    Sessions(Sessions),
    /// Act on allocations
    #[command(subcommand)]
    Session(Session),
    /// Explain recent refusals (reason, rule and remedy) or one live session
    Why(Why),
    /// Log the events of one client or user in detail, for a time
    ///
    /// The lines are of level DEBUG and come whatever log.level is, 50 a second at most from each
    /// worker. Nothing else changes, and the server ends it when the time is over.
    LogLevel(LogLevel),
    /// Reload the configuration of the running server
    Reload(Reload),
    /// Start another process in place of the running server, which takes over its calls
    ///
    /// For a new version, or for settings that need a restart. The new process reads the
    /// configuration, makes itself ready, and then takes the listeners, the clients' connections
    /// and their allocations; the old one goes on with everything if that fails, and otherwise
    /// ends. workers.count stays as it is.
    Upgrade(Upgrade),
    /// Keep the calls of the running server for the next one, in case it crashes
    ///
    /// A process beside the server, as the same user and with the same --config and --data. The
    /// server sends it copies of the sockets and the state of clients over UDP, and a server that
    /// is started within a minute of the crash goes on with them.
    Keep,
    /// Refuse new allocations, and stop the server when the last one has ended
    ///
    /// A second drain replaces the deadline of the first. SIGTERM during a drain keeps the later of
    /// its deadline and shutdown.drain; a second SIGTERM ends the server at once.
    Drain(Drain),
    /// Check and change host settings for high packet rates, or restore them
    #[command(subcommand)]
    Tune(Tune),
    /// Translate the configuration of another server
    #[command(subcommand)]
    Import(Import),
    /// Change the databases of coturn with the commands and options of its `turnadmin`
    ///
    /// The same when this program is called turnadmin, as by a link. `turnpike turnadmin --help`
    /// lists the commands.
    #[command(disable_help_flag = true)]
    Turnadmin(Turnadmin),
    /// Print the reference of the configuration file
    Reference(Reference),
    /// Print completions for a shell
    ///
    /// For bash: turnpike completions bash > ~/.local/share/bash-completion/completions/turnpike
    Completions(Completions),
    /// Write manual pages, for packages
    #[command(hide = true)]
    Manual(Manual),
}

/// Output format.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Output {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Turnadmin {
    /// Commands and options of turnadmin
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORD")]
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The file to check [default: the file that the server would read]
    pub(crate) file: Option<PathBuf>,
    /// Examine this host as well: ports, addresses, names, limits, firewall
    #[arg(long)]
    pub(crate) host: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Credentials {
    /// User of the credential, for quotas and logs
    #[arg(long, value_name = "NAME")]
    pub(crate) user: String,
    /// Time until it expires: "24 h", "30 min"
    #[arg(long, default_value = "24 h", value_parser = crate::duration::parse)]
    pub(crate) ttl: Duration,
    /// Limits in the name, which narrow what the realm allows:
    /// allocations=2&bytes_per_second=100000&lifetime=600&peers=192.0.2.0/24
    #[arg(long, value_name = "LIMITS")]
    pub(crate) limits: Option<turn_proto::GrantLimits>,
    /// Name of the configured secret to use [default: the first]
    #[arg(long, value_name = "NAME")]
    pub(crate) secret_name: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Demo {
    /// Time to relay
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,
    /// A running server (turn:HOST:PORT) instead of one started for the demo; two allocations
    /// on it then talk to each other
    #[arg(long, value_name = "URI", requires = "user", requires = "password")]
    pub(crate) server: Option<String>,
    /// User on that server
    #[arg(long, requires = "server")]
    pub(crate) user: Option<String>,
    /// Password on that server
    #[arg(long, requires = "server")]
    pub(crate) password: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Probe {
    /// The server: turn:HOST, turns:HOST, stun:HOST or stuns:HOST, with :PORT and ?transport=tcp or
    /// ?transport=udp, optionally
    pub(crate) uri: String,
    /// The user's name
    #[arg(long, value_name = "NAME")]
    pub(crate) username: Option<String>,
    /// The password; other users of this host can see it in the list of processes
    #[arg(long, conflicts_with = "password_stdin")]
    pub(crate) password: Option<String>,
    /// Read the password from standard input
    #[arg(long)]
    pub(crate) password_stdin: bool,
    /// Make a time-limited credential with this shared secret, for --username or "probe"
    #[arg(long, conflicts_with_all = ["password", "password_stdin", "secret_file"])]
    pub(crate) secret: Option<String>,
    /// File that holds the shared secret
    #[arg(long, value_name = "FILE", conflicts_with_all = ["password", "password_stdin"])]
    pub(crate) secret_file: Option<PathBuf>,
    /// Trust the authorities in this file (PEM), besides those of this host
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Name that the certificate has to be for, instead of the host in the URI
    #[arg(long, value_name = "NAME")]
    pub(crate) server_name: Option<String>,
    /// Go on with a certificate that clients refuse, and warn about it
    #[arg(long)]
    pub(crate) insecure: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Show the sizes of batches, too
    #[arg(long, short)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Why {
    /// A user, the address of a client, or the id of a live session [default: all refusals]
    #[arg(value_parser = crate::escape::argument)]
    pub(crate) who: Option<String>,
    /// Maximum number of kinds of refusals
    #[arg(long, value_name = "N", default_value = "20", value_parser = session_limit)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct LogLevel {
    /// "debug" begins, "configured" ends all [default: list them]
    #[arg(value_enum)]
    pub(crate) level: Option<Level>,
    /// Only clients of this address or network
    #[arg(long, value_name = "PREFIX")]
    pub(crate) client: Option<turn_types::Prefix>,
    /// Only this user; of a time-limited name the part behind the time
    #[arg(long, value_name = "NAME", value_parser = crate::escape::argument)]
    pub(crate) user: Option<String>,
    /// Time until it ends, 1 d at most
    #[arg(long = "for", value_name = "TIME", default_value = "10 min", value_parser = crate::duration::parse_trace)]
    pub(crate) time: Duration,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Level of the lines about clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Level {
    /// In detail
    Debug,
    /// As log.level is configured
    Configured,
}

#[derive(Debug, Args)]
pub(crate) struct Reload {
    /// End sessions whose shared secret, token key or realm is not in the configuration any more;
    /// otherwise they end at their next refresh
    #[arg(long)]
    pub(crate) end_sessions: bool,
    /// If the program of the running server was replaced since its start, start the new one in its
    /// place, as `upgrade` does
    #[arg(long)]
    pub(crate) upgrade: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Upgrade {
    /// The program to start [default: the one that this command is]
    #[arg(long, value_name = "PATH")]
    pub(crate) binary: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Drain {
    /// End live allocations after this time, 7 d at most: "10 min" [default: shutdown.drain in the
    /// configuration; where that is 0, 7 d]
    #[arg(long, value_parser = crate::duration::parse_deadline, conflicts_with = "cancel")]
    pub(crate) deadline: Option<Duration>,
    /// Return when the server has ended: exit status 0 when the last allocation ended in time, 1
    /// when the deadline ended it or the drain was cancelled
    #[arg(long, conflicts_with = "cancel")]
    pub(crate) wait: bool,
    /// Cancel the drain, and accept new allocations again
    #[arg(long)]
    pub(crate) cancel: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tune {
    /// Show settings that limit the packet rate, with reasons; changes nothing
    ///
    /// The advice is for the server's configuration (--config): its buffers, ports and quotas.
    /// Needs no privileges. Exit status 0 with any advice; for programs there is --json.
    Check(TuneCheck),
    /// Set the values that check advises, and record the old ones
    ///
    /// Shows the changes and asks. Needs root. Values last until the host restarts. Values that you
    /// have raised are never lowered.
    Apply(TuneApply),
    /// Restore the values before apply
    ///
    /// Values that were changed by other means since are reported and left alone. Needs root.
    Revert(TuneRevert),
}

/// Selection of items.
#[derive(Debug, Args)]
pub(crate) struct TuneItems {
    /// Only this item, by the name that check shows; repeatable
    #[arg(long, value_name = "ITEM", value_parser = tune_item)]
    pub(crate) only: Vec<&'static host_tuning::Entry>,
    /// All but this item; repeatable
    #[arg(long, value_name = "ITEM", value_parser = tune_item)]
    pub(crate) skip: Vec<&'static host_tuning::Entry>,
}

#[derive(Debug, Args)]
pub(crate) struct TuneCheck {
    /// Interface to check; repeatable [default: the ones of the default routes]
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Vec<String>,
    #[command(flatten)]
    pub(crate) items: TuneItems,
    /// Explain settings that are fine, too
    #[arg(long, short)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct TuneApply {
    /// Interface to tune; repeatable [default: the ones of the default routes]
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Vec<String>,
    #[command(flatten)]
    pub(crate) items: TuneItems,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Set the sysctls at every start of the host, too: writes /etc/sysctl.d/60-turnpike.conf,
    /// which revert removes
    #[arg(long)]
    pub(crate) persist: bool,
    /// File for the old values
    #[arg(long, value_name = "FILE", default_value = host_tuning::STATE)]
    pub(crate) state: PathBuf,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct TuneRevert {
    #[command(flatten)]
    pub(crate) items: TuneItems,
    /// Restore values that were changed by other means since, too
    #[arg(long)]
    pub(crate) force: bool,
    /// File of the old values
    #[arg(long, value_name = "FILE", default_value = host_tuning::STATE)]
    pub(crate) state: PathBuf,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Manual {
    /// Directory for the pages, created if it does not exist
    pub(crate) directory: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Reference {
    /// In which form
    #[arg(long, value_enum, default_value = "markdown")]
    pub(crate) format: ReferenceFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ReferenceFormat {
    /// A page for people
    Markdown,
    /// A JSON schema for editors
    JsonSchema,
}

/// As many sessions as one answer may have.
fn session_limit(text: &str) -> Result<usize, String> {
    let most = admin::limits::SESSIONS_MAX;
    text.parse()
        .ok()
        .filter(|limit| (1..=most).contains(limit))
        .ok_or_else(|| format!("write a whole number from 1 to {most}"))
}

/// An item of the host by its name.
fn tune_item(name: &str) -> Result<&'static host_tuning::Entry, String> {
    host_tuning::find(name)
        .ok_or_else(|| "there is no such item; `turnpike tune check` lists them".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use clap::error::ErrorKind;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn places_stand_below_what_a_command_takes() {
        let mut command = Cli::command();
        command.build();
        let drain = command.find_subcommand_mut("drain").unwrap();
        let help = drain.render_help().to_string();
        let (options, places) = help.split_once("Paths:").unwrap();
        assert!(options.contains("--deadline") && places.contains("--data"), "{help}");
    }

    #[test]
    fn running_is_the_default_and_places_may_come_anywhere() {
        let cli = parse("turnpike --data d --config c.toml").unwrap();
        assert!(cli.command.is_none());
        assert_eq!(cli.paths.data.unwrap(), PathBuf::from("d"));
        let cli = parse("turnpike sessions --user bob --data d --json").unwrap();
        assert_eq!(cli.paths.data.unwrap(), PathBuf::from("d"));
        let Some(Command::Sessions(sessions)) = cli.command else { panic!("sessions") };
        assert_eq!(sessions.user.as_deref(), Some("bob"));
        assert!(sessions.output.json);
        assert_eq!(sessions.limit as usize, admin::limits::SESSIONS_DEFAULT);
    }

    #[test]
    fn what_belongs_together_is_asked_for_together() {
        for line in [
            "turnpike demo --server turn:192.0.2.1:3478",
            "turnpike demo --user bob --password x",
            "turnpike demo --seconds 0",
            "turnpike user add bob --password x --password-stdin",
            "turnpike user set bob",
            "turnpike user set --stdin bob",
            "turnpike user set --stdin --allocations-max 5",
            "turnpike user add",
            "turnpike user add --stdin bob",
            "turnpike user add --stdin --password x",
            "turnpike user show",
            "turnpike user set bob --allocations-max all",
            "turnpike credentials --ttl 10",
            "turnpike drain --deadline 8d",
            "turnpike drain --cancel --wait",
            "turnpike drain --cancel --deadline 1min",
            "turnpike session end",
            "turnpike sessions --limit 0",
            "turnpike session end 0000000000000001 --user bob",
            "turnpike sessions --client bob",
            "turnpike tune",
            "turnpike tune check --only net.core.nothing",
        ] {
            let error = parse(line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
            assert_ne!(error.kind(), ErrorKind::DisplayHelp, "{line}");
        }
        assert!(
            parse("turnpike demo --server turn:192.0.2.1 --user bob --password x --seconds 5")
                .is_ok()
        );
    }

    /// No page names a command or an option that does not exist.
    #[test]
    fn commands_of_the_documentation_exist() {
        let commands = test_support::documented_commands("turnpike");
        assert!(commands.len() > 10, "{commands:?}");
        for command in commands {
            let Err(error) = Cli::try_parse_from(&command.words) else { continue };
            let kind = error.kind();
            let asks = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion];
            let stands_for_others = [
                ErrorKind::MissingRequiredArgument,
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
                ErrorKind::InvalidValue,
                ErrorKind::ValueValidation,
            ];
            let fine = asks.contains(&kind) || command.named && stands_for_others.contains(&kind);
            assert!(fine, "{}: {}\n{error}", command.page.display(), command.words.join(" "));
        }
    }
}
