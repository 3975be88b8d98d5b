//! Batched writing of log lines, and the number of lines that were not written.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::throttle::Throttle;

/// Time for which lines are gathered before they are written. The delay is too short to notice, but
/// saves wake-ups and system calls of a server that logs thousands of lines per second.
const GATHERED_FOR: Duration = Duration::from_millis(20);

/// Size in bytes at which gathered lines are written early.
pub(super) const GATHERED_BYTES_MAX: usize = 64 * 1024;

/// Number of lines that the destination of the log did not accept.
#[derive(Clone, Debug, Default)]
pub(super) struct UnwrittenLines(Arc<AtomicU64>);

impl UnwrittenLines {
    /// Adds the number of lines in a text.
    pub(super) fn add_lines_of(&self, text: &[u8]) {
        let lines = text.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.0.fetch_add(lines, Ordering::Relaxed);
    }

    /// Returns the number of lines.
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Writer that writes gathered lines together.
pub(super) struct Gathered<W> {
    writer: W,
    lines: Vec<u8>,
    unwritten: UnwrittenLines,
    warning: Warning,
}

/// Warning about lines that were not written.
#[derive(Default)]
struct Warning {
    throttle: Throttle,
    /// Number of lines that warnings have reported.
    reported: u64,
    /// Reason of the latest failure.
    reason: String,
}

impl<W: Write> Gathered<W> {
    /// Creates a writer to `writer`, which also counts lost lines in `unwritten`.
    pub(super) fn new(writer: W, unwritten: UnwrittenLines) -> Self {
        Self { writer, lines: Vec::new(), unwritten, warning: Warning::default() }
    }

    /// Writes the gathered lines. Lines that cannot be written are counted.
    fn pass_on(&mut self) {
        let mut left = self.lines.as_slice();
        while !left.is_empty() {
            match self.writer.write(left) {
                Ok(written) if written > 0 => left = left.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                failed => {
                    let error = failed.err().unwrap_or_else(|| io::ErrorKind::WriteZero.into());
                    self.warning.reason = error.to_string();
                    self.unwritten.add_lines_of(left);
                    break;
                }
            }
        }
        self.lines.clear();
        self.warning.tell(self.unwritten.count(), Instant::now());
    }
}

impl Warning {
    /// Logs a warning about the lines lost since the last warning. Operators also receive the
    /// warning on the status page and in `/v1/warnings`, even if the log cannot be written.
    fn tell(&mut self, unwritten: u64, now: Instant) {
        let lines = unwritten - self.reported;
        if lines == 0 || !self.throttle.is_due(now) {
            return;
        }
        self.reported = unwritten;
        let Self { reason, .. } = self;
        tracing::warn!(lines, "lines of the log are lost, as they cannot be written: {reason}");
    }
}

impl<W: Write> Write for Gathered<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.lines.extend_from_slice(line);
        if self.lines.len() > GATHERED_BYTES_MAX {
            self.pass_on();
        }
        Ok(line.len())
    }

    /// Writes the lines, since the queue is empty, and waits for more.
    fn flush(&mut self) -> io::Result<()> {
        self.pass_on();
        thread::sleep(GATHERED_FOR);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Lines, warnings};
    use super::*;
    use crate::throttle::WARNING_EVERY;

    /// Simulates a disk that is full after a number of bytes.
    struct FullDisk(usize);

    impl Write for FullDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let written = bytes.len().min(self.0);
            self.0 -= written;
            if written == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(written) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_gathered_until_no_more_wait_or_they_are_many() {
        let written = Lines::default();
        let mut gathered = Gathered::new(written.clone(), UnwrittenLines::default());
        let len = || written.0.lock().unwrap().len();
        gathered.write_all(b"one\n").unwrap();
        gathered.write_all(b"two\n").unwrap();
        assert_eq!(len(), 0);
        gathered.flush().unwrap();
        assert_eq!(*written.0.lock().unwrap(), b"one\ntwo\n");
        gathered.flush().unwrap();
        assert_eq!(len(), 8, "nothing is written twice");
        gathered.write_all(&[b'.'; GATHERED_BYTES_MAX + 1]).unwrap();
        assert_eq!(len(), 8 + GATHERED_BYTES_MAX + 1);
    }

    #[test]
    fn lines_that_a_full_disk_does_not_take_are_counted_and_told_once() {
        let unwritten = UnwrittenLines::default();
        // The first line and a part of the second are written.
        let mut gathered = Gathered::new(FullDisk(6), unwritten.clone());
        let told = warnings(|| {
            for _ in 0..2 {
                gathered.write_all(b"one\ntwo\nthree\n").unwrap();
                gathered.flush().unwrap();
            }
        });
        assert_eq!(unwritten.count(), 2 + 3);
        assert!(told.contains("lines=2") && told.contains("no storage space"), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }

    #[test]
    fn lines_are_told_that_were_lost_since_the_last_warning() {
        let (mut warning, start) = (Warning::default(), Instant::now());
        let told = warnings(|| {
            warning.tell(0, start);
            warning.tell(3, start);
            warning.tell(4, start + WARNING_EVERY / 2);
            warning.tell(9, start + WARNING_EVERY);
            warning.tell(9, start + 2 * WARNING_EVERY);
        });
        let counts: Vec<_> =
            told.lines().filter_map(|line| line.split_once("lines=")).map(|(_, n)| n).collect();
        assert_eq!(counts, ["3", "6"], "{told}");
    }
}
