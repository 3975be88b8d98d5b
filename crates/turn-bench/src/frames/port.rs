//! One end of the traffic, on a link.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use aya::maps::{Array, MapData};
use aya::{Ebpf, Pod};

use super::sink::{Sink, SinkTally, Watch};
use super::source::{Source, State};
use super::template::{Shape, Template};
use super::{FrameFlow, attach, object};

/// Sources at a time; as in `bpf/source.h`.
const SOURCES_MAX: usize = 8;

/// Flows of all sources; as in `bpf/source.h`.
const TEMPLATES_MAX: u32 = 65_536;

/// A link on which the packets of a run are counted, and by which they are sent.
///
/// While a run is watched, its packets get no further. Everything else passes. The link is as it was
/// when this value and its sources are dropped.
pub struct Port {
    shared: Arc<Shared>,
    sink: Mutex<Sink>,
}

/// What a port and its sources have in common.
pub(super) struct Shared {
    pub(super) object: Ebpf,
    pub(super) interface: u32,
    pub(super) maps: Mutex<Maps>,
    taken: Mutex<Vec<Place>>,
}

/// What sources read when they make frames.
pub(super) struct Maps {
    pub(super) templates: Array<MapData, Template>,
    pub(super) states: Array<MapData, State>,
}

/// What a source has to itself: its state, and the templates of its flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) slot: u32,
    pub(super) templates: Range<u32>,
}

impl fmt::Debug for Port {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Port").field("interface", &self.shared.interface).finish_non_exhaustive()
    }
}

impl Port {
    /// Puts the program that counts and makes packets on a link.
    ///
    /// # Errors
    /// Privileges are missing, there is no such interface, its driver runs no XDP programs, or
    /// another is there already.
    pub fn attach(interface: &str) -> Result<Self> {
        let number = attach::interface_number(interface)?;
        let mut object = load()?;
        attach::put(object::program(&mut object, "port")?, interface)?;
        Self::with(object, number)
    }

    /// Loads the program, and puts it on no link.
    #[cfg(test)]
    pub(super) fn load() -> Result<Self> {
        Self::with(load()?, 0)
    }

    fn with(mut object: Ebpf, interface: u32) -> Result<Self> {
        let sink = Sink::of(&mut object)?;
        let maps = Maps {
            templates: array(&mut object, "templates")?,
            states: array(&mut object, "states")?,
        };
        let taken = Mutex::default();
        let shared = Shared { object, interface, maps: Mutex::new(maps), taken };
        Ok(Self { shared: Arc::new(shared), sink: Mutex::new(sink) })
    }

    /// Makes ready to send the packets of these flows, which take turns in this order. Whether they
    /// arrive at all says [`probe`](super::probe()).
    ///
    /// # Errors
    /// There is no flow, the flows are not of one family or not all with (or without) a channel, or
    /// there are more than 8 sources or 65,536 flows on this link.
    pub fn source(&self, flows: &[FrameFlow]) -> Result<Source> {
        let shape = Shape::of(flows)?;
        let place = self.shared.take_place(flows.len())?;
        Ok(Source::new(Arc::clone(&self.shared), place, flows, shape))
    }

    fn sink(&self) -> MutexGuard<'_, Sink> {
        self.sink.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the packets of a run from here on, from nothing.
    ///
    /// # Errors
    /// The run is 0, or has more flows than can be followed.
    pub fn watch(&self, watch: &Watch) -> Result<()> {
        self.sink().begin(watch)
    }

    /// Counts on, by another window or specification of the same run.
    ///
    /// # Errors
    /// The kernel does not let us write our own map.
    pub fn rewatch(&self, watch: &Watch) -> Result<()> {
        self.sink().write(watch)
    }

    /// Watches no run any more: everything passes.
    ///
    /// # Errors
    /// The kernel does not let us write our own map.
    pub fn unwatch(&self) -> Result<()> {
        self.sink().end()
    }

    /// What arrived so far of the run that was watched last.
    ///
    /// # Errors
    /// The kernel does not let us read our own map.
    pub fn tally(&self) -> Result<SinkTally> {
        self.sink().read()
    }

    /// The program, for tests that run it on single frames.
    #[cfg(test)]
    pub(super) fn object(&self) -> &Ebpf {
        &self.shared.object
    }
}

fn load() -> Result<Ebpf> {
    let mut object = object::open(object::PORT)?;
    object::load(&mut object, "port")?;
    Ok(object)
}

/// A map of an object, taken out of it.
pub(super) fn array<V: Pod>(object: &mut Ebpf, name: &str) -> Result<Array<MapData, V>> {
    let map = object.take_map(name).with_context(|| format!("there is no map {name}"))?;
    Ok(Array::try_from(map)?)
}

impl Shared {
    fn taken(&self) -> MutexGuard<'_, Vec<Place>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_place(&self, flows: usize) -> Result<Place> {
        let mut taken = self.taken();
        let place = find_place(&taken, flows)?;
        taken.push(place.clone());
        Ok(place)
    }

    /// Gives back what a source had.
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
