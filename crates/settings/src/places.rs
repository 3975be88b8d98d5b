//! Places of the written keys, for findings after the configuration was read.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::error::Place;

/// Places of the keys of a configuration. They are no part of its value: two configurations that
/// differ in them alone are equal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// The file, if there is one.
    pub(crate) file: Option<PathBuf>,
    /// Written keys.
    pub(crate) keys: BTreeMap<&'static str, KeyPlace>,
}

/// Places of one key.
#[derive(Clone, Debug)]
pub(crate) struct KeyPlace {
    pub(crate) key: Place,
    /// Place of each entry of a list.
    pub(crate) entries: Vec<Place>,
}

impl Places {
    /// Place of a key, or the file as a whole when it was not written.
    pub(crate) fn of(&self, path: &str) -> Place {
        self.keys.get(path).map_or_else(|| self.whole(), |place| place.key.clone())
    }

    /// Notes a key of the command line.
    pub(crate) fn put(&mut self, path: &'static str, option: &'static str) {
        let place = KeyPlace { key: Place::Option(option), entries: Vec::new() };
        self.keys.insert(path, place);
    }

    /// Place of an entry of a list.
    pub(crate) fn of_entry(&self, path: &str, index: usize) -> Place {
        let entry = self.keys.get(path).and_then(|place| place.entries.get(index));
        entry.map_or_else(|| self.of(path), Clone::clone)
    }

    fn whole(&self) -> Place {
        let file = |path: &PathBuf| Place::File { path: path.clone(), line: None };
        self.file.as_ref().map_or(Place::Default, file)
    }
}

impl PartialEq for Places {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Places {}
