//! Host settings for high packet rates. [`survey()`] reads the host and advises, [`apply()`] makes
//! the changes it is given, and [`revert()`] restores the values before.
//!
//! Invariants: only [`apply()`] and [`revert()`] change anything. The value before a change is on
//! the disk before the change is made. No advice lowers a value that an operator has raised. A
//! setting is one of a few kinds whose parts are checked ([`Setting`]), so that no state file makes
//! this crate write anywhere else.
//!
//! An item is a row of the table in `catalogue.rs`, with the function in `items/` that looks at it.
#![forbid(unsafe_code)]

mod apply;
mod catalogue;
mod entry;
mod ethtool;
mod host;
mod interface;
mod item;
mod items;
mod persist;
mod ranges;
mod reference;
mod revert;
mod setting;
mod state;
mod survey;
#[cfg(test)]
mod testing;

pub use apply::{Applied, Outcome, apply};
pub use catalogue::{ALL, find};
pub use entry::{Area, By, Entry};
pub use host::{Host, missing_privilege};
pub use item::{Change, Verdict};
pub use items::Wants;
pub use persist::{FILE as PERSISTED, PersistError, persist};
pub use reference::reference_markdown;
pub use revert::{Restored, RevertOutcome, revert};
pub use setting::{EthtoolValue, QueueFile, Setting, SettingError};
pub use state::{FILE as STATE, Record, State, StateError};
pub use survey::{Item, Scope, Survey, survey};
