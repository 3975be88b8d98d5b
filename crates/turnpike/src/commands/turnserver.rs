//! Program under coturn's name, `turnserver`. Coturn's command line is converted to `turnpike run
//! --coturn-config`.

mod detach;
mod user;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use atomic_file::Owner as FileOwner;
use clap::Parser as _;
use coturn_config::{ConfigurationFile, Log, Process, configuration_file};

use self::detach::DETACHED;
use self::user::Owner;
use crate::cli::{Cli, Command};
use crate::coturn::{self, NO_FILE};
use crate::data_directory;
use crate::failure::{Failure, Result};
use crate::logging::{LogFile, LogTarget};
use crate::paths;
use crate::process::{PidFile, ProcessOptions};

/// File name of the configuration if the command line names none.
const NAME: &str = "turnserver.conf";

const USAGE: &str = "Usage: turnserver [options]

Turnpike under coturn's name. It reads coturn's options from a file and from the command line, and logs those that are not
in force, with the reason.

  -c, --config=FILE     coturn's configuration; by default turnserver.conf, searched as coturn does
  -n                    no file
  -o, --daemon          go to the background when the server serves
  -l, --log-file=FILE   append the log to FILE; `stdout` and `syslog` are known as well
  --syslog              the system's log
  --no-stdout-log       no copy of a log file's lines on standard output
  --pidfile=FILE        write the process id there; /var/run/turnserver.pid with -o
  --proc-user=NAME      become this user
  --proc-group=NAME     become this group
  --version             print the version
  -h, --help            print this

All other options are coturn's. Without -l the log is on standard error. SIGHUP opens the log file again and reads the
configuration again, SIGUSR1 drains, SIGUSR2 reads certificates again. Data is in /var/lib/turnpike, or where
TURNPIKE_DATA says.
";

/// Default file for the process id of a server in the background.
const PID_FILE: &str = "/var/run/turnserver.pid";

/// Runs the server. Returns when the server has stopped.
pub(crate) fn run(words: impl Iterator<Item = String>) -> Result<()> {
    let mut words = words.peekable();
    let is_detached = words.next_if(|word| word == DETACHED).is_some();
    let words: Vec<String> = words.collect();
    if words.iter().any(|word| word == "-h" || word == "--help") {
        return crate::output::print(USAGE.trim_end());
    }
    if words.iter().any(|word| word == "--version") {
        return crate::output::print(env!("CARGO_PKG_VERSION"));
    }
    let file = match configuration_file(&words) {
        ConfigurationFile::None => PathBuf::from(NO_FILE),
        ConfigurationFile::Usual => coturn::find(NAME).unwrap_or_else(|| PathBuf::from(NO_FILE)),
        ConfigurationFile::Named(name) => find(&name)?,
    };
    let wanted = coturn_config::process(&coturn::read(&file)?, &words);
    if wanted.daemon && !is_detached {
        return detach::start(&words);
    }
    if is_detached {
        detach::leave_session()?;
    }
    let own = ["turnpike", "run", "--coturn-config"].map(str::to_owned);
    let file = file.display().to_string();
    let all = own.into_iter().chain([file, "--".to_owned()]).chain(words);
    let cli = Cli::parse_from(all);
    let Some(Command::Run(args)) = cli.command else { return Ok(()) };
    let mut paths = args.paths(&cli.paths)?;
    // Determined before the user changes. Root's data directory will belong to the new user.
    paths.data = Some(paths::data_directory(&paths));
    paths.process = place(&wanted, is_detached, paths.data.as_deref())?;
    paths.data = paths.data.map(data_directory::writable_or_temporary).transpose()?;
    let pid_file = paths.process.pid_file.clone();
    let ended = super::run::run(&paths);
    if let Some(pid_file) = pid_file {
        pid_file.end();
    }
    ended
}

/// Opens the log, writes the process id, and then changes to the user of the options.
fn place(wanted: &Process, is_detached: bool, data: Option<&Path>) -> Result<ProcessOptions> {
    let owner = Owner::named(wanted.user.as_deref(), wanted.group.as_deref())?;
    let files_owner = owner.map_or(FileOwner::Process, Owner::of_files);
    let pid_file = write_pid(wanted.pid_file.as_deref(), is_detached, files_owner)?;
    let log = match &wanted.log {
        // A background server's standard error has no reader.
        Log::Unnamed if is_detached => LogTarget::Syslog { facility: 3 },
        Log::Unnamed => LogTarget::Stderr,
        Log::Stdout => LogTarget::Stdout,
        Log::Syslog { facility } => LogTarget::Syslog { facility: *facility },
        Log::File { path, is_copied } => open(path, *is_copied && !is_detached, files_owner),
    };
    if let Some(owner) = owner {
        data.map(|data| owner.prepare(data)).transpose()?;
        owner.become_it()?;
    }
    Ok(ProcessOptions { log, pid_file, is_detached })
}

/// Writes the process id to the file of the options. A server in the background has a default file.
///
/// # Errors
/// The named file of a server in the background cannot be written. The program that started the
/// server expects the process id there. Other servers start without the file, as coturn does.
fn write_pid(
    named: Option<&Path>,
    is_detached: bool,
    owner: FileOwner,
) -> Result<Option<Arc<PidFile>>> {
    let Some(path) = named.or_else(|| is_detached.then_some(Path::new(PID_FILE))) else {
        return Ok(None);
    };
    let error = match PidFile::write(path, owner) {
        Ok(written) => return Ok(Some(Arc::new(written))),
        Err(error) => anyhow!("cannot write the process id to {}: {error}", path.display()),
    };
    if is_detached && named.is_some() {
        return Err(Failure::failed(error)
            .hint("name a file in a directory of the server's user with --pidfile, or start it without -o"));
    }
    eprintln!("{error}");
    Ok(None)
}

/// Opens the log file. Returns standard error if the file cannot be written.
fn open(path: &Path, is_copied: bool, owner: FileOwner) -> LogTarget {
    LogFile::open(path, is_copied, owner).map_or_else(
        |error| {
            eprintln!("cannot write the log to {}, and write it here: {error}", path.display());
            LogTarget::Stderr
        },
        LogTarget::File,
    )
}

/// Finds the configuration as coturn does. A name with a directory is used as is. Other names are
/// searched in the usual directories.
fn find(name: &str) -> Result<PathBuf> {
    let named = Path::new(name);
    if named.components().count() > 1 {
        return Ok(named.to_owned());
    }
    coturn::find(name).ok_or_else(|| {
        let all = coturn::DIRECTORIES.join(", ");
        Failure::usage(anyhow!("there is no {name}"))
            .hint(format!("looked for it in {all}; -c FILE names one, and -n needs none"))
    })
}
