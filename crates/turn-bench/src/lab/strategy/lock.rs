//! One map for all threads, behind a reader-writer lock; one packet per system call.
//!
//! What is written first. Readers do not wait for each other, but each of them writes to the word
//! that counts them, so that line of the cache travels between the cores with every packet.

use std::io;

use crate::lab::relay::{Lane, Tally};
use crate::lab::sessions::SharedSessions;

pub(super) fn run(lane: &Lane, sessions: &SharedSessions) -> io::Result<Tally> {
    super::one_by_one::run(lane, |id| sessions.client(id))
}
