//! From text and environment variables to a [`File`], every error gathered.
//!
//! serde stops at the first error. Here each key is read by itself, as if it stood alone in the
//! file (all others have defaults), and each entry of a list likewise: errors are then known by
//! key, line and entry, and the rest is still read.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IntoDeserializer;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::coturn::coturns;
use crate::environment::Environment;
use crate::error::{Errors, Place};
use crate::file::File;
use crate::keys::{Key, SECTIONS, key, keys, parts};
use crate::limits;
use crate::places::{KeyPlace, Places};
use crate::suggest::nearest;

mod kinds;

use kinds::{forms, kind_of, right_kind, unknown_part, value_of_variable};

/// The written keys, each with its place.
#[derive(Debug, Default)]
pub(crate) struct Document {
    path: Option<PathBuf>,
    given: BTreeMap<&'static str, Given>,
    /// Keys that were written, but wrongly.
    refused: BTreeSet<&'static str>,
}

/// A key as it was written, and its value.
type Pair<'a, 'i> = (&'a Spanned<DeString<'i>>, &'a Spanned<DeValue<'i>>);

#[derive(Debug)]
struct Given {
    value: toml::Value,
    place: Place,
    /// Place of each entry of a list.
    entries: Vec<Place>,
}

impl Document {
    /// Reads the text of a configuration file; parts that cannot be read are left out, and are in
    /// `errors`.
    pub(crate) fn parse(path: &Path, text: &str, errors: &mut Errors) -> Self {
        let source = Source { path, text };
        let mut document = Self { path: Some(path.to_owned()), ..Self::default() };
        let (root, slips) = DeTable::parse_recoverable(text);
        for slip in &slips {
            let (mut what, mut help) =
                (slip.message().to_owned(), "see https://toml.io for how TOML is written");
            if let Some(name) = slip.span().and_then(|span| text.get(span))
                && what == "duplicate key"
            {
                what = format!("the key {name} is there twice");
                help = "remove one of them; a table such as [relay] is written once";
            }
            errors.add(source.place(slip.span()), "", what, help);
        }
        if !slips.is_empty() {
            return document; // the parser's result is a guess
        }
        for (name, value) in root.get_ref() {
            document.take(&source, "", (name, value), errors);
        }
        document
    }

    /// Takes one key or table.
    fn take(
        &mut self,
        source: &Source<'_>,
        table: &str,
        (name, value): Pair<'_, '_>,
        errors: &mut Errors,
    ) {
        let path = if table.is_empty() {
            name.get_ref().to_string()
        } else {
            format!("{table}.{}", name.get_ref())
        };
        let place = source.place(Some(name.span()));
        let is_table =
            table.is_empty() && SECTIONS.iter().any(|section| section.name.as_ref() == Some(&path));
        if is_table {
            match value.get_ref().as_table() {
                Some(inner) => inner.iter().for_each(|pair| self.take(source, &path, pair, errors)),
                None => errors.add(
                    place,
                    &path,
                    format!("is {}, and is a table", kind_of(value.get_ref())),
                    format!("write [{path}] on a line of its own, and its keys below"),
                ),
            }
            return;
        }
        let Some(key) = key(&path) else {
            let help = advice_for_unknown(table, name.get_ref());
            errors.add(place, path, "there is no such key", help);
            return;
        };
        if !known_parts(source, key, value, errors) {
            self.refused.insert(&key.path);
            return;
        }
        let entries = value.get_ref().as_array().into_iter().flatten();
        let entries = entries.map(|entry| source.place(Some(entry.span()))).collect();
        match toml::Value::deserialize(value.clone().into_deserializer()) {
            Ok(value) => {
                self.given.insert(&key.path, Given { value, place, entries });
            }
            Err(error) => {
                // Integers beyond 64 bits: TOML's grammar has them, its values do not.
                self.refused.insert(&key.path);
                errors.add(place, path, error.message(), forms(key));
            }
        }
    }

    /// Lets environment variables override the file.
    pub(crate) fn override_by(
        &mut self,
        environment: &Environment,
        errors: &mut Errors,
    ) -> Vec<String> {
        let unused = environment.check_names(errors);
        for key in keys() {
            if let Some(text) = environment.of(key) {
                let place = Place::Environment(key.variable());
                let value = value_of_variable(key, text);
                let entries = vec![place.clone(); value.as_array().map_or(0, Vec::len)];
                self.refused.remove(key.path.as_str());
                self.given.insert(&key.path, Given { value, place, entries });
            }
        }
        unused
    }

    /// The values, checked one by one.
    pub(crate) fn read(&mut self, errors: &mut Errors) -> File {
        let mut good = toml::Table::new();
        for (path, given) in &self.given {
            // Both come from the key table.
            let Some(key) = key(path) else { continue };
            if check(key, given, errors) {
                put(&mut good, path, given.value.clone());
            } else {
                self.refused.insert(path);
            }
        }
        File::deserialize(good).unwrap_or_else(|error| {
            errors.add(self.whole(), "", error.message(), "see docs/configuration.md for the keys");
            File::default()
        })
    }

    /// Place of a key, or the file as a whole when it was not written.
    pub(crate) fn place(&self, path: &str) -> Place {
        self.given.get(path).map_or_else(|| self.whole(), |given| given.place.clone())
    }

    /// Place of an entry of a list.
    pub(crate) fn entry_place(&self, path: &str, index: usize) -> Place {
        let entry = self.given.get(path).and_then(|given| given.entries.get(index));
        entry.map_or_else(|| self.place(path), Clone::clone)
    }

    /// Place of the entry of a list that is this text, or of the list.
    pub(crate) fn place_of_text(&self, path: &str, text: &str) -> Place {
        let list = self.given.get(path).and_then(|given| given.value.as_array());
        let index =
            list.and_then(|list| list.iter().position(|entry| entry.as_str() == Some(text)));
        index.map_or_else(|| self.place(path), |index| self.entry_place(path, index))
    }

    /// Places of all written keys.
    pub(crate) fn places(&self) -> Places {
        let place = |(key, given): (&&'static str, &Given)| {
            let place = KeyPlace { key: given.place.clone(), entries: given.entries.clone() };
            (*key, place)
        };
        Places { file: self.path.clone(), keys: self.given.iter().map(place).collect() }
    }

    /// Returns whether a key was written at all.
    pub(crate) fn is_written(&self, path: &str) -> bool {
        self.given.contains_key(path)
    }

    /// Returns whether a key was written wrongly, so that conclusions from its default mean
    /// nothing.
    pub(crate) fn is_refused(&self, path: &str) -> bool {
        self.refused.contains(path)
    }

    /// Directory that paths are relative to.
    pub(crate) fn directory(&self) -> &Path {
        self.path.as_deref().and_then(Path::parent).unwrap_or_else(|| Path::new(""))
    }

    fn whole(&self) -> Place {
        self.path
            .as_ref()
            .map_or(Place::Default, |path| Place::File { path: path.clone(), line: None })
    }
}

/// Bytes of the file to lines of the file.
struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn place(&self, span: Option<Range<usize>>) -> Place {
        let line = span.map(|span| {
            let before = self.text.as_bytes().iter().take(span.start);
            1 + before.filter(|byte| **byte == b'\n').count()
        });
        Place::File { path: self.path.to_owned(), line }
    }
}

/// Checks that the tables in a list have known parts only.
fn known_parts(
    source: &Source<'_>,
    key: &Key,
    value: &Spanned<DeValue<'_>>,
    errors: &mut Errors,
) -> bool {
    let Some(known) = key.schema.get("items").and_then(parts) else { return true };
    let mut good = true;
    let entries = value.get_ref().as_array().into_iter().flatten();
    for table in entries.filter_map(|entry| entry.get_ref().as_table()) {
        for name in table.keys().filter(|name| !known.contains_key(name.get_ref().as_ref())) {
            good = false;
            let help = nearest(name.get_ref(), known.keys().map(String::as_str)).map_or_else(
                || {
                    format!(
                        "an entry has {}",
                        known.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
                    )
                },
                |near| format!("did you mean {near}?"),
            );
            let place = source.place(Some(name.span()));
            errors.add(
                place,
                format!("{}.{}", key.path, name.get_ref()),
                "there is no such key",
                help,
            );
        }
    }
    good
}

/// Advice for a key that does not exist.
fn advice_for_unknown(table: &str, name: &str) -> String {
    let section =
        SECTIONS.iter().find(|section| section.name.as_deref().unwrap_or_default() == table);
    let names = |path: &'static str| path.rsplit_once('.').map_or(path, |(_, name)| name);
    let siblings: Vec<&str> =
        section.into_iter().flat_map(|section| &section.keys).map(|key| names(&key.path)).collect();
    let tables = SECTIONS.iter().filter_map(|section| section.name.as_deref());
    let candidates = siblings.iter().copied().chain(tables.filter(|_| table.is_empty()));
    if let Some(ours) = coturns(name) {
        return format!("that is an option of coturn; here it is {ours}");
    }
    if let Some(near) = nearest(name, candidates) {
        return format!("did you mean {near}?");
    }
    if let Some(elsewhere) = keys().find(|key| names(&key.path) == name) {
        return match elsewhere.path.rsplit_once('.') {
            Some((table, _)) => format!("{name} belongs under [{table}]"),
            None => format!("{name} belongs at the top of the file, before the first [table]"),
        };
    }
    if table.is_empty() {
        return "remove it; docs/configuration.md lists the keys".to_owned();
    }
    if section.is_none() {
        return format!("there is no table [{table}]");
    }
    format!("the keys of [{table}] are {}", siblings.join(", "))
}

/// Checks a value against the type of its key.
fn check(key: &Key, given: &Given, errors: &mut Errors) -> bool {
    if let Err((what, help)) = right_kind(key, &given.value) {
        errors.add(given.place.clone(), &key.path, what, help);
        return false;
    }
    let Some(list) = given.value.as_array() else {
        return alone(key, given.value.clone(), &given.place, "", errors);
    };
    if list.len() > limits::LIST_ENTRIES_MAX {
        let what = format!("the list has {} entries", list.len());
        errors.add(
            given.place.clone(),
            &key.path,
            what,
            format!("write at most {}", limits::LIST_ENTRIES_MAX),
        );
        return false;
    }
    let mut good = true;
    for (index, (entry, place)) in list.iter().zip(&given.entries).enumerate() {
        let tables = key.entries_are_tables();
        let which = if tables || entry.is_table() {
            format!("entry {}: ", index + 1)
        } else {
            String::new()
        };
        if tables && !entry.is_table() {
            errors.add(place.clone(), &key.path, format!("{which}is not a table"), forms(key));
            good = false;
            continue;
        }
        let entries = key.schema.get("items").filter(|_| tables);
        if let Some((what, help)) = entries.and_then(|schema| unknown_part(schema, entry, "")) {
            errors.add(place.clone(), &key.path, format!("{which}{what}"), help);
            good = false;
            continue;
        }
        good &= alone(key, toml::Value::Array(vec![entry.clone()]), place, &which, errors);
    }
    good
}

/// Reads a file in which nothing but this key stands.
fn alone(key: &Key, value: toml::Value, place: &Place, which: &str, errors: &mut Errors) -> bool {
    let mut table = toml::Table::new();
    put(&mut table, &key.path, value);
    match File::deserialize(table) {
        Ok(_) => true,
        Err(error) => {
            // Our own values say what to do behind a line break; serde's words, which may quote the
            // value, have none.
            let (what, help) = match error.message().split_once('\n') {
                Some((what, help)) => (what, help.to_owned()),
                None if key.is_secret() => ("a part of it is of the wrong kind", forms(key)),
                None => (error.message(), forms(key)),
            };
            errors.add(place.clone(), &key.path, format!("{which}{what}"), help);
            false
        }
    }
}

fn put(table: &mut toml::Table, path: &str, value: toml::Value) {
    match path.split_once('.') {
        Some((section, name)) => {
            let inner =
                table.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new()));
            if let Some(inner) = inner.as_table_mut() {
                inner.insert(name.to_owned(), value);
            }
        }
        None => {
            table.insert(path.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_coturn_lead_to_keys_that_exist() {
        for (theirs, ours) in crate::coturn::COTURN {
            assert!(key(ours).is_some(), "{theirs} leads to {ours}");
            assert!(advice_for_unknown("", theirs).ends_with(ours), "{theirs}");
        }
    }
}
