//! A kernel path that goes on without its process, until the next one of the server takes its
//! place.
//!
//! The programs stay on their devices as long as somebody has descriptors of the links, and relay
//! by the routes in the maps, as long as the lease of the worker that wrote them lasts. The next
//! process ends the leases before it serves: no packet is then relayed by a route that it does not
//! know.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use aya::maps::MapData;

use crate::bpf::layout::WORKERS_MAX;
use crate::bpf::link;
use crate::bpf::shared::Shared;

/// A kernel path without a process. Its programs leave the devices when the last process has
/// dropped this, or one [ends](Self::end) it.
#[derive(Debug)]
pub struct ParkedPath {
    leases: OwnedFd,
    /// The links, and the mark of a server that is there, without which the last one that ends
    /// would switch look-ups off.
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

    /// All descriptors, for another process.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(&self.leases).chain(&self.held).map(AsFd::as_fd)
    }

    /// As another process had it; `None` without descriptors.
    #[must_use]
    pub fn from_descriptors(all: Vec<OwnedFd>) -> Option<Self> {
        let mut all = all.into_iter();
        Some(Self { leases: all.next()?, held: all.collect() })
    }

    /// Ends all leases: from here on packets pass to the sockets.
    ///
    /// # Errors
    /// It is no map of leases; [end](Self::end) the path instead, which takes longer.
    pub fn end_leases(&self) -> io::Result<()> {
        // A file that is shorter than it should be would kill this process.
        let map = MapData::from_fd(self.leases.try_clone()?).map_err(io::Error::other)?;
        let info = map.info().map_err(io::Error::other)?;
        if info.max_entries() as usize != WORKERS_MAX {
            return Err(io::Error::other("the map of leases has another size"));
        }
        let leases = Shared::map(self.leases.as_fd(), WORKERS_MAX)?;
        leases.words().iter().for_each(|lease| lease.store(0, Relaxed));
        Ok(())
    }

    /// Takes the programs from the devices, also if another process has copies of this.
    pub fn end(self) {
        // What is no link is closed.
        self.held.iter().for_each(|held| drop(link::detach(held.as_fd())));
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// An empty file that can be mapped.
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
