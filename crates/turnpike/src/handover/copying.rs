//! Copies of a worker's allocations as messages.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use dataplane::{CopiedAllocation, CopiedRelay, Copies, InheritedSocket};

use super::messages::{Bytes, ChangedPart, ChangedRelayPart, CopyPart, LastPart, News, RelayPart};
use super::passing::{Inlet, Outlet};

/// The message of some copies, and the sockets that go with it.
pub(super) fn message<S>(copies: Copies<S>) -> (CopyPart, Vec<S>) {
    let Copies { worker, last_id, shared: mut sockets, changed, ended, complete } = copies;
    let shared = u32::try_from(sockets.len()).unwrap_or(u32::MAX);
    let part = |CopiedAllocation { id, state, relays, session }| {
        let relays = relays.into_iter().map(|CopiedRelay { relay, at, own, socket }| {
            let comes = socket.is_some();
            sockets.extend(socket);
            ChangedRelayPart { part: RelayPart { relay, at, own }, comes }
        });
        ChangedPart {
            id,
            state: Bytes(state),
            relays: relays.collect(),
            session: session.map(Bytes),
        }
    };
    let changed = changed.into_iter().map(part).collect();
    let nothing = CopyPart::nothing(worker, last_id);
    (CopyPart { shared, changed, ended, complete, ..nothing }, sockets)
}

/// Sends the descriptors of sockets.
pub(super) fn send_sockets(outlet: &mut impl Outlet, sockets: &[impl AsFd]) -> io::Result<()> {
    let descriptors: Vec<BorrowedFd<'_>> = sockets.iter().map(|socket| socket.as_fd()).collect();
    outlet.send_descriptors(&descriptors)
}

/// Sends copies of all that a worker had, when it serves no more and nothing else is left of it.
pub(super) fn send_all(outlet: &mut impl Outlet, copies: Copies<impl AsFd>) -> io::Result<()> {
    let (copies, sockets) = message(copies);
    // What has been read from connections since the last copies would be missing.
    outlet.send(&News::Last(LastPart::of_copies(copies)))?;
    send_sockets(outlet, &sockets)
}

/// Receives the sockets of a message, and returns both as the copies that they are.
pub(super) fn copies(
    inlet: &mut impl Inlet,
    part: CopyPart,
) -> io::Result<Copies<InheritedSocket>> {
    let mut sockets = inlet.receive_descriptors(part.sockets())?.into_iter().map(InheritedSocket);
    let CopyPart { worker, last_id, shared, changed, ended, complete, .. } = part;
    let shared = sockets.by_ref().take(shared as usize).collect();
    let allocation = |ChangedPart { id, state, relays, session }: ChangedPart| {
        let relays = relays.into_iter().map(|ChangedRelayPart { part, comes }| {
            let RelayPart { relay, at, own } = part;
            CopiedRelay { relay, at, own, socket: if comes { sockets.next() } else { None } }
        });
        CopiedAllocation {
            id,
            state: state.0,
            relays: relays.collect(),
            session: session.map(|session| session.0),
        }
    };
    let changed = changed.into_iter().map(allocation).collect();
    Ok(Copies { worker, last_id, shared, changed, ended, complete })
}
