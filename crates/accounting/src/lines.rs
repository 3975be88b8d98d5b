//! Lines of files.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::Path;

/// Counts the lines of a file from a position on.
pub(crate) fn lines_of(path: &Path, from: u64) -> io::Result<u64> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
    Ok(lines.filter(|line| !line.is_empty()).count() as u64)
}
