//! File of the sessions that are open, for the process after a crash.
//!
//! A line is a record as outputs get it, of the start, of an interim report or of the end of a
//! session, or a mark: outputs have stored all earlier end records, except a number of the latest.
//! The process retains the lock until its exit. [`Turn`](crate::turn::Turn) gives the ledger to
//! processes in the order of their starts; builds without it wait for this lock alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, TryLockError};
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use atomic_file::{Access, NewFile};
use serde::Deserialize;

use crate::ledger_queue::ClosedSession;
use crate::limits::{LEDGER_BYTES_MIN, LEDGER_LINE_BYTES_MAX, LEDGER_WASTE_MAX};
use crate::record::{PROCESS_LOST, Record, RecordEvent};

/// An open ledger.
#[derive(Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// Part of a line follows the complete ones.
    is_torn: bool,
    index: Index,
    /// Locked until dropped.
    _lock: File,
}

/// Lines in use.
#[derive(Debug, Default)]
struct Index {
    /// Latest line of each open session, by its id.
    open: BTreeMap<String, Line>,
    /// Latest lines of sessions without an end whose id another session has got since.
    replaced: Vec<Line>,
    /// Ends that outputs may not have stored, the oldest first.
    unconfirmed: Vec<Line>,
    /// Bytes of all these lines.
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    at: u64,
    bytes: u64,
    started: u64,
    /// True for a line of a predecessor.
    is_earlier: bool,
}

/// Part of a line that the index needs.
#[derive(Debug, Deserialize)]
struct Head {
    event: LineEvent,
    #[serde(default)]
    id: String,
    #[serde(default)]
    started: u64,
    #[serde(default)]
    reason: Option<String>,
    /// Number of the latest end records that a mark does not include.
    #[serde(default)]
    left: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LineEvent {
    Start,
    Interim,
    End,
    Stored,
    Closed,
}

impl Ledger {
    /// Opens the file, or makes it; `None` while another process has it.
    ///
    /// # Errors
    /// The files cannot be read and written.
    pub(crate) fn open(path: &Path) -> io::Result<Option<Self>> {
        let mut lock = path.to_owned().into_os_string();
        lock.push(".lock");
        let lock = atomic_file::open_private(Path::new(&lock))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let mut file = atomic_file::open_private(path)?;
        let (index, mut bytes) = Index::read(&file)?;
        if bytes < file.metadata()?.len() {
            // A crash cut the last line off.
            file.write_all(b"\n")?;
            bytes = file.metadata()?.len();
        }
        Ok(Some(Self { path: path.to_owned(), file, bytes, is_torn: false, index, _lock: lock }))
    }

    /// Appends a record.
    ///
    /// # Errors
    /// The disk is full or broken; the file does not contain the record.
    pub(crate) fn append(&mut self, record: &Record, line: &str) -> io::Result<()> {
        let at = self.write(line)?;
        let event = match record.event {
            RecordEvent::Start => LineEvent::Start,
            RecordEvent::Interim => LineEvent::Interim,
            RecordEvent::End => LineEvent::End,
        };
        let (id, started) = (record.id.clone(), record.started);
        let head = Head { event, id, started, reason: record.reason.clone(), left: 0 };
        self.index.note(head, Line { at, bytes: line.len() as u64, started, is_earlier: false });
        Ok(())
    }

    /// Appends the end of a session whose record the outputs have.
    ///
    /// # Errors
    /// The same errors as [`append`](Self::append).
    pub(crate) fn close(&mut self, session: &ClosedSession) -> io::Result<()> {
        let ClosedSession { id, started } = session.clone();
        let line = serde_json::json!({ "event": "closed", "id": id, "started": started });
        let line = format!("{line}\n");
        let at = self.write(&line)?;
        let head = Head { event: LineEvent::Closed, id, started, reason: None, left: 0 };
        let bytes = line.len() as u64;
        self.index.note(head, Line { at, bytes, started, is_earlier: false });
        Ok(())
    }

    /// Marks that outputs have stored so many of the oldest unconfirmed ends.
    ///
    /// # Errors
    /// The disk is full or broken; the end records remain unconfirmed.
    pub(crate) fn confirm(&mut self, ends: usize) -> io::Result<()> {
        if ends > 0 {
            let left = self.unconfirmed_len().saturating_sub(ends);
            self.write(&format!("{}\n", serde_json::json!({ "event": "stored", "left": left })))?;
            self.index.keep_unconfirmed(left);
        }
        Ok(())
    }

    /// Rewrites a file that is mostly of ended sessions.
    ///
    /// # Errors
    /// The disk is full or broken; the file is as before.
    pub(crate) fn compact(&mut self) -> io::Result<()> {
        if self.bytes > LEDGER_BYTES_MIN && self.bytes / LEDGER_WASTE_MAX > self.index.bytes {
            self.rewrite()?;
        }
        Ok(())
    }

    /// Number of ends that outputs may not have stored.
    pub(crate) const fn unconfirmed_len(&self) -> usize {
        self.index.unconfirmed.len()
    }

    /// Lines of ends that outputs may not have stored.
    ///
    /// # Errors
    /// The disk is broken.
    pub(crate) fn unconfirmed(&self) -> io::Result<Vec<String>> {
        self.index.unconfirmed.iter().map(|line| self.read(line)).collect()
    }

    /// End records of sessions of predecessors without an end record, except those with the ids of
    /// `survivors`.
    ///
    /// # Errors
    /// The disk is broken.
    pub(crate) fn lost(&self, survivors: &BTreeSet<String>) -> io::Result<Vec<Record>> {
        let open = self.index.open.iter().filter(|(id, _)| !survivors.contains(*id));
        let lines = self.index.replaced.iter().chain(open.map(|(_, line)| line));
        let mut lost = Vec::new();
        for line in lines.filter(|line| line.is_earlier) {
            if let Ok(record) = serde_json::from_str::<Record>(&self.read(line)?) {
                lost.push(record.lost());
            }
        }
        Ok(lost)
    }

    /// Exchanges the file.
    #[cfg(test)]
    pub(crate) const fn swap_file(&mut self, file: File) -> File {
        std::mem::replace(&mut self.file, file)
    }

    /// Waits until the disk has all lines.
    ///
    /// # Errors
    /// The disk is broken.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Appends a line; returns its position.
    fn write(&mut self, line: &str) -> io::Result<u64> {
        if self.is_torn {
            if self.file.set_len(self.bytes).is_err() {
                self.file.write_all(b"\n")?;
                self.bytes = self.file.metadata()?.len();
            }
            self.is_torn = false;
        }
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            self.is_torn = self.file.set_len(self.bytes).is_err();
            return Err(error);
        }
        let at = self.bytes;
        self.bytes += line.len() as u64;
        Ok(at)
    }

    fn read(&self, line: &Line) -> io::Result<String> {
        let mut bytes = vec![0; usize::try_from(line.bytes).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, line.at)?;
        String::from_utf8(bytes).map_err(io::Error::other)
    }

    /// Replaces the file by one of the unconfirmed end records and the open sessions. The end
    /// records precede: they must not close a later session with the same id.
    fn rewrite(&mut self) -> io::Result<()> {
        let mut out = BufWriter::new(NewFile::open(&self.path, Access::PRIVATE)?);
        let (mut open, mut replaced) = (self.index.open.clone(), self.index.replaced.clone());
        let mut unconfirmed = self.index.unconfirmed.clone();
        let mut at = 0;
        for line in unconfirmed.iter_mut().chain(&mut replaced).chain(open.values_mut()) {
            out.write_all(self.read(line)?.as_bytes())?;
            line.at = at;
            at += line.bytes;
        }
        let out = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        let (file, directory) = out.rename()?;
        self.file = file;
        (self.bytes, self.is_torn) = (at, false);
        self.index.open = open;
        self.index.replaced = replaced;
        self.index.unconfirmed = unconfirmed;
        directory.sync()
    }
}

impl Index {
    /// Reads the lines of a file; returns the bytes of complete ones as well.
    fn read(file: &File) -> io::Result<(Self, u64)> {
        let mut index = Self::default();
        let mut reader = BufReader::new(file);
        let (mut at, mut line) = (0, Vec::new());
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line)? as u64;
            if !line.ends_with(b"\n") {
                return Ok((index, at));
            }
            if read <= LEDGER_LINE_BYTES_MAX
                && let Ok(head) = serde_json::from_slice::<Head>(&line)
            {
                let started = head.started;
                index.note(head, Line { at, bytes: read, started, is_earlier: true });
            }
            at += read;
        }
    }

    fn note(&mut self, head: Head, line: Line) {
        match head.event {
            LineEvent::Stored => self.keep_unconfirmed(head.left),
            LineEvent::Start | LineEvent::Interim => {
                self.bytes += line.bytes;
                let Some(before) = self.open.insert(head.id, line) else { return };
                if head.event == LineEvent::Start {
                    self.replaced.push(before);
                } else {
                    self.bytes -= before.bytes;
                }
            }
            LineEvent::End | LineEvent::Closed => {
                if head.event == LineEvent::End {
                    self.unconfirmed.push(line);
                    self.bytes += line.bytes;
                }
                let is_lost = head.reason.as_deref() == Some(PROCESS_LOST);
                let replaced = self.replaced.iter().position(|one| one.started == head.started);
                let ended = match replaced.filter(|_| is_lost) {
                    Some(place) => Some(self.replaced.swap_remove(place)),
                    None => self.open.remove(&head.id),
                };
                self.bytes -= ended.map_or(0, |line| line.bytes);
            }
        }
    }

    /// Drops the oldest unconfirmed ends until so many are left.
    fn keep_unconfirmed(&mut self, left: usize) {
        let stored = self.unconfirmed.len().saturating_sub(left);
        self.bytes -= self.unconfirmed.drain(..stored).map(|line| line.bytes).sum::<u64>();
    }
}
