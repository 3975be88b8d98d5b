//! Bursts of equal packets of one sender arrive as one message and leave as one: they go through
//! the kernel's UDP, IP and device layers once each way. What the server does.

use std::io;

use linux_net::TxBatch;

use crate::lab::relay::{Lane, Tally};
use crate::lab::sessions::OwnSessions;

pub(super) fn run(lane: &Lane, sessions: OwnSessions) -> io::Result<Tally> {
    super::batches::run(lane, sessions, TxBatch::new())
}
