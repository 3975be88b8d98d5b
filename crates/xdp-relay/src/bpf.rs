//! Compiled BPF programs, and the memory that user space shares with them.

pub(crate) mod entries;
pub(crate) mod layout;
pub(crate) mod link;
pub(crate) mod object;
pub(crate) mod pins;
pub(crate) mod shared;
pub(crate) mod shares;
pub(crate) mod slots;
