//! Options about coturn's process: where it logs, in which place of the system it runs, as whose.
//!
//! A server of Turnpike leaves them to its service manager; under the name `turnserver` it goes by
//! them.

use std::path::PathBuf;

use crate::syntax::{self, Written};

/// Options about the process, of a file and of the words behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// `daemon`: the process detaches from its terminal.
    pub daemon: bool,
    /// `pidfile`.
    pub pid_file: Option<PathBuf>,
    /// `log-file`, `syslog` and `no-stdout-log`.
    pub log: Log,
    /// `proc-user`.
    pub user: Option<String>,
    /// `proc-group`.
    pub group: Option<String>,
}

/// Destination of log lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Log {
    /// None is named.
    #[default]
    Unnamed,
    /// Standard output.
    Stdout,
    /// The system's log.
    Syslog {
        /// Number of the facility (RFC 5424, table 1), 0..=23.
        facility: u8,
    },
    /// A file.
    File {
        /// The file.
        path: PathBuf,
        /// Lines go to standard output as well, unless `no-stdout-log` is set.
        is_copied: bool,
    },
}

/// LOG_DAEMON, coturn's default.
const DAEMON: u8 = 3;

/// Facilities by coturn's names, in the order of their numbers.
const FACILITIES: [(&str, u8); 20] = [
    ("LOG_KERN", 0),
    ("LOG_USER", 1),
    ("LOG_MAIL", 2),
    ("LOG_DAEMON", DAEMON),
    ("LOG_AUTH", 4),
    ("LOG_SYSLOG", 5),
    ("LOG_LPR", 6),
    ("LOG_NEWS", 7),
    ("LOG_UUCP", 8),
    ("LOG_CRON", 9),
    ("LOG_AUTHPRIV", 10),
    ("LOG_FTP", 11),
    ("LOG_LOCAL0", 16),
    ("LOG_LOCAL1", 17),
    ("LOG_LOCAL2", 18),
    ("LOG_LOCAL3", 19),
    ("LOG_LOCAL4", 20),
    ("LOG_LOCAL5", 21),
    ("LOG_LOCAL6", 22),
    ("LOG_LOCAL7", 23),
];

/// Reads the options about the process from the text of a file and the words of a command line,
/// which are read behind it.
#[must_use]
pub fn process(file: &[u8], words: &[String]) -> Process {
    let mut written = syntax::file(file);
    written.extend(syntax::arguments(words));
    let last = |name: &str| written.iter().rev().find(|one| one.name == name);
    let word =
        |name: &str| last(name).map(|one| syntax::word(&one.value)).filter(|w| !w.is_empty());
    // coturn does not start as `root # a comment`.
    let account =
        |name: &str| last(name).map(|one| one.value.clone()).filter(|name| !name.is_empty());
    let is_on = |name: &str| last(name).is_some_and(|one| syntax::switch(&one.value) == Some(true));
    Process {
        daemon: is_on("daemon"),
        pid_file: word("pidfile").map(PathBuf::from),
        log: log(&written, is_on("syslog"), !is_on("no-stdout-log")),
        user: account("proc-user"),
        group: account("proc-group"),
    }
}

fn log(written: &[Written], to_syslog: bool, is_copied: bool) -> Log {
    let last = |name: &str| {
        let one = written.iter().rev().find(|one| one.name == name);
        one.map(|one| syntax::word(&one.value))
    };
    let facility = last("syslog-facility").and_then(facility).unwrap_or(DAEMON);
    match last("log-file") {
        _ if to_syslog => Log::Syslog { facility },
        Some("syslog") => Log::Syslog { facility },
        Some("stdout" | "-") => Log::Stdout,
        None | Some("") => Log::Unnamed,
        Some(path) => Log::File { path: path.into(), is_copied },
    }
}

/// Number of a facility; coturn knows its name with and without `LOG_`.
fn facility(name: &str) -> Option<u8> {
    let name = name.to_ascii_uppercase();
    let is = |one: &&(&str, u8)| one.0 == name || one.0.strip_prefix("LOG_") == Some(&name);
    FACILITIES.iter().find(is).map(|(_, number)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(file: &str, words: &[&str]) -> Process {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        process(file.as_bytes(), &words)
    }

    #[test]
    fn the_command_line_counts_more_than_the_file() {
        let file = "log-file=/var/log/turn.log # mine\npidfile /run/turn.pid\nproc-user=turn\nproc-group=\n";
        let path = PathBuf::from("/var/log/turn.log");
        let read = of(file, &[]);
        assert_eq!(read.log, Log::File { path: path.clone(), is_copied: true });
        assert_eq!(read.pid_file, Some("/run/turn.pid".into()));
        assert_eq!((read.user.as_deref(), read.group, read.daemon), (Some("turn"), None, false));
        let read = of(file, &["-vo", "--no-stdout-log", "--proc-user", "nobody"]);
        assert_eq!(read.log, Log::File { path, is_copied: false });
        assert_eq!((read.user.as_deref(), read.daemon), (Some("nobody"), true));
        assert_eq!(of(file, &["-l", "stdout"]).log, Log::Stdout);
        assert_eq!(of(file, &["-l", "-"]).log, Log::Stdout);
        assert_eq!(of("", &[]), Process::default());
        assert_eq!(of("proc-user=a # b\n", &[]).user.as_deref(), Some("a # b"));
    }

    #[test]
    fn facilities_of_the_systems_log_have_their_numbers() {
        let facility = |name: &str| of("syslog\n", &["--syslog-facility", name]).log;
        assert_eq!(facility("LOG_LOCAL7"), Log::Syslog { facility: 23 });
        assert_eq!(facility("local0"), Log::Syslog { facility: 16 });
        assert_eq!(facility("nonsense"), Log::Syslog { facility: 3 });
        assert_eq!(of("log-file=syslog\n", &[]).log, Log::Syslog { facility: 3 });
        assert_eq!(of("syslog\nlog-file=/srv/x\n", &[]).log, Log::Syslog { facility: 3 });
    }
}
