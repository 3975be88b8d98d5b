//! Records on the disk that wait to be delivered: numbered files of lines, and the place up to
//! which they are delivered.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;

use crate::limits::{BATCH_BYTES_MAX, SPOOL_SEGMENTS};

/// Mode of the files: of the server's user alone.
const MODE: u32 = 0o600;

/// File with the place up to which records are delivered: number of a file, and bytes of it.
const DELIVERED: &str = "delivered";

/// A bounded queue of records on the disk. It survives the end of the process; after a crash some
/// records that were delivered may be delivered again.
#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    bytes_max: u64,
    /// The files, the oldest first; records are appended to the last one.
    segments: VecDeque<Segment>,
    last: File,
    /// Bytes of the first file that are delivered.
    delivered: u64,
    /// Records that were dropped, and not yet counted.
    dropped: u64,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    number: u64,
    bytes: u64,
}

/// Records to be delivered together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The records, each an object of JSON.
    pub records: Vec<String>,
    number: u64,
    end: u64,
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
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let mut segments = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if let Some(number) = entry.file_name().to_str().and_then(number_of) {
                segments.push(Segment { number, bytes: entry.metadata()?.len() });
            }
        }
        segments.sort_by_key(|segment| segment.number);
        // A new file, so that a record that a crash cut off stays the last of its own.
        let number = segments.last().map_or(1, |segment| segment.number + 1);
        let last = create(directory, number)?;
        let first = segments.first().map_or(number, |segment| segment.number);
        segments.push(Segment { number, bytes: 0 });
        let delivered = delivered_of(directory, first);
        Ok(Self {
            directory: directory.to_owned(),
            bytes_max,
            segments: segments.into(),
            last,
            delivered,
            dropped: 0,
        })
    }

    /// Appends a record, a line, whole or not at all. In a full spool the oldest ones are dropped
    /// for it.
    ///
    /// # Errors
    /// The disk is full or broken; the record is not in the spool then.
    pub fn append(&mut self, line: &str) -> io::Result<()> {
        let bytes = line.len() as u64;
        let segment_max = self.bytes_max / SPOOL_SEGMENTS;
        if self.last_bytes() > 0 && self.last_bytes() + bytes > segment_max {
            let number = self.segments.back().map_or(1, |segment| segment.number + 1);
            self.last = create(&self.directory, number)?;
            self.segments.push_back(Segment { number, bytes: 0 });
        }
        while self.segments.len() > 1 && self.bytes() + bytes > self.bytes_max {
            self.drop_oldest()?;
        }
        let before = self.last_bytes();
        if let Err(error) = self.last.write_all(line.as_bytes()) {
            // A part of it may be there, and would spoil the next one.
            self.last.set_len(before)?;
            return Err(error);
        }
        if let Some(segment) = self.segments.back_mut() {
            segment.bytes += bytes;
        }
        Ok(())
    }

    /// Records that were dropped since the last call.
    pub const fn take_dropped(&mut self) -> u64 {
        std::mem::replace(&mut self.dropped, 0)
    }

    /// The oldest records that are not delivered, `most` at the most; `None` where there are none.
    ///
    /// # Errors
    /// The disk is broken.
    pub fn batch(&mut self, most: usize) -> io::Result<Option<Batch>> {
        loop {
            let Some(&Segment { number, bytes }) = self.segments.front() else { return Ok(None) };
            if self.delivered < bytes {
                let batch = self.read(number, most)?;
                if !batch.records.is_empty() {
                    return Ok(Some(batch));
                }
                self.accept(&batch)?;
            } else if self.segments.len() > 1 {
                self.forget_first()?;
            } else {
                return Ok(None);
            }
        }
    }

    /// Removes a batch that was delivered.
    ///
    /// # Errors
    /// The disk is broken; the batch may be delivered again after a restart.
    pub fn accept(&mut self, batch: &Batch) -> io::Result<()> {
        // The file may have been dropped meanwhile.
        if self.segments.front().is_none_or(|first| first.number != batch.number) {
            return Ok(());
        }
        self.delivered = self.delivered.max(batch.end);
        let place = format!("{} {}\n", batch.number, self.delivered);
        fs::write(self.directory.join(DELIVERED), place)
    }

    /// Waits until the disk has all records.
    ///
    /// # Errors
    /// The disk is broken.
    pub fn sync(&self) -> io::Result<()> {
        self.last.sync_data()
    }

    fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    fn last_bytes(&self) -> u64 {
        self.segments.back().map_or(0, |segment| segment.bytes)
    }

    /// The records of a file from the place on up to which they are delivered.
    fn read(&self, number: u64, most: usize) -> io::Result<Batch> {
        let mut file = File::open(self.directory.join(name_of(number)))?;
        file.seek(SeekFrom::Start(self.delivered))?;
        let mut reader = BufReader::new(file.take(BATCH_BYTES_MAX));
        let mut batch = Batch { records: Vec::new(), number, end: self.delivered };
        let mut line = String::new();
        while batch.records.len() < most {
            line.clear();
            let bytes = reader.read_line(&mut line)?;
            // The bound of bytes may cut a record off, which comes first the next time; a crash
            // does as well.
            if bytes == 0 || !line.ends_with('\n') && !batch.records.is_empty() {
                break;
            }
            batch.end += bytes as u64;
            let record = line.trim_end();
            if serde_json::from_str::<IgnoredAny>(record).is_ok() {
                batch.records.push(record.to_owned());
            }
        }
        Ok(batch)
    }

    /// Drops the oldest file, with its records that were not delivered.
    fn drop_oldest(&mut self) -> io::Result<()> {
        let Some(first) = self.segments.front() else { return Ok(()) };
        let mut file = File::open(self.directory.join(name_of(first.number)))?;
        file.seek(SeekFrom::Start(self.delivered))?;
        self.dropped += BufReader::new(file).split(b'\n').count() as u64;
        self.forget_first()
    }

    fn forget_first(&mut self) -> io::Result<()> {
        if let Some(first) = self.segments.pop_front() {
            self.delivered = 0;
            fs::remove_file(self.directory.join(name_of(first.number)))?;
        }
        Ok(())
    }
}

fn create(directory: &Path, number: u64) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(MODE).open(directory.join(name_of(number)))
}

fn name_of(number: u64) -> String {
    format!("{number:012}.jsonl")
}

fn number_of(name: &str) -> Option<u64> {
    name.strip_suffix(".jsonl")?.parse().ok()
}

/// Bytes of the first file that are delivered. Without the place all of it is delivered again.
fn delivered_of(directory: &Path, first: u64) -> u64 {
    let text = fs::read_to_string(directory.join(DELIVERED)).unwrap_or_default();
    let Some((number, bytes)) = text.trim_end().split_once(' ') else { return 0 };
    if number.parse() == Ok(first) { bytes.parse().unwrap_or(0) } else { 0 }
}
