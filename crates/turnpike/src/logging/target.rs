//! Destinations of log lines. The default is standard error. Under coturn's name standard output, a
//! file, or the system log are also possible.

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

/// Socket of the system log.
const SYSLOG: &str = "/dev/log";

/// Maximum time for sending a line to the system log. After this time the line is written to
/// standard error.
const SYSLOG_PATIENCE: Duration = Duration::from_secs(1);

/// Mode of a log file, which the group can read.
const MODE: u32 = 0o640;

/// Destination of log lines.
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

/// File that lines are appended to.
#[derive(Clone, Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: Arc<File>,
    /// True if lines are written to standard output as well.
    is_copied: bool,
}

impl LogFile {
    /// Opens a file to append lines. A new file belongs to `owner`. An existing file also does, if
    /// no other user can write to the directory.
    ///
    /// # Errors
    /// The system refuses, or the name could lead to a file of another user.
    pub(crate) fn open(path: &Path, is_copied: bool, owner: Owner) -> io::Result<Self> {
        // The file may be opened again after a change of the working directory.
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

/// Writer of log lines to the destination, used by the log's thread.
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
    /// Creates the writer. `reopen` is set to request that a file is opened again by name.
    /// `unwritten` counts lines that neither the system log nor standard error accepts.
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
                        // The old file is the only destination for this error.
                        Err(error) => writeln!(
                            &*log.file,
                            "cannot open {} again, and go on here: {error}",
                            log.path.display()
                        )?,
                    }
                }
                let written = (&*log.file).write(lines);
                if log.is_copied {
                    // A closed standard output does not prevent lines in the file.
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

/// Client of the system log. Each line is a datagram without a time, because the log adds the time
/// in its time zone. Refused lines are written to standard error.
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
            // The system log may have been restarted since the last line.
            if self.send(&datagram).is_err() {
                self.socket = None;
                if self.send(&datagram).is_err() {
                    self.socket = None;
                    Self::write_to_stderr(text, unwritten);
                }
            }
        }
    }

    /// Writes a line to standard error, for an operator at the terminal. Most containers have no
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

/// Severity of a line (RFC 5424, table 2). In the queue it precedes the line, as `<6>`.
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

/// Writer that prefixes each line with the severity.
pub(super) struct WithSeverity(pub(super) NonBlocking);

/// Writer of one line with this severity.
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
