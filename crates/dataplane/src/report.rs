//! Counters and log lines of a worker.

mod accounting;
mod observer;
mod refusals;
mod throttle;

pub(crate) use accounting::{BatchSums, Sent, Tag};
pub(crate) use observer::{Condition, Observer};
