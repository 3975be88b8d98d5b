//! From worker to worker: a client's connection whose peer's connection another worker has (RFC 6062), which
//! is handed over once, whole: descriptor, TLS, and what was read of it; and what is asked and told of
//! clients that move (RFC 8016).

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use control::Wake;
use turn_proto::BindRequest;
use turn_types::WorkerId;

use crate::limits::ARRIVALS_WAITING;
use crate::moves::Move;
use crate::streams::Stream;

/// What one worker hands another.
#[derive(Debug)]
pub(crate) enum Parcel {
    Connection(Arrival),
    Move(Move),
}

/// A connection on its way to another worker, and the ConnectionBind that takes it there.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) stream: Box<Stream>,
    pub(crate) request: Box<BindRequest>,
}

/// Where parcels come in to one worker.
#[derive(Clone)]
pub(crate) struct Door {
    sender: SyncSender<Parcel>,
    wake: Arc<dyn Wake>,
}

/// What has come in.
#[derive(Debug)]
pub(crate) struct Arrivals(Receiver<Parcel>);

/// A way in to one worker: for a bounded number of parcels that it has not looked at.
pub(crate) fn door(wake: Arc<dyn Wake>) -> (Door, Arrivals) {
    let (sender, receiver) = sync_channel(ARRIVALS_WAITING);
    (Door { sender, wake }, Arrivals(receiver))
}

impl Arrivals {
    /// The next one.
    pub(crate) fn take(&self) -> Option<Parcel> {
        // Disconnected is no news: a worker has its own way in for as long as it lives.
        self.0.try_recv().ok()
    }
}

/// The ways in to all workers, in the order of their ids.
#[derive(Clone)]
pub struct Doors(Arc<[Door]>);

impl Doors {
    pub(crate) fn new(doors: Vec<Door>) -> Self {
        Self(doors.into())
    }

    /// Hands a parcel to a worker.
    ///
    /// # Errors
    /// The parcel, when there is no such worker, when it is gone, or when too many wait there.
    pub(crate) fn hand_over(&self, to: WorkerId, parcel: Parcel) -> Result<(), Parcel> {
        let Some(door) = self.0.get(usize::from(to.0)) else { return Err(parcel) };
        match door.sender.try_send(parcel) {
            Ok(()) => {
                door.wake.wake();
                Ok(())
            }
            Err(TrySendError::Full(parcel) | TrySendError::Disconnected(parcel)) => Err(parcel),
        }
    }

    /// Whether there is a worker of this number.
    pub(crate) fn lead_to(&self, worker: WorkerId) -> bool {
        usize::from(worker.0) < self.0.len()
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Door")
    }
}

impl fmt::Debug for Doors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Doors").field(&self.0.len()).finish()
    }
}
