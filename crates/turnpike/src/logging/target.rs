//! Destinations of log lines: standard error; under coturn's name also standard output, a file, or
//! the system's log.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use atomic_file::{Access, Owner};
use tracing::{Level, Metadata};
use tracing_appender::non_blocking::NonBlocking;
use tracing_subscriber::fmt::MakeWriter;

use super::gathered::UnwrittenLines;

/// Socket of the system's log.
const SYSLOG: &str = "/dev/log";

/// Time that the system's log may take for a line: after it the line goes to standard error.
const SYSLOG_PATIENCE: Duration = Duration::from_secs(1);

/// Mode of a log file: the group reads it.
const MODE: u32 = 0o640;

/// A destination.
#[derive(Clone, Debug, Default)]
pub(crate) enum LogTarget {
    #[default]
    Stderr,
    Stdout,
    File(LogFile),
    Syslog {
        /// Number of the facility, 0..=23.
        facility: u8,
    },
}

/// A file that lines are appended to.
#[derive(Clone, Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: Arc<File>,
    /// Lines go to standard output as well.
    is_copied: bool,
}

impl LogFile {
    /// Opens a file to append to it. A new one belongs to `owner`; in a directory to which no other
    /// user may write an existing one does as well.
    ///
    /// # Errors
    /// The system refuses, or the name may lead to a file of another user.
    pub(crate) fn open(path: &Path, is_copied: bool, owner: Owner) -> io::Result<Self> {
        // It is opened again from wherever the process then is.
        let path = std::path::absolute(path)?;
        let file = Arc::new(append_to(&path, owner)?);
        Ok(Self { path, file, is_copied })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn append_to(path: &Path, owner: Owner) -> io::Result<File> {
    atomic_file::append_to(path, Access { mode: MODE, owner })
}

/// The end of the queue, in the thread of the log.
pub(super) struct Sink {
    kind: Kind,
    unwritten: UnwrittenLines,
    reopen: Arc<AtomicBool>,
}

enum Kind {
    Stream(Box<dyn Write + Send>),
    File(LogFile),
    Syslog(Syslog),
}

impl Sink {
    /// `reopen` is set when a file must be opened again by its name. `unwritten` counts lines that
    /// neither the system's log nor standard error takes.
    pub(super) fn new(
        target: &LogTarget,
        reopen: Arc<AtomicBool>,
        unwritten: UnwrittenLines,
    ) -> Self {
        let kind = match target {
            LogTarget::Stderr => Kind::Stream(Box::new(io::stderr())),
            LogTarget::Stdout => Kind::Stream(Box::new(io::stdout())),
            LogTarget::File(file) => Kind::File(file.clone()),
            LogTarget::Syslog { facility } => {
                Kind::Syslog(Syslog { facility: *facility, socket: None })
            }
        };
        Self { kind, unwritten, reopen }
    }
}

impl Write for Sink {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        match &mut self.kind {
            Kind::Stream(stream) => {
                let written = stream.write(lines)?;
                stream.flush()?;
                return Ok(written);
            }
            Kind::File(log) => {
                if self.reopen.swap(false, Ordering::Relaxed) {
                    match append_to(&log.path, Owner::Process) {
                        Ok(file) => log.file = Arc::new(file),
                        // It is the only place to say so.
                        Err(error) => writeln!(
                            &*log.file,
                            "cannot open {} again, and go on here: {error}",
                            log.path.display()
                        )?,
                    }
                }
                let written = (&*log.file).write(lines);
                if log.is_copied {
                    // A reader that is gone does not keep lines out of the file.
                    let copied = written.as_ref().map_or(lines.len(), |written| *written);
                    let _ = io::stdout().write_all(lines.get(..copied).unwrap_or_default());
                }
                return written;
            }
            Kind::Syslog(syslog) => syslog.write(lines, &self.unwritten),
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The system's log. Each line is a datagram without a time: the receiver has one, and knows the
/// time zone. Lines that it does not take go to standard error.
struct Syslog {
    facility: u8,
    socket: Option<UnixDatagram>,
}

impl Syslog {
    fn write(&mut self, lines: &[u8], unwritten: &UnwrittenLines) {
        let mut severity = Severity::INFO;
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let (own, text) = Severity::split(line);
            severity = own.unwrap_or(severity);
            let (priority, id) = (self.facility * 8 + severity.0, std::process::id());
            let mut datagram = format!("<{priority}>turnserver[{id}]: ").into_bytes();
            datagram.extend_from_slice(text);
            // The log may have been started again since the last line.
            if self.send(&datagram).is_err() {
                self.socket = None;
                if self.send(&datagram).is_err() {
                    self.socket = None;
                    Self::write_to_stderr(text, unwritten);
                }
            }
        }
    }

    /// Writes a line to standard error, for the operator at the terminal: most containers have no
    /// system log.
    fn write_to_stderr(text: &[u8], unwritten: &UnwrittenLines) {
        if io::stderr().write_all(&[text, b"\n"].concat()).is_err() {
            unwritten.add_lines_of(b"\n");
        }
    }

    fn send(&mut self, datagram: &[u8]) -> io::Result<()> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => {
                let socket = UnixDatagram::unbound()?;
                socket.set_write_timeout(Some(SYSLOG_PATIENCE))?;
                socket.connect(SYSLOG)?;
                socket
            }
        };
        let sent = socket.send(datagram);
        self.socket = Some(socket);
        sent.map(drop)
    }
}

/// Severity of a line (RFC 5424, table 2). It passes the queue in front of the line, as `<6>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Severity(u8);

impl Severity {
    const INFO: Self = Self(6);

    fn of(level: Level) -> Self {
        match level {
            Level::ERROR => Self(3),
            Level::WARN => Self(4),
            Level::INFO => Self::INFO,
            Level::DEBUG | Level::TRACE => Self(7),
        }
    }

    fn split(line: &[u8]) -> (Option<Self>, &[u8]) {
        match line {
            [b'<', digit @ b'0'..=b'7', b'>', text @ ..] => (Some(Self(digit - b'0')), text),
            _ => (None, line),
        }
    }
}

/// Puts the severity in front of each line.
pub(super) struct WithSeverity(pub(super) NonBlocking);

/// One line.
pub(super) struct OneLine(NonBlocking, Severity);

impl<'a> MakeWriter<'a> for WithSeverity {
    type Writer = OneLine;

    fn make_writer(&'a self) -> OneLine {
        OneLine(self.0.clone(), Severity::INFO)
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> OneLine {
        OneLine(self.0.clone(), Severity::of(*meta.level()))
    }
}

impl Write for OneLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut whole = format!("<{}>", self.1.0).into_bytes();
        whole.extend_from_slice(line);
        self.0.write_all(&whole)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_renamed_is_opened_again_by_its_name() {
        let directory = std::env::temp_dir().join(format!("turnpike-log-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let [path, old] = ["log", "log.1"].map(|name| directory.join(name));
        let reopen = Arc::new(AtomicBool::new(false));
        let target = LogTarget::File(LogFile::open(&path, false, Owner::Process).unwrap());
        let mut sink = Sink::new(&target, Arc::clone(&reopen), UnwrittenLines::default());
        sink.write_all(b"one\n").unwrap();
        std::fs::rename(&path, &old).unwrap();
        sink.write_all(b"two\n").unwrap();
        reopen.store(true, Ordering::Relaxed);
        sink.write_all(b"three\n").unwrap();
        let text = [&path, &old].map(|path| std::fs::read_to_string(path).unwrap());
        assert_eq!(text, ["three\n", "one\ntwo\n"]);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn severities_pass_the_queue() {
        assert_eq!(Severity::split(b"<4>a line"), (Some(Severity(4)), &b"a line"[..]));
        assert_eq!(Severity::split(b"<9>a line"), (None, &b"<9>a line"[..]));
        assert_eq!(Severity::split(b"its rest"), (None, &b"its rest"[..]));
    }
}
