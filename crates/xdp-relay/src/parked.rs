//! Kernel path that continues without the process that created it, until the successor attaches
//! separate programs.
//!
//! The programs remain on the devices while any process has descriptors of the links. They relay
//! according to the routes in the maps, while the lease of the worker that wrote the routes is
//! valid. The successor stops the leases before it serves. Afterwards no packet is relayed by a
//! route that is unknown to the successor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use aya::maps::MapData;

use crate::bpf::layout::WORKERS_MAX;
use crate::bpf::link;
use crate::bpf::shared::Shared;

/// Kernel path without a server process. The programs are detached from the devices when the last
/// process drops this value, or a process calls [`end`](Self::end).
#[derive(Debug)]
pub struct ParkedPath {
    leases: OwnedFd,
    /// Links, and the shared presence lock of a server. Without the lock, the last server that
    /// exits would disable look-ups.
    held: Vec<OwnedFd>,
}

impl ParkedPath {
    pub(crate) const fn new(leases: OwnedFd, held: Vec<OwnedFd>) -> Self {
        Self { leases, held }
    }

    pub(crate) fn with(mut self, another: Option<OwnedFd>) -> Self {
        self.held.extend(another);
        self
    }

    /// Returns all descriptors, to be passed to another process.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(&self.leases).chain(&self.held).map(AsFd::as_fd)
    }

    /// Rebuilds the path from the descriptors that another process passed. Returns `None` if there
    /// are no descriptors.
    #[must_use]
    pub fn from_descriptors(all: Vec<OwnedFd>) -> Option<Self> {
        let mut all = all.into_iter();
        Some(Self { leases: all.next()?, held: all.collect() })
    }

    /// Stops all leases. From now on packets pass to the sockets.
    ///
    /// # Errors
    /// The first descriptor is not a map of leases. [`end`](Self::end) stops relaying as well in
    /// that case, but takes longer.
    pub fn end_leases(&self) -> io::Result<()> {
        // The size is checked first, because access beyond the end of a shorter file would kill
        // this process.
        let map = MapData::from_fd(self.leases.try_clone()?).map_err(io::Error::other)?;
        let info = map.info().map_err(io::Error::other)?;
        if info.max_entries() as usize != WORKERS_MAX {
            return Err(io::Error::other("the map of leases has another size"));
        }
        let leases = Shared::map(self.leases.as_fd(), WORKERS_MAX)?;
        leases.words().iter().for_each(|lease| lease.store(0, Relaxed));
        Ok(())
    }

    /// Detaches the programs from the devices, even if another process has copies of the
    /// descriptors.
    pub fn end(self) {
        // A descriptor that is not a link is only closed.
        self.held.iter().for_each(|held| drop(link::detach(held.as_fd())));
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// Creates an empty file that can be mapped.
    fn file() -> OwnedFd {
        let path = std::env::temp_dir().join(format!("no-leases-{}", std::process::id()));
        let options = File::options().read(true).write(true).create(true).truncate(true).clone();
        let file = options.open(&path).expect("a file");
        std::fs::remove_file(path).expect("it is there");
        file.into()
    }

    #[test]
    fn other_descriptors_are_no_path() {
        assert!(ParkedPath::from_descriptors(Vec::new()).is_none());
        let path = ParkedPath::from_descriptors(vec![file(), file()]).expect("as it seems");
        assert_eq!(path.descriptors().count(), 2);
        assert!(path.end_leases().is_err());
        path.end();
    }
}
