//! State that a port and its sources share.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Result, bail};
use aya::Ebpf;
use aya::maps::{Array, MapData};

use super::object::array;
use super::template::Template;

/// Sources at a time; as in `bpf/source.h`.
const SOURCES_MAX: usize = 8;

/// Flows of all sources; as in `bpf/source.h`.
const TEMPLATES_MAX: u32 = 65_536;

/// `struct state` of `bpf/source.h`: thirteen words are written, nine are read.
pub(super) type State = [u64; 22];

/// State of a port and its sources.
pub(super) struct Shared {
    pub(super) object: Ebpf,
    pub(super) interface: u32,
    pub(super) maps: Mutex<Maps>,
    taken: Mutex<Vec<Place>>,
}

/// Maps of the sources.
pub(super) struct Maps {
    pub(super) templates: Array<MapData, Template>,
    pub(super) states: Array<MapData, State>,
}

/// Slots of a source: its state, and the templates of its flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) slot: u32,
    pub(super) templates: Range<u32>,
}

impl Shared {
    pub(super) fn new(mut object: Ebpf, interface: u32) -> Result<Self> {
        let (templates, states) = (array(&mut object, "templates")?, array(&mut object, "states")?);
        let maps = Mutex::new(Maps { templates, states });
        Ok(Self { object, interface, maps, taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, Vec<Place>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take_place(&self, flows: usize) -> Result<Place> {
        let mut taken = self.taken();
        let place = find_place(&taken, flows)?;
        taken.push(place.clone());
        Ok(place)
    }

    /// Frees the slots of a source.
    pub(super) fn leave(&self, place: &Place) {
        self.taken().retain(|other| other != place);
    }

    pub(super) fn maps(&self) -> MutexGuard<'_, Maps> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first free state, and the first gap among the templates that is wide enough.
fn find_place(taken: &[Place], flows: usize) -> Result<Place> {
    let slot = (0..).find(|slot| taken.iter().all(|place| place.slot != *slot)).unwrap_or(0);
    if taken.len() >= SOURCES_MAX {
        bail!("at most {SOURCES_MAX} threads can send frames by one link");
    }
    let mut ranges: Vec<_> = taken.iter().map(|place| place.templates.clone()).collect();
    ranges.sort_by_key(|range| range.start);
    let mut start = 0;
    for range in ranges {
        if (range.start - start) as usize >= flows {
            break;
        }
        start = range.end;
    }
    let end = u32::try_from(flows).ok().and_then(|flows| start.checked_add(flows));
    match end {
        Some(end) if end <= TEMPLATES_MAX => Ok(Place { slot, templates: start..end }),
        Some(_) | None => bail!("at most {TEMPLATES_MAX} flows can be sent as frames by one link"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(slot: u32, templates: Range<u32>) -> Place {
        Place { slot, templates }
    }

    #[test]
    fn sources_have_places_of_their_own() {
        let mut taken = Vec::new();
        for expected in [place(0, 0..10), place(1, 10..20), place(2, 20..30)] {
            let found = find_place(&taken, 10).unwrap();
            assert_eq!(found, expected);
            taken.push(found);
        }
        taken.remove(1);
        assert_eq!(find_place(&taken, 11).unwrap(), place(1, 30..41), "too narrow a gap");
        assert_eq!(find_place(&taken, 10).unwrap(), place(1, 10..20));
        taken.remove(0);
        assert_eq!(find_place(&taken, 20).unwrap(), place(0, 0..20));
    }

    #[test]
    fn there_is_an_end_to_places() {
        assert!(find_place(&[], TEMPLATES_MAX as usize).is_ok());
        assert!(find_place(&[], TEMPLATES_MAX as usize + 1).is_err());
        assert!(find_place(&[place(0, 0..1)], TEMPLATES_MAX as usize).is_err());
        let taken: Vec<_> = (0..8).map(|slot| place(slot, slot..slot + 1)).collect();
        assert!(find_place(&taken, 1).is_err());
    }
}
