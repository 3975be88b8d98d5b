//! Hand-over of a server to its successor: calls continue.
//!
//! Both processes are alive in an upgrade:
//!
//! ```text
//! predecessor (export.rs)                   successor (import.rs)
//!                                      <--  Hello
//! Offer, listeners                     -->  reads files, binds new listeners, prepares itself
//!                                      <--  Copy
//! snapshots of allocations over UDP     -->  its workers import them
//!                                      <--  Pause
//! pauses its workers, exports the rest -->  its workers import it
//!                                      <--  Ready
//! Commit                               -->  serves (the pause ends)
//! closes everything that was exported
//! Released                             -->  attaches the kernel path
//! ```
//!
//! The predecessor rolls back before its Commit if the successor fails, hangs or dies; afterwards
//! only the successor has the allocations. Without a Commit the successor ends. Both are processes
//! of one user: see docs/adr/0019.
//!
//! `turnpike upgrade` queries the same socket for the start of the server (start_facts.rs), and
//! gets descriptors.
//!
//! A predecessor ends before the successor starts in a restart. It stores the same messages and
//! descriptors with the service manager (parked.rs); no process serves between the two. After a
//! crash the successor gets the snapshots of a keeper (keeper.rs, keeper_link.rs).

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

/// Time for an answer of the other process.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time of the next process for its preparations, in which this one serves as before.
const PREPARATION_MAX: Duration = Duration::from_secs(120);

/// Time for snapshots of the allocations over UDP, while this process serves as before.
const COPYING_MAX: Duration = Duration::from_secs(60);

/// Room of each UDP listener while no process serves, in bytes: for some 60,000 packets, half a
/// second of what one worker takes by sockets.
const PAUSE_ROOM: usize = 64 << 20;

/// Queries the server at the hand-over socket for the facts about its start.
///
/// # Errors
/// The server is of a version without an answer, which does not protect its memory.
pub(crate) fn ask_for_start(socket: &Path) -> io::Result<StartFacts> {
    let mut wire = Wire::new(UnixStream::connect(socket)?)?;
    wire.send(&Hello::new(true))?;
    StartFacts::from_descriptors(wire.receive_descriptors(start_facts::FILES.len())?)
}

/// The socket of hand-overs, beside the control socket.
pub(crate) fn socket(control: &Path) -> PathBuf {
    control.with_extension("next")
}

/// The socket of the keeper, beside the control socket.
pub(crate) fn keeper_socket(control: &Path) -> PathBuf {
    control.with_extension("keep")
}
