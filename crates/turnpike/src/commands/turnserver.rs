//! The program under coturn's name, `turnserver`: coturn's command line, run as `turnpike run --coturn-config`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Parser as _;

use crate::cli::{Cli, Command};
use crate::coturn::NO_FILE;
use crate::failure::{Failure, OrFail as _, Result};

/// Name of the file where the command line names none.
const NAME: &str = "turnserver.conf";

/// Directories that are searched for a file without one, in coturn's order.
const DIRECTORIES: [&str; 8] = [
    ".",
    "turnserver",
    "coturn",
    "etc",
    "/etc",
    "/etc/turnserver",
    "/etc/coturn",
    "/usr/local/etc",
];

const USAGE: &str = "Usage: turnserver [options]

Turnpike under coturn's name. It reads coturn's options from a file and from the command line, and logs those that are not
in force, with the reason.

  -c, --config=FILE   coturn's configuration; by default turnserver.conf, searched as coturn does
  -n                  no file
  --pidfile=FILE      write the process id there
  --version           print the version
  -h, --help          print this

All other options are coturn's. It stays in the foreground and logs to standard error, for a service manager or a
container. SIGHUP reads the configuration again. Data is in /var/lib/turnpike, or where TURNPIKE_DATA says.
";

/// A command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Words {
    /// The named file.
    file: Option<String>,
    /// No file is to be read.
    no_file: bool,
    pid_file: Option<String>,
    help: bool,
    version: bool,
    /// Options for the translation.
    others: Vec<String>,
}

impl Words {
    fn of(words: impl Iterator<Item = String>) -> Self {
        let mut read = Self::default();
        let mut words = words.peekable();
        while let Some(word) = words.next() {
            let (name, inline) = match word.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
                _ => (word.as_str(), None),
            };
            match name {
                "-h" | "--help" => read.help = true,
                "--version" => read.version = true,
                "-n" => read.no_file = true,
                "-c" | "--config" => read.file = inline.or_else(|| words.next()),
                "--pidfile" => read.pid_file = inline.or_else(|| words.next()),
                _ => read.others.push(word),
            }
        }
        read
    }
}

/// Runs the server; returns when it ends.
pub(crate) fn run(words: impl Iterator<Item = String>) -> Result<()> {
    let words = Words::of(words);
    if words.help {
        return crate::output::print(USAGE.trim_end());
    }
    if words.version {
        return crate::output::print(env!("CARGO_PKG_VERSION"));
    }
    let file = match &words.file {
        _ if words.no_file => PathBuf::from(NO_FILE),
        file => find(file.as_deref().unwrap_or(NAME))?,
    };
    if let Some(pid_file) = &words.pid_file {
        fs::write(pid_file, format!("{}\n", std::process::id()))
            .or_fail("cannot write --pidfile")?;
    }
    let own = ["turnpike", "run", "--coturn-config"].map(str::to_owned);
    let file = file.display().to_string();
    let all = own.into_iter().chain([file, "--".to_owned()]).chain(words.others);
    let cli = Cli::parse_from(all);
    let Some(Command::Run(args)) = cli.command else { return Ok(()) };
    super::run::run(&args.paths(&cli.paths)?)
}

/// Finds a file as coturn does: one with a directory in its name there, any other in the usual places.
fn find(name: &str) -> Result<PathBuf> {
    let named = Path::new(name);
    if named.components().count() > 1 {
        return Ok(named.to_owned());
    }
    let places = DIRECTORIES.iter().map(|directory| Path::new(directory).join(name));
    places.clone().find(|place| place.is_file()).ok_or_else(|| {
        let all: Vec<_> = places.map(|place| place.display().to_string()).collect();
        Failure::usage(anyhow!("there is no {name}"))
            .hint(format!("looked for {}; -c FILE names one, and -n needs none", all.join(", ")))
    })
}
