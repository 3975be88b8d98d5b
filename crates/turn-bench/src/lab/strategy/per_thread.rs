//! A map for each thread, told of registrations through a mailbox; one packet per system call.
//!
//! Nothing is shared on the way of a packet. A look at an empty mailbox is a look at a
//! word that nobody writes to.

use std::io;

use crate::lab::relay::{Lane, Tally};
use crate::lab::sessions::OwnSessions;

pub(super) fn run(lane: &Lane, mut sessions: OwnSessions) -> io::Result<Tally> {
    super::one_by_one::run(lane, |id| {
        sessions.read_mail();
        sessions.client(id)
    })
}
