//! Slab of connections. A number belongs to one connection for the connection's lifetime. A later
//! connection gets the number only after many others.

use turn_types::SocketId;

/// Number of bits of the index. The bits between the index and the kind's bit contain the
/// generation of the slot.
const INDEX_BITS: u32 = 20;

/// Entries of one kind, which the highest bit of their numbers identifies.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    kind: u32,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    /// Number of samples so far. Each sample starts at another slot.
    samples: usize,
}

#[derive(Debug)]
struct Slot<T> {
    /// Number of earlier entries in this slot.
    generation: u32,
    entry: Option<Box<T>>,
}

impl<T> Slab<T> {
    /// Creates an empty slab. `kind` is one bit above the bits of the index.
    pub(crate) const fn new(kind: u32) -> Self {
        debug_assert!(kind.is_power_of_two() && kind >> INDEX_BITS > 1);
        Self { kind, slots: Vec::new(), free: Vec::new(), samples: 0 }
    }

    /// Returns the number of the next entry, or `None` if all slots are in use.
    pub(crate) fn next_id(&mut self) -> Option<SocketId> {
        if self.free.is_empty() {
            let index = u32::try_from(self.slots.len()).ok().filter(|n| n >> INDEX_BITS == 0)?;
            self.slots.push(Slot { generation: 0, entry: None });
            self.free.push(index);
        }
        let index = *self.free.last()?;
        Some(self.number(index, self.slots[index as usize].generation))
    }

    /// Adds an entry under the number that [`next_id`](Self::next_id) returned.
    pub(crate) fn insert(&mut self, id: SocketId, entry: Box<T>) {
        if let Some(index) = self.free.pop() {
            debug_assert_eq!(self.number(index, self.slots[index as usize].generation), id);
            self.slots[index as usize].entry = Some(entry);
        }
    }

    pub(crate) fn get(&self, id: SocketId) -> Option<&T> {
        let slot = self.slots.get(index_of(id) as usize)?;
        let is_current = self.number(index_of(id), slot.generation) == id;
        slot.entry.as_deref().filter(|_| is_current)
    }

    pub(crate) fn get_mut(&mut self, id: SocketId) -> Option<&mut T> {
        self.slot_mut(id)?.entry.as_deref_mut()
    }

    pub(crate) fn remove(&mut self, id: SocketId) -> Option<Box<T>> {
        let slot = self.slot_mut(id)?;
        let entry = slot.entry.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index_of(id));
        Some(entry)
    }

    /// Removes an entry, and keeps the number in use until the entry is [put back](Self::put_back)
    /// or [freed](Self::free).
    pub(crate) fn lift(&mut self, id: SocketId) -> Option<Box<T>> {
        self.slot_mut(id)?.entry.take()
    }

    /// Puts back an entry that was [lifted](Self::lift).
    pub(crate) fn put_back(&mut self, id: SocketId, entry: Box<T>) {
        if let Some(slot) = self.slot_mut(id) {
            slot.entry = Some(entry);
        }
    }

    /// Frees the number of an entry that was [lifted](Self::lift).
    pub(crate) fn free(&mut self, id: SocketId) {
        if let Some(slot) = self.slot_mut(id) {
            slot.generation = slot.generation.wrapping_add(1);
            self.free.push(index_of(id));
        }
    }

    /// Returns the number of entries.
    pub(crate) const fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns entries from all parts of the slab. Examines at least half of `count` slots, and at
    /// most twice `count`.
    pub(crate) fn sample(&mut self, count: usize) -> impl Iterator<Item = &T> {
        let step = (self.slots.len() / count).max(1);
        self.samples = self.samples.wrapping_add(1);
        let slots = self.slots.iter().skip(self.samples % step).step_by(step);
        slots.filter_map(|slot| slot.entry.as_deref())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.entry.as_deref())
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.entry.as_deref_mut())
    }

    /// Returns the slot of a number, if the number has the slot's current generation.
    fn slot_mut(&mut self, id: SocketId) -> Option<&mut Slot<T>> {
        let generation = self.slots.get(index_of(id) as usize)?.generation;
        let is_current = self.number(index_of(id), generation) == id;
        is_current.then(|| &mut self.slots[index_of(id) as usize])
    }

    const fn number(&self, index: u32, generation: u32) -> SocketId {
        SocketId(self.kind | (generation << INDEX_BITS) & (self.kind - 1) | index)
    }
}

const fn index_of(id: SocketId) -> u32 {
    id.0 & ((1 << INDEX_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_belongs_to_one_entry() {
        let mut slab = Slab::new(1 << 30);
        let add = |slab: &mut Slab<u32>, entry| {
            let id = slab.next_id().unwrap();
            assert_eq!(slab.next_id(), Some(id), "until it is taken");
            slab.insert(id, Box::new(entry));
            id
        };
        let (one, two) = (add(&mut slab, 1), add(&mut slab, 2));
        assert_eq!((one, two), (SocketId(1 << 30), SocketId((1 << 30) + 1)));
        assert_eq!(slab.remove(one).as_deref(), Some(&1));
        assert_eq!((slab.remove(one), slab.len()), (None, 1));
        let three = add(&mut slab, 3);
        assert_eq!(index_of(three), index_of(one), "its slot is used again");
        assert_eq!(slab.get_mut(one), None, "and its number is not");
        assert_eq!(slab.get_mut(three), Some(&mut 3));
        assert_eq!(slab.iter().copied().collect::<Vec<_>>(), [3, 2]);
        let other_kind = SocketId(three.0 ^ (1 << 31));
        assert_eq!(slab.get_mut(other_kind), None);
    }

    #[test]
    fn numbers_stay_within_their_kind() {
        for kind in [1 << 30, 1 << 31] {
            let slab = Slab::<()>::new(kind);
            for (index, generation) in [(0, 0), (1, 1), ((1 << INDEX_BITS) - 1, u32::MAX)] {
                let id = slab.number(index, generation);
                assert_eq!((id.0 & !(kind - 1), index_of(id)), (kind, index));
            }
        }
    }
}
