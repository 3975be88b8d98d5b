//! Accounting of sessions: a record at the end of each, and interim ones, as lines of JSON in files that rotate.
//!
//! Workers hand records over without waiting. A thread of its own writes them: it keeps each until the file has it, so that a
//! full disk loses nothing but what no longer fits into the queue, and that is counted.

mod journal;
mod limits;
mod record;
mod writer;

pub use journal::{Journal, Rotation};
pub use record::{Record, RecordEvent};
pub use writer::{Writer, start};
