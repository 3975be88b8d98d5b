//! Records on the disk that wait for delivery: a log of numbered segments, and the position after
//! the delivered records.
//!
//! During upgrades several processes use the spool. Each process appends to separate segments. Only
//! the oldest process delivers and removes segments, until this process exits.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use atomic_file::{Access, make_missing_directory};
use serde::de::IgnoredAny;

use crate::journal::{Journal, Rotation};
use crate::limits::{BATCH_BYTES_MAX, REFUSED_BYTES_MAX, SPOOL_SEGMENTS};
use crate::lines::lines_of;
use crate::segment_log::{SegmentLog, SegmentNames};
use crate::turn::Turn;

/// File with the position up to which records are delivered: number of a segment, and bytes of it.
const DELIVERED: &str = "delivered";

/// Maximum size of that file in bytes: two numbers.
const DELIVERED_BYTES_MAX: u64 = 64;

/// Name of the files of [`Turn`].
const TURN: &str = "process";

/// File of the records that the service has refused for good; a full one becomes `….1`.
const REFUSED: &str = "refused.jsonl";

/// A bounded queue of records on the disk. It survives the end of the process; after a crash some
/// records that were delivered may be delivered again.
#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    bytes_max: u64,
    log: SegmentLog<Numbers>,
    /// Bytes of the oldest segment that are delivered.
    delivered: u64,
    /// Records that were dropped since the last [`take_dropped`](Self::take_dropped).
    dropped: u64,
    /// Refused records; opened for the first one.
    refused: Option<Journal>,
    turn: Turn,
    /// Number of the first segment of this process.
    first: u64,
    /// True after the adoption of the segments of predecessors.
    delivers: bool,
}

/// The segments of a spool.
#[derive(Debug)]
struct Numbers {
    directory: PathBuf,
    /// Closed segments, the oldest first.
    closed: VecDeque<ClosedSegment>,
    /// Number of the segment that records are appended to.
    current: u64,
}

#[derive(Clone, Copy, Debug)]
struct ClosedSegment {
    number: u64,
    bytes: u64,
}

impl SegmentNames for Numbers {
    fn next(&mut self, _current: &File, bytes: u64) -> io::Result<File> {
        let (next, file) = create_behind(&self.directory, self.current)?;
        self.closed.push_back(ClosedSegment { number: self.current, bytes });
        self.current = next;
        Ok(file)
    }
}

/// Records to be delivered together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The records, each an object of JSON.
    pub records: Vec<String>,
    number: u64,
    end: u64,
    /// Lines before the end that are no records: a crash or an error cut them off.
    unreadable: u64,
}

impl Batch {
    /// The records as an array of JSON.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        format!("[{}]", self.records.join(",")).into_bytes()
    }
}

impl Spool {
    /// Opens the spool in a directory, which is made if need be. It takes `bytes_max` bytes of
    /// records.
    ///
    /// # Errors
    /// The directory cannot be read or written.
    pub fn open(directory: &Path, bytes_max: u64) -> io::Result<Self> {
        make_missing_directory(directory, Access::PRIVATE_DIRECTORY)?;
        let turn = Turn::take(&directory.join(TURN))?;
        let newest = segments(directory)?.last().map_or(0, |segment| segment.number);
        // A new file, so that a record that a crash cut off stays the last of its own.
        let (current, file) = create_behind(directory, newest)?;
        let directory = directory.to_owned();
        let names = Numbers { directory: directory.clone(), closed: VecDeque::new(), current };
        let log = SegmentLog::new(names, bytes_max / SPOOL_SEGMENTS, file, 0);
        let mut spool = Self {
            directory,
            bytes_max,
            log,
            delivered: 0,
            dropped: 0,
            refused: None,
            turn,
            first: current,
            delivers: false,
        };
        spool.take_over()?;
        Ok(spool)
    }

    /// Adopts the segments of predecessors after their exit. Returns true if this process delivers.
    fn take_over(&mut self) -> io::Result<bool> {
        if self.delivers {
            return Ok(true);
        }
        if !self.turn.has_come()? {
            return Ok(false);
        }
        let all = segments(&self.directory)?.into_iter();
        // A successor takes a position before the first segment: those listed are of predecessors.
        let is_last = !self.turn.has_successor()?;
        let names = &mut self.log.names;
        let own: BTreeSet<_> = names.closed.iter().map(|segment| segment.number).collect();
        let is_ours = |segment: &ClosedSegment| {
            segment.number != names.current
                && (is_last || segment.number < self.first || own.contains(&segment.number))
        };
        names.closed = all.filter(is_ours).collect();
        self.delivered = delivered_of(&self.directory, self.oldest().0);
        self.delivers = true;
        Ok(true)
    }

    /// The files of a spool, the newest first, delivered ones as well as long as they exist.
    #[must_use]
    pub fn files(directory: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let is_segment = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).and_then(number_of).is_some()
        };
        let mut files: Vec<_> = entries.map(|entry| entry.path()).filter(is_segment).collect();
        files.sort_by(|one, other| other.cmp(one));
        files
    }

    /// Appends a record, a line, complete or not at all. In a full spool the oldest records are
    /// dropped first.
    ///
    /// # Errors
    /// The disk is full or broken; the record is not in the spool then.
    pub fn append(&mut self, line: &str) -> io::Result<()> {
        let bytes = line.len() as u64;
        while !self.log.names.closed.is_empty() && self.bytes() + bytes > self.bytes_max {
            self.drop_oldest()?;
        }
        if !self.log.is_overfull() || self.bytes() + bytes <= self.bytes_max {
            return self.log.append(line);
        }
        // The only segment cannot be closed, and so not dropped.
        self.dropped += 1;
        self.log.next_segment();
        Ok(())
    }

    /// Returns the error of the latest attempt to open a new segment, once. The full segment grows
    /// until an attempt succeeds.
    pub fn take_failure(&mut self) -> Option<io::Error> {
        self.log.take_failure()
    }

    /// Records that were dropped since the last call.
    pub const fn take_dropped(&mut self) -> u64 {
        std::mem::replace(&mut self.dropped, 0)
    }

    /// The oldest undelivered records, at most `most`; `None` without such records, and while a
    /// predecessor delivers.
    ///
    /// # Errors
    /// The disk is broken.
    pub fn batch(&mut self, most: usize) -> io::Result<Option<Batch>> {
        if !self.take_over()? {
            return Ok(None);
        }
        loop {
            let (number, bytes) = self.oldest();
            if self.delivered < bytes {
                let batch = match self.read(number, most) {
                    // An operator has removed the file, or the directory.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        if self.log.names.closed.is_empty() {
                            make_missing_directory(&self.directory, Access::PRIVATE_DIRECTORY)?;
                            self.log.next_segment();
                        }
                        if self.log.names.closed.is_empty() {
                            return Err(error);
                        }
                        self.drop_oldest()?;
                        continue;
                    }
                    read => read?,
                };
                if !batch.records.is_empty() {
                    return Ok(Some(batch));
                }
                self.accept(&batch)?;
            } else if self.log.names.closed.is_empty() {
                return Ok(None);
            } else {
                self.forget_oldest()?;
            }
        }
    }

    /// Removes a batch that was delivered.
    ///
    /// # Errors
    /// The disk is broken; the batch may be delivered again after a restart.
    pub fn accept(&mut self, batch: &Batch) -> io::Result<()> {
        // An append may have dropped the file.
        if self.oldest().0 != batch.number {
            return Ok(());
        }
        self.dropped += batch.unreadable;
        self.delivered = self.delivered.max(batch.end);
        let place = format!("{} {}\n", batch.number, self.delivered);
        atomic_file::replace(&self.directory.join(DELIVERED), place.as_bytes(), Access::PRIVATE)
    }

    /// Moves a batch that the service refuses for good to a file of refused records. The oldest
    /// refused records are dropped and counted when that file is full for the second time.
    ///
    /// # Errors
    /// The disk is full or broken; the batch is delivered again.
    pub fn set_aside(&mut self, batch: &Batch) -> io::Result<()> {
        let path = self.directory.join(REFUSED);
        let refused = match &mut self.refused {
            Some(refused) => refused,
            none => {
                none.insert(Journal::open(&path, Rotation { bytes: REFUSED_BYTES_MAX, files: 1 })?)
            }
        };
        for record in &batch.records {
            let line = format!("{record}\n");
            let bytes = line.len() as u64;
            let is_full = refused.bytes() + bytes > REFUSED_BYTES_MAX;
            let oldest = if is_full { refused.closed_lines() } else { 0 };
            refused.append(&line)?;
            if refused.bytes() == bytes {
                self.dropped += oldest;
            }
        }
        refused.sync()?;
        self.accept(batch)
    }

    /// Waits until the disk has all records.
    ///
    /// # Errors
    /// The disk is broken.
    pub fn sync(&self) -> io::Result<()> {
        self.log.sync()
    }

    /// Number and bytes of the oldest segment.
    fn oldest(&self) -> (u64, u64) {
        let names = &self.log.names;
        let closed = names.closed.front().map(|segment| (segment.number, segment.bytes));
        closed.unwrap_or_else(|| (names.current, self.log.current_bytes()))
    }

    fn bytes(&self) -> u64 {
        let closed = self.log.names.closed.iter().map(|segment| segment.bytes);
        closed.sum::<u64>() + self.log.current_bytes()
    }

    /// The records of a segment from the position on up to which they are delivered.
    fn read(&self, number: u64, most: usize) -> io::Result<Batch> {
        let mut file = atomic_file::open(&self.directory.join(name_of(number)))?;
        file.seek(SeekFrom::Start(self.delivered))?;
        let mut reader = BufReader::new(file.take(BATCH_BYTES_MAX));
        let mut batch = Batch { records: Vec::new(), number, end: self.delivered, unreadable: 0 };
        let mut line = Vec::new();
        while batch.records.len() < most {
            line.clear();
            let bytes = reader.read_until(b'\n', &mut line)?;
            // The bound of bytes may cut a record off, which comes first the next time; a crash
            // does as well.
            if bytes == 0 || !line.ends_with(b"\n") && !batch.records.is_empty() {
                break;
            }
            batch.end += bytes as u64;
            match std::str::from_utf8(line.trim_ascii_end()) {
                Ok(record) if serde_json::from_str::<IgnoredAny>(record).is_ok() => {
                    batch.records.push(record.to_owned());
                }
                Ok("") => {}
                Ok(_) | Err(_) => batch.unreadable += 1,
            }
        }
        Ok(batch)
    }

    /// Drops the oldest closed segment, with the records that were not delivered.
    fn drop_oldest(&mut self) -> io::Result<()> {
        let Some(oldest) = self.log.names.closed.front() else { return Ok(()) };
        if self.delivered < oldest.bytes {
            // A segment that cannot be read had one record at the least.
            let path = self.directory.join(name_of(oldest.number));
            self.dropped += lines_of(&path, self.delivered).unwrap_or(1);
        }
        self.forget_oldest()
    }

    /// Removes the oldest closed segment. A segment that cannot be removed is delivered again after
    /// the next start.
    fn forget_oldest(&mut self) -> io::Result<()> {
        let Some(oldest) = self.log.names.closed.pop_front() else { return Ok(()) };
        self.delivered = 0;
        match fs::remove_file(self.directory.join(name_of(oldest.number))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// The segments in a directory, the oldest first.
fn segments(directory: &Path) -> io::Result<Vec<ClosedSegment>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(number_of) else { continue };
        match entry.metadata() {
            Ok(metadata) if metadata.is_file() => {
                segments.push(ClosedSegment { number, bytes: metadata.len() });
            }
            Ok(_) => {}
            // Another process has delivered it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    segments.sort_by_key(|segment| segment.number);
    Ok(segments)
}

/// Creates a segment with an unused number greater than `number`.
fn create_behind(directory: &Path, number: u64) -> io::Result<(u64, File)> {
    let mut next = number + 1;
    loop {
        let path = directory.join(name_of(next));
        match atomic_file::create(&path, b"", Access::PRIVATE) {
            Ok(()) => return Ok((next, atomic_file::open_private(&path)?)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_file() => {
                next += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

fn name_of(number: u64) -> String {
    format!("{number:012}.jsonl")
}

fn number_of(name: &str) -> Option<u64> {
    name.strip_suffix(".jsonl")?.parse().ok()
}

/// Bytes of the first file that are delivered. Without the place all of it is delivered again.
fn delivered_of(directory: &Path, first: u64) -> u64 {
    let text = atomic_file::read_state_to_string(&directory.join(DELIVERED), DELIVERED_BYTES_MAX);
    let text = text.unwrap_or_default();
    let Some((number, bytes)) = text.trim_end().split_once(' ') else { return 0 };
    if number.parse() == Ok(first) { bytes.parse().unwrap_or(0) } else { 0 }
}
