//! Things by their numbers: a number is one thing's for as long as that lives, and not soon another's.

use turn_types::SocketId;

/// How many things there can be of a kind; the bits between these and the kind's mark tell one thing from
/// the next in the same place.
const PLACE_BITS: u32 = 20;

/// Things of one kind, which is told by the highest bit of their numbers.
#[derive(Debug)]
pub(crate) struct Places<T> {
    /// That bit.
    mark: u32,
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Place<T> {
    /// How many things it had.
    turn: u32,
    thing: Option<Box<T>>,
}

impl<T> Places<T> {
    /// None yet; `mark` is above the bits for places.
    pub(crate) const fn new(mark: u32) -> Self {
        debug_assert!(mark.is_power_of_two() && mark >> PLACE_BITS > 1);
        Self { mark, places: Vec::new(), free: Vec::new() }
    }

    /// The number that the next thing will have; `None` when there is no place.
    pub(crate) fn next_id(&mut self) -> Option<SocketId> {
        if self.free.is_empty() {
            let place = u32::try_from(self.places.len()).ok().filter(|n| n >> PLACE_BITS == 0)?;
            self.places.push(Place { turn: 0, thing: None });
            self.free.push(place);
        }
        let place = *self.free.last()?;
        Some(self.number(place, self.places[place as usize].turn))
    }

    /// Adds a thing under the number that [`next_id`](Self::next_id) gave.
    pub(crate) fn insert(&mut self, id: SocketId, thing: Box<T>) {
        if let Some(place) = self.free.pop() {
            debug_assert_eq!(self.number(place, self.places[place as usize].turn), id);
            self.places[place as usize].thing = Some(thing);
        }
    }

    pub(crate) fn get_mut(&mut self, id: SocketId) -> Option<&mut T> {
        self.place_mut(id)?.thing.as_deref_mut()
    }

    pub(crate) fn remove(&mut self, id: SocketId) -> Option<Box<T>> {
        let place = self.place_mut(id)?;
        let thing = place.thing.take()?;
        place.turn = place.turn.wrapping_add(1);
        self.free.push(place_of(id));
        Some(thing)
    }

    /// How many there are.
    pub(crate) const fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|place| place.thing.as_deref())
    }

    /// All of them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().filter_map(|place| place.thing.as_deref_mut())
    }

    /// The place of a number, if it has it now.
    fn place_mut(&mut self, id: SocketId) -> Option<&mut Place<T>> {
        let turn = self.places.get(place_of(id) as usize)?.turn;
        let is_current = self.number(place_of(id), turn) == id;
        is_current.then(|| &mut self.places[place_of(id) as usize])
    }

    const fn number(&self, place: u32, turn: u32) -> SocketId {
        SocketId(self.mark | (turn << PLACE_BITS) & (self.mark - 1) | place)
    }
}

const fn place_of(id: SocketId) -> u32 {
    id.0 & ((1 << PLACE_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_one_things_alone() {
        let mut places = Places::new(1 << 30);
        let add = |places: &mut Places<u32>, thing| {
            let id = places.next_id().unwrap();
            assert_eq!(places.next_id(), Some(id), "until it is taken");
            places.insert(id, Box::new(thing));
            id
        };
        let (one, two) = (add(&mut places, 1), add(&mut places, 2));
        assert_eq!((one, two), (SocketId(1 << 30), SocketId((1 << 30) + 1)));
        assert_eq!(places.remove(one).as_deref(), Some(&1));
        assert_eq!((places.remove(one), places.len()), (None, 1));
        let three = add(&mut places, 3);
        assert_eq!(place_of(three), place_of(one), "its place is used again");
        assert_eq!(places.get_mut(one), None, "and its number is not");
        assert_eq!(places.get_mut(three), Some(&mut 3));
        assert_eq!(places.iter().copied().collect::<Vec<_>>(), [3, 2]);
        let other_kind = SocketId(three.0 ^ (1 << 31));
        assert_eq!(places.get_mut(other_kind), None);
    }

    #[test]
    fn numbers_stay_within_their_kind() {
        for mark in [1 << 30, 1 << 31] {
            let places = Places::<()>::new(mark);
            for (place, turn) in [(0, 0), (1, 1), ((1 << PLACE_BITS) - 1, u32::MAX)] {
                let id = places.number(place, turn);
                assert_eq!((id.0 & !(mark - 1), place_of(id)), (mark, place));
            }
        }
    }
}
