//! Accounting of sessions: a record at the end of each, and interim ones, as lines of JSON in files
//! that rotate.
//!
//! Workers hand records over without waiting. A thread of its own writes them: it keeps each until
//! the file has it, so that a full disk loses nothing but what no longer fits into the queue, and
//! that is counted. A web service gets the same records from a spool on the disk, each at least
//! once. Both are logs of segments (`segment_log.rs`).
//!
//! A [`Recorder`] makes each record once. A ledger has the open sessions: each session gets an end
//! record after a crash as well. A thread writes the ledger, and its disk holds up no output.

mod journal;
mod lasting_state;
mod ledger;
mod ledger_queue;
mod ledger_thread;
mod limits;
mod lines;
mod losses;
mod outputs;
mod record;
mod recorder;
mod segment_log;
mod spool;
mod turn;
mod webhook;
mod writer;

pub use journal::{Journal, Rotation};
pub use limits::REQUEST_WITHIN;
pub use losses::Losses;
pub use outputs::{Lines, OutputQueue, output_queue};
pub use record::{Record, RecordEvent};
pub use recorder::Recorder;
pub use spool::{Batch, Spool};
pub use webhook::{Delivery, Webhook};
pub use writer::{Writer, start};
