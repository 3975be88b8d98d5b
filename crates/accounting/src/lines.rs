//! Lines of files.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::limits::SEARCHED_BYTES_MAX;
use crate::record::RecordEvent;

/// Counts the lines of a file from a position on.
pub(crate) fn lines_of(path: &Path, from: u64) -> io::Result<u64> {
    let mut file = atomic_file::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
    Ok(lines.filter(|line| !line.is_empty()).count() as u64)
}

/// End of a session in a record.
#[derive(Deserialize)]
struct End<'a> {
    event: RecordEvent,
    id: &'a str,
    started: u64,
}

/// Returns those of the sessions, by ids and starts, that have an end record in the last lines of
/// files, the newest file first.
pub(crate) fn ended_in(
    files: &[PathBuf],
    sessions: &BTreeSet<(&str, u64)>,
) -> BTreeSet<(String, u64)> {
    let mut ended = BTreeSet::new();
    for_last_lines(files, |line| {
        if let Ok(End { event: RecordEvent::End, id, started }) = serde_json::from_str(line)
            && sessions.contains(&(id, started))
        {
            ended.insert((id.to_owned(), started));
        }
        ended.len() < sessions.len()
    });
    ended
}

/// Returns the lines of `wanted` that are not among the last lines of files, the newest file first.
/// A file that cannot be read has none of them.
pub(crate) fn missing_from(files: &[PathBuf], wanted: &[String]) -> Vec<String> {
    let mut missing: BTreeSet<&str> = wanted.iter().map(|line| line.trim_end()).collect();
    for_last_lines(files, |line| {
        missing.remove(line);
        !missing.is_empty()
    });
    let is_missing = |line: &&String| missing.contains(line.trim_end());
    wanted.iter().filter(is_missing).cloned().collect()
}

/// Calls `goes_on` for the last lines of files, of the first file first, until it returns false or
/// there were [`SEARCHED_BYTES_MAX`]. A file that cannot be read has none.
fn for_last_lines(files: &[PathBuf], mut goes_on: impl FnMut(&str) -> bool) {
    let (mut left, mut line) = (SEARCHED_BYTES_MAX, Vec::new());
    for path in files {
        let Ok(mut file) = atomic_file::open(path) else { continue };
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        let searched = bytes.min(left);
        if file.seek(SeekFrom::Start(bytes - searched)).is_err() {
            continue;
        }
        let mut lines = BufReader::new(file.take(searched));
        loop {
            line.clear();
            if !lines.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                break;
            }
            if std::str::from_utf8(&line).is_ok_and(|line| !goes_on(line.trim_end())) {
                return;
            }
        }
        left -= searched;
        if left == 0 {
            return;
        }
    }
}
