//! Counters and log lines of a worker.

mod accounting;
mod addresses;
mod condition;
mod ended_session;
mod observer;
mod refusals;
mod throttle;

pub(crate) use accounting::{BatchSums, Sent, Tag};
pub use addresses::{LogAddresses, PseudonymKey};
pub(crate) use condition::Condition;
pub(crate) use observer::Observer;
pub use observer::{LogOptions, TRACED};
