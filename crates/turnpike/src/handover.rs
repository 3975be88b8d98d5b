//! Hand-over of a server to a successor process without loss of calls.
//!
//! In an upgrade both processes run at first:
//!
//! ```text
//! predecessor (export.rs)                    successor (import.rs)
//!                                       <--  Hello
//! Offer, listeners                      -->  reads files, binds new listeners, prepares
//!                                       <--  Copy
//! snapshots of allocations over UDP     -->  workers import the snapshots
//!                                       <--  Pause
//! pauses its workers, exports the       -->  workers import the remaining state
//! remaining state
//!                                       <--  Ready
//! orders, counters, Commit              -->  serves (the pause is over)
//! closes everything that was exported
//! Released                              -->  attaches the kernel path
//! ```
//!
//! If the successor fails, hangs or dies before the Commit, the predecessor rolls back and
//! continues to serve. After the Commit only the successor has the allocations. A successor that
//! receives no Commit exits. Both processes run as the same user: see docs/adr/0019.
//!
//! Terms of this module:
//!
//! - *Offer*: the state and listeners that a successor needs before the first snapshot.
//! - *Copies*: snapshots of allocations that a worker sends while serving, to a successor or a
//!   keeper.
//! - *Keeper*: a small process that retains the copies of a server (keeper.rs). After a crash the
//!   keeper passes the copies to the successor. The server's side is keeper_link.rs.
//! - *Parked*: stored with the service manager between the exit of one process and the start of
//!   another (parked.rs).
//! - *Kernel path*: the BPF programs that relay bound channels in the kernel, with the programs'
//!   maps and links.
//!
//! In a restart the predecessor exits before the successor starts, and no process serves between
//! the two. The predecessor parks the same messages and descriptors as in an upgrade.
//!
//! `turnpike upgrade` connects to the same socket to read how the server was started
//! (start_facts.rs). The response consists of descriptors.

mod changes;
mod export;
mod import;
mod keeper;
mod keeper_link;
mod messages;
mod parked;
mod passing;
mod retiring;
mod room;
mod wire;

pub(crate) use changes::{Change, Changes};
pub(crate) use export::{HandoverReport, Handovers, ListenerCopies, ServerExport, WorkersExport};
pub(crate) use import::Predecessor;
pub(crate) use keeper::keep;
pub(crate) use keeper_link::{CopiedBeside, KeeperLink};
pub(crate) use messages::{ListenerKind, Orders};
pub(crate) use parked::{Parked, close as close_parked};
pub(crate) use retiring::Retiring;
pub(crate) use wire::Wire;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::messages::Hello;
use self::passing::{Inlet as _, Outlet as _};
use crate::start_facts::{self, StartFacts};

/// Maximum time for a response of the other process.
const PATIENCE: Duration = Duration::from_secs(5);

/// Maximum time for the preparations of a successor. The predecessor continues to serve during that
/// time.
const PREPARATION_MAX: Duration = Duration::from_secs(120);

/// Maximum time for sending snapshots of the allocations over UDP. The predecessor continues to
/// serve during that time.
const COPYING_MAX: Duration = Duration::from_secs(60);

/// Receive buffer of each UDP listener while no process serves, in bytes. The size suffices for
/// about 60,000 packets: half a second of the packets that one worker receives through sockets.
const PAUSE_ROOM: usize = 64 << 20;

/// Requests the facts about a server's start through the hand-over socket.
///
/// # Errors
/// The server cannot be reached, runs as another user, or has a version that does not respond to
/// this request. Such a version does not protect its memory.
pub(crate) fn ask_for_start(socket: &Path) -> io::Result<StartFacts> {
    let mut wire = Wire::new(UnixStream::connect(socket)?)?;
    wire.send(&Hello::new(true))?;
    StartFacts::from_descriptors(wire.receive_descriptors(start_facts::FILES.len())?)
}

/// Returns the path of the hand-over socket, next to the control socket.
pub(crate) fn socket(control: &Path) -> PathBuf {
    control.with_extension("next")
}

/// Returns the path of the keeper's socket, next to the control socket.
pub(crate) fn keeper_socket(control: &Path) -> PathBuf {
    control.with_extension("keep")
}
