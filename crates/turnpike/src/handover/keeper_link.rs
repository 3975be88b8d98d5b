//! A server's part of its keeper: a thread that sends copies of everything, as long as there is one.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, sleep};
use std::time::Duration;

use control::Handle;
use dataplane::limits::COPIES_WAITING;
use dataplane::{Copies, WorkerChannels};
use linux_net::UdpSocket;
use turn_types::{AllocationId, WorkerId};

use super::copying;
use super::giving::{Handovers, Offering};
use super::messages::{CopyPart, KeeperHello, Step};
use super::passing::Outlet as _;
use super::wire::Wire;

/// Pause between two looks for a keeper.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The connection with the keeper.
#[derive(Debug)]
enum Keeper {
    /// None is there.
    Absent,
    Connected(Wire),
    /// Another process has everything.
    Left,
}

/// The copying for a keeper.
#[derive(Clone, Debug)]
pub(crate) struct KeeperLink(Arc<Mutex<Keeper>>);

impl KeeperLink {
    /// Looks for a keeper at `socket`, now and whenever it is gone, and sends it copies.
    ///
    /// # Errors
    /// No thread left.
    pub(crate) fn start(
        socket: PathBuf,
        handovers: &Handovers,
        channels: WorkerChannels,
        handle: Handle,
    ) -> io::Result<Self> {
        let link = Self(Arc::new(Mutex::new(Keeper::Absent)));
        let (own, offering) = (link.clone(), handovers.offering());
        let feed = move || {
            while !own.has_left() {
                // Most servers have none.
                if let Ok(wire) = connect(&socket) {
                    let process = wire.process();
                    let tell = || handle.set_keeper(Some(process));
                    if let Err(error) = own.feed(wire, &offering, &channels, tell) {
                        tracing::warn!("the keeper has no copies any more: {error}");
                    }
                    handle.set_keeper(None);
                }
                sleep(LOOK_EVERY);
            }
        };
        thread::Builder::new().name("keeping".to_owned()).spawn(feed)?;
        Ok(link)
    }

    /// Tells the keeper that another process has everything, and sends no more.
    pub(crate) fn leave(&self) {
        let mut keeper = self.lock();
        if let Keeper::Connected(wire) = &mut *keeper {
            // A keeper that is gone has nothing to forget.
            let _ = wire.send(&farewell());
        }
        *keeper = Keeper::Left;
    }

    /// Sends everything, and then each change, until the keeper is gone or this process has left.
    fn feed(
        &self,
        mut wire: Wire,
        offering: &Offering,
        channels: &WorkerChannels,
        tell: impl FnOnce(),
    ) -> io::Result<()> {
        offering.offer(&mut wire)?;
        wire.expect(Step::Copy)?;
        let (copies, received) = sync_channel(COPIES_WAITING);
        {
            let mut keeper = self.lock();
            if matches!(*keeper, Keeper::Left) {
                return wire.send(&farewell());
            }
            tracing::info!(process = wire.process(), "a keeper has copies of all calls over UDP");
            *keeper = Keeper::Connected(wire);
        }
        tell();
        channels.copy_to(&copies);
        drop(copies);
        self.pass_on(&received)
    }

    fn pass_on(&self, received: &Receiver<Copies<UdpSocket>>) -> io::Result<()> {
        // Ends with the last worker, too.
        while let Ok(copies) = received.recv() {
            let mut keeper = self.lock();
            let Keeper::Connected(wire) = &mut *keeper else { return Ok(()) };
            if let Err(error) = send(wire, copies) {
                *keeper = Keeper::Absent;
                return Err(error);
            }
        }
        Ok(())
    }

    fn has_left(&self) -> bool {
        matches!(*self.lock(), Keeper::Left)
    }

    fn lock(&self) -> MutexGuard<'_, Keeper> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Introduces this process to the keeper at `socket`.
fn connect(socket: &Path) -> io::Result<Wire> {
    let mut wire = UnixStream::connect(socket).and_then(Wire::new)?;
    wire.send(&KeeperHello::new(true))?;
    Ok(wire)
}

fn farewell() -> CopyPart {
    let (worker, last_id) = (WorkerId(0), AllocationId(0));
    let (changed, ended) = (Vec::new(), Vec::new());
    let (farewell, stops, complete) = (true, false, false);
    CopyPart { worker, last_id, shared: 0, changed, ended, farewell, stops, complete }
}

fn send(wire: &mut Wire, copies: Copies<UdpSocket>) -> io::Result<()> {
    let (part, sockets) = copying::message(copies);
    wire.send(&part)?;
    copying::send_sockets(wire, &sockets)
}
