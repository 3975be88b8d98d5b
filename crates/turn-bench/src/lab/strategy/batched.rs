//! Many packets per system call, each of which goes through the kernel for itself.

use std::io;

use linux_net::TxBatch;

use crate::lab::relay::{Lane, Tally};
use crate::lab::sessions::OwnSessions;

pub(super) fn run(lane: &Lane, sessions: OwnSessions) -> io::Result<Tally> {
    super::batches::run(lane, sessions, TxBatch::without_runs())
}
