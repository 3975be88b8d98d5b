//! Append-only log of lines, in segments on the disk.
//!
//! A full segment is closed, and a new segment opened. When that fails, the log continues with the
//! full segment and tries again later: an error loses no line, and destroys no stored one.

use std::fs::File;
use std::io::{self, Write as _};
use std::time::Instant;

use crate::limits::RETRY_EVERY;

/// Segment names of a log.
pub(crate) trait SegmentNames {
    /// Creates the segment that follows the current one.
    ///
    /// # Errors
    /// The system refuses. The current segment and all closed ones are unchanged, except for their
    /// names.
    fn next(&mut self, current: &File, bytes: u64) -> io::Result<File>;
}

/// A log of lines.
#[derive(Debug)]
pub(crate) struct SegmentLog<N> {
    pub(crate) names: N,
    segment_bytes_max: u64,
    current: Segment,
    /// Time of the next attempt to open a segment, after a failed one.
    retry_at: Option<Instant>,
    failure: Option<io::Error>,
}

/// The segment that lines are appended to.
#[derive(Debug)]
struct Segment {
    file: File,
    /// Bytes of complete lines.
    bytes: u64,
    /// Part of a line follows the complete ones: it was written by a failed append.
    is_torn: bool,
}

impl<N: SegmentNames> SegmentLog<N> {
    /// Continues a segment that is open for appending, with `bytes` bytes of complete lines.
    pub(crate) fn new(names: N, segment_bytes_max: u64, file: File, bytes: u64) -> Self {
        let current = Segment { file, bytes, is_torn: false };
        Self { names, segment_bytes_max, current, retry_at: None, failure: None }
    }

    /// Appends a line, complete or not at all.
    ///
    /// # Errors
    /// The disk is full or broken; the log does not contain the line.
    pub(crate) fn append(&mut self, line: &str) -> io::Result<()> {
        let bytes = self.current.bytes;
        if bytes > 0 && bytes + line.len() as u64 > self.segment_bytes_max {
            self.next_segment();
        }
        self.current.append(line)
    }

    /// Returns the error of the latest attempt to open a segment, once.
    pub(crate) const fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    /// Waits until the disk has all lines.
    ///
    /// # Errors
    /// The disk is broken.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.current.file.sync_data()
    }

    /// Bytes of the current segment.
    pub(crate) const fn current_bytes(&self) -> u64 {
        self.current.bytes
    }

    /// Returns true if the next segment could not be opened when the current one was full.
    pub(crate) const fn is_overfull(&self) -> bool {
        self.retry_at.is_some()
    }

    /// Opens the next segment, if the pause after a failed attempt has passed.
    pub(crate) fn next_segment(&mut self) {
        if self.retry_at.is_some_and(|at| Instant::now() < at) {
            return;
        }
        let opened = self.sync().and_then(|()| {
            let Segment { file, bytes, .. } = &self.current;
            self.names.next(file, *bytes)
        });
        match opened {
            Ok(file) => {
                self.current = Segment { file, bytes: 0, is_torn: false };
                self.retry_at = None;
            }
            Err(error) => {
                self.retry_at = Some(Instant::now() + RETRY_EVERY);
                self.failure = Some(error);
            }
        }
    }
}

impl Segment {
    fn append(&mut self, line: &str) -> io::Result<()> {
        if self.is_torn {
            if self.file.set_len(self.bytes).is_err() {
                // The torn part becomes a line of garbage.
                self.file.write_all(b"\n")?;
                self.bytes = self.file.metadata()?.len();
            }
            self.is_torn = false;
        }
        match self.file.write_all(line.as_bytes()) {
            Ok(()) => {
                self.bytes += line.len() as u64;
                Ok(())
            }
            Err(error) => {
                self.is_torn = self.file.set_len(self.bytes).is_err();
                Err(error)
            }
        }
    }
}
