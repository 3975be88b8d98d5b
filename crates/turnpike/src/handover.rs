//! The next process of a server takes its listeners and its allocations over, and calls go on.
//!
//! In an upgrade both run:
//!
//! ```text
//! the running server (giving.rs)            the next one (taking.rs)
//!                                      <--  Hello
//! Offer, listeners                     -->  reads files, binds what is new, makes itself ready
//!                                      <--  Copy
//! copies of all allocations, sockets   -->  its workers take them
//!                                      <--  Leave
//! the workers leave (a pause begins)
//! the changes since                    -->  its workers take over
//!                                      <--  Prepared
//! Go                                   -->  serves (the pause ends)
//! closes all that it has left
//! Gone                                 -->  attaches the kernel path
//! ```
//!
//! Up to its `Go` the running server takes everything back if the next one fails, hangs or dies;
//! behind it the next one alone has the allocations, and without a `Go` it ends. Both are processes
//! of one user: see docs/adr/0019.
//!
//! In a restart the first has ended before the second is started. It leaves the same messages and
//! sockets with the service manager (parked.rs), which passes them to the next one; no process
//! serves meanwhile. After a crash the next one gets the copies that a keeper has (keeper.rs,
//! keeper_link.rs).

mod changes;
mod copying;
mod counting;
mod giving;
mod keeper;
mod keeper_link;
mod messages;
mod parked;
mod passing;
mod retiring;
mod room;
mod taking;
mod wire;

pub(crate) use changes::{Change, Changes};
pub(crate) use giving::{Giving, HandedOver, Handovers, ListenerCopies, WorkersToGive};
pub(crate) use keeper::keep;
pub(crate) use keeper_link::KeeperLink;
pub(crate) use messages::Orders;
pub(crate) use parked::{Parked, close as close_parked};
pub(crate) use retiring::Retiring;
pub(crate) use taking::Predecessor;

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time for an answer of the other process.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time of the next process for its preparations, in which this one serves as before.
const PREPARATION_MAX: Duration = Duration::from_secs(120);

/// Time for copies of all allocations, while this process serves as before.
const COPYING_MAX: Duration = Duration::from_secs(60);

/// Room of each UDP listener while no process serves, in bytes: for some 60,000 packets, half a
/// second of what one worker takes by sockets.
const PAUSE_ROOM: usize = 64 << 20;

/// The socket of hand-overs, beside the control socket.
pub(crate) fn socket(control: &Path) -> PathBuf {
    control.with_extension("next")
}

/// The socket of the keeper, beside the control socket.
pub(crate) fn keeper_socket(control: &Path) -> PathBuf {
    control.with_extension("keep")
}
