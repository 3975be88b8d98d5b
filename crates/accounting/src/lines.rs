//! Lines of files.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom};
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
struct End {
    event: RecordEvent,
    id: String,
    started: u64,
}

/// Returns ids and starts of the sessions with these ids that have an end record at the end of one
/// of the files.
pub(crate) fn ended_in(files: &[PathBuf], ids: &BTreeSet<&str>) -> BTreeSet<(String, u64)> {
    let mut ended = BTreeSet::new();
    for_last_lines(files, |line| {
        if let Ok(End { event: RecordEvent::End, id, started }) = serde_json::from_str(line)
            && ids.contains(id.as_str())
        {
            ended.insert((id, started));
        }
    });
    ended
}

/// Returns the lines of `wanted` that none of the files ends with. A file that cannot be read has
/// none of them.
pub(crate) fn missing_from(files: &[PathBuf], wanted: &[String]) -> Vec<String> {
    let mut missing: BTreeSet<&str> = wanted.iter().map(|line| line.trim_end()).collect();
    for_last_lines(files, |line| {
        missing.remove(line);
    });
    let is_missing = |line: &&String| missing.contains(line.trim_end());
    wanted.iter().filter(is_missing).cloned().collect()
}

/// Calls `found` for the lines at the end of each file. A file that cannot be read has none.
fn for_last_lines(files: &[PathBuf], mut found: impl FnMut(&str)) {
    for path in files {
        let Ok(mut file) = atomic_file::open(path) else { continue };
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        let from = SeekFrom::Start(bytes.saturating_sub(SEARCHED_BYTES_MAX));
        if file.seek(from).is_err() {
            continue;
        }
        for line in BufReader::new(file).split(b'\n').map_while(Result::ok) {
            if let Ok(line) = std::str::from_utf8(&line) {
                found(line);
            }
        }
    }
}
