//! Records of sessions.

use std::path::PathBuf;

use crate::section::section;
use crate::value::{Bytes, Count, Duration};

section! {
    /// Accounting: a record of each session, for billing and statistics (docs/operate/accounting.md).
    Accounting {
        /// File of the records, one JSON object a line. None by default. A path is relative to `data.directory`; give another
        /// directory to these files alone, as the server may write to all of it.
        #[schemars(example = &"sessions.jsonl")]
        restart file: Option<PathBuf> = None;
        /// Size from which a file is full: it is renamed to `….1`, the one before it to `….2`, and so on.
        restart rotate_at: Bytes<{ 64 << 10 }, { 1 << 40 }> = Bytes::new(64 << 20);
        /// Full files that are kept; the oldest beyond that is deleted.
        restart files: Count<0, 10_000> = Count::new(9);
        /// Time between two records of a session that goes on, with its counts so far; `"0 s"` writes one at its end alone.
        restart interim: Duration<0, 86_400> = Duration::seconds(0);
    }
}
