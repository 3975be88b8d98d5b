//! Viewers of the stream of overviews, with shares for the holders of tokens.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fair_share::{Claimant, Levels, Share, Slots, system_hasher};
use tokio::sync::oneshot;

use crate::limits::VIEWERS_MAX;

/// Levels at which viewers are counted: the account of the holder. Addresses are not counted.
const HOLDERS: Levels = Levels { prefixes: &[], account: Some(1), realm: None };

/// Table of all viewers.
#[derive(Clone, Debug)]
pub(crate) struct Viewers(Arc<Mutex<Table>>);

#[derive(Debug)]
struct Table {
    slots: Slots,
    /// Sorted by age, the oldest first.
    viewers: Vec<Viewer>,
    next_number: u64,
}

#[derive(Debug)]
struct Viewer {
    number: u64,
    holder: String,
    share: Share,
    /// Sender whose drop stops the stream.
    _end: oneshot::Sender<()>,
}

/// Entry of one viewer; removed when it is dropped.
#[derive(Debug)]
pub(crate) struct ViewerEntry {
    viewers: Viewers,
    number: u64,
}

impl Default for Viewers {
    fn default() -> Self {
        let slots = Slots::new(&HOLDERS, VIEWERS_MAX as u32, system_hasher());
        Self(Arc::new(Mutex::new(Table { slots, viewers: Vec::new(), next_number: 0 })))
    }
}

impl Viewers {
    /// Adds a viewer of a holder. A full table evicts the newest viewer of the holder with most
    /// viewers, if the new viewer's holder has fewer. Returns the entry, and a receiver that fails
    /// when the viewer is evicted.
    pub(crate) fn add(&self, holder: &str) -> Option<(ViewerEntry, oneshot::Receiver<()>)> {
        let mut table = self.lock();
        if table.viewers.len() >= VIEWERS_MAX {
            table.make_room(holder)?;
        }
        let (end, ended) = oneshot::channel();
        let (share, number) = (table.slots.keep(&claimant(holder)), table.next_number);
        table.next_number += 1;
        table.viewers.push(Viewer { number, holder: holder.to_owned(), share, _end: end });
        Some((ViewerEntry { viewers: self.clone(), number }, ended))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn make_room(&mut self, holder: &str) -> Option<()> {
        let Self { slots, viewers, .. } = self;
        let newcomer = claimant(holder);
        let position = slots.rival(&newcomer, viewers.len(), |at| &viewers[at].share)?;
        let most = slots.held_by_account(&claimant(&viewers[position].holder));
        if most <= slots.held_by_account(&newcomer) {
            return None;
        }
        self.remove(position);
        Some(())
    }

    fn remove(&mut self, position: usize) {
        let Viewer { share, .. } = self.viewers.remove(position);
        self.slots.release(share);
    }
}

impl Drop for ViewerEntry {
    fn drop(&mut self) {
        let mut table = self.viewers.lock();
        let position = table.viewers.iter().position(|viewer| viewer.number == self.number);
        if let Some(position) = position {
            table.remove(position);
        }
    }
}

fn claimant(holder: &str) -> Claimant<'_> {
    Claimant::at_shared_address().with_account("", holder)
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    #[test]
    fn a_holder_leaves_streams() {
        let viewers = Viewers::default();
        let mut greedy: Vec<_> = (0..VIEWERS_MAX).filter_map(|_| viewers.add("greedy")).collect();
        assert_eq!(greedy.len(), VIEWERS_MAX);
        assert!(viewers.add("greedy").is_none());
        // Another holder gets half of the table.
        let other: Vec<_> = (0..VIEWERS_MAX).map_while(|_| viewers.add("other")).collect();
        assert_eq!(other.len(), VIEWERS_MAX / 2);
        let is_ended =
            |ended: &mut oneshot::Receiver<()>| ended.try_recv() == Err(TryRecvError::Closed);
        let ended: Vec<_> = greedy.iter_mut().map(|(_, ended)| is_ended(ended)).collect();
        // The newest viewers are evicted.
        let half = VIEWERS_MAX / 2;
        assert_eq!(ended, [vec![false; half], vec![true; half]].concat());
        drop(greedy);
        assert_eq!(viewers.lock().viewers.len(), half);
        assert_eq!(viewers.lock().slots.held(), half as u32);
        assert!(viewers.add("other").is_some());
    }

    #[test]
    fn holders_with_one_stream_each_keep_it() {
        let viewers = Viewers::default();
        let names: Vec<_> = (0..VIEWERS_MAX).map(|number| number.to_string()).collect();
        let held: Vec<_> = names.iter().map(|name| viewers.add(name).unwrap()).collect();
        assert!(viewers.add(&names[0]).is_none(), "it has one");
        drop(held);
    }
}
