//! What Linux needs for high packet rates. [`survey()`] reads the host and advises, [`apply()`] makes the
//! changes it is given, and [`revert()`] puts back what was there before.
//!
//! What always holds: only [`apply()`] and [`revert()`] change anything. The value before a change is on
//! the disk before the change is made. Nothing is advised that lowers what an operator has raised.
//! A setting is one of a few kinds whose parts are checked ([`Setting`]), so that no state file makes
//! this crate write anywhere else.
#![forbid(unsafe_code)]

mod allowed;
mod apply;
mod catalogue;
mod cpus;
mod entry;
mod ethtool;
mod host;
mod item;
mod items;
mod persist;
mod privilege;
mod reference;
mod revert;
mod setting;
mod state;
#[cfg(test)]
mod testing;
mod wants;

pub use apply::{Applied, Outcome, apply};
pub use catalogue::{ALL, find};
pub use entry::{Area, By, Entry};
pub use host::Host;
pub use item::{Change, Item, Scope, Verdict};
pub use items::{Survey, survey};
pub use persist::{FILE as PERSISTED, PersistError, persist};
pub use privilege::missing_privilege;
pub use reference::reference_markdown;
pub use revert::{Restored, RevertOutcome, revert};
pub use setting::{EthtoolValue, QueueFile, Setting, SettingError};
pub use state::{FILE as STATE, Record, State, StateError};
pub use wants::Wants;
