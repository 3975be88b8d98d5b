//! Records of sessions.

use std::path::PathBuf;

use crate::section::section;
use crate::value::{Bytes, Count, Database, Duration, ServiceUrl};

section! {
    /// Accounting: a record of each session, for billing and statistics
    /// (docs/operate/accounting.md).
    Accounting {
        /// File of the records, one JSON object a line. None by default. A path is relative to
        /// `data.directory`; give another directory to these files alone, as the server may write
        /// to all of it.
        #[schemars(example = &"sessions.jsonl")]
        restart file: Option<PathBuf> = None;
        /// Size from which a file is full: it is renamed to `….1`, the one before it to `….2`, and
        /// so on.
        restart rotate_at: Bytes<{ 64 << 10 }, { 1 << 40 }> = Bytes::new(64 << 20);
        /// Full files that are kept; the oldest beyond that is deleted.
        restart files: Count<0, 10_000> = Count::new(9);
        /// Time between two records of a session that goes on, with its counts so far; `"0 s"`
        /// writes one at its end alone.
        restart interim: Duration<0, 86_400> = Duration::seconds(0);
        /// URL of a web service that gets the same records by POST, as arrays of JSON, each at
        /// least once. `http://` is for this host alone.
        #[schemars(example = "https://billing.example.org/records")]
        restart webhook: Option<ServiceUrl> = None;
        /// File with the value of the Authorization header for it, such as `Bearer ...`. A path is
        /// relative to the configuration's directory.
        restart webhook_authorization_file: Option<PathBuf> = None;
        /// PEM file with the certificates that sign the web service's. By default the ones that
        /// browsers trust.
        restart webhook_authorities: Option<PathBuf> = None;
        /// Records in a request at the most.
        restart webhook_batch: Count<1, 1000> = Count::new(100);
        /// Redis server that gets the life of each session and its traffic in the keys and channels
        /// of coturn's `redis-statsdb`, as a URL: `redis://`, `rediss://` or `redis+unix://`, as
        /// for `users.database`.
        #[schemars(example = "redis://127.0.0.1/0")]
        restart redis: Option<Database> = None;
        /// File that holds this URL, instead of `redis`, as it may have a password.
        #[schemars(example = &"/etc/turnpike/statistics.url")]
        restart redis_file: Option<PathBuf> = None;
        /// Size of the queue on the disk, in `data.directory`, of records that the web service has
        /// not accepted. In a full one the oldest are dropped and counted.
        restart webhook_spool: Bytes<{ 1 << 20 }, { 1 << 40 }> = Bytes::new(64 << 20);
    }
}
