//! The table of keys, taken from the JSON schema of [`File`], so that reading, environment
//! variables, differences and the reference page know the same keys.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::file::File;

/// Prefix of the environment variables that override keys.
pub(crate) const VARIABLE_PREFIX: &str = "TURNPIKE_";

/// A group of keys: the top of the file, or one table.
#[derive(Debug)]
pub(crate) struct Section {
    /// The table's name; `None` for the keys at the top.
    pub(crate) name: Option<String>,
    /// Its text for operators.
    pub(crate) text: String,
    /// Its keys, in the order of the reference page.
    pub(crate) keys: Vec<Key>,
}

/// A key that can be set.
#[derive(Debug)]
pub(crate) struct Key {
    /// The whole name, such as `relay.ports`.
    pub(crate) path: String,
    /// Its JSON schema, with nothing referred to from elsewhere.
    pub(crate) schema: Value,
}

/// Time when a change of a key takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// At a reload.
    Live,
    /// At the next start of the server.
    Restart,
}

/// All sections, in the order of the reference page.
pub(crate) static SECTIONS: LazyLock<Vec<Section>> = LazyLock::new(sections);

/// The JSON schema of the whole file. serde's null is a key that is left out: TOML has no null, so
/// none is shown.
pub(crate) static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let mut schema = settings.into_generator().into_root_schema_for::<File>().to_value();
    drop_nulls(&mut schema);
    schema
});

/// All keys, in the order of the reference page.
pub(crate) fn keys() -> impl Iterator<Item = &'static Key> {
    SECTIONS.iter().flat_map(|section| &section.keys)
}

/// The key with this whole name.
pub(crate) fn key(path: &str) -> Option<&'static Key> {
    keys().find(|key| key.path == path)
}

/// The named parts of a table or of the tables in a list; `None` when it has no parts.
pub(crate) fn parts(schema: &Value) -> Option<&Map<String, Value>> {
    let direct = || schema.get("properties").and_then(Value::as_object);
    let choice = || schema.get("anyOf")?.as_array()?.iter().find_map(parts);
    direct().or_else(choice)
}

impl Key {
    /// A field of the schema that is text, such as `x-kind`; from the items of a list when the list
    /// has none.
    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        let own = self.schema.get(field).or_else(|| self.schema.get("items")?.get(field));
        own.and_then(Value::as_str)
    }

    /// Time when a change takes effect.
    pub(crate) fn applied(&self) -> Applied {
        match self.text("x-applied") {
            Some("live") => Applied::Live,
            Some(_) | None => Applied::Restart,
        }
    }

    /// Returns whether its value must not be shown.
    pub(crate) fn is_secret(&self) -> bool {
        fn any(schema: &Value) -> bool {
            schema.get("x-secret").is_some()
                || schema.as_object().is_some_and(|parts| parts.values().any(any))
        }
        any(&self.schema)
    }

    /// Returns whether its value is of this JSON type (`boolean`, `array`, ...), alone or among
    /// others.
    pub(crate) fn may_be(&self, kind: &str) -> bool {
        let is = |schema: &Value| schema.get("type").and_then(Value::as_str) == Some(kind);
        is(&self.schema)
            || self
                .schema
                .get("anyOf")
                .and_then(Value::as_array)
                .is_some_and(|any| any.iter().any(is))
    }

    /// Returns whether it is a list of tables only.
    pub(crate) fn entries_are_tables(&self) -> bool {
        self.schema.pointer("/items/type").and_then(Value::as_str) == Some("object")
    }

    /// The words to choose from, where there is such a choice and nothing else.
    pub(crate) fn choices(&self) -> Option<Vec<&str>> {
        if let Some(words) = self.schema.get("enum").and_then(Value::as_array) {
            return Some(words.iter().filter_map(Value::as_str).collect());
        }
        let any = self.schema.get("oneOf")?.as_array()?;
        any.iter().map(|one| one.get("const").and_then(Value::as_str)).collect()
    }

    /// The environment variable that overrides it.
    pub(crate) fn variable(&self) -> String {
        format!("{VARIABLE_PREFIX}{}", self.path.to_uppercase().replace('.', "__"))
    }
}

fn sections() -> Vec<Section> {
    let mut top = Section { name: None, text: String::new(), keys: Vec::new() };
    let mut tables = Vec::new();
    for (name, schema) in parts(&SCHEMA).into_iter().flatten() {
        let is_table = schema.get("type").and_then(Value::as_str) == Some("object");
        match parts(schema) {
            Some(keys) if is_table => tables.push(Section {
                name: Some(name.clone()),
                text: schema
                    .get("description")
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned(),
                keys: keys
                    .iter()
                    .map(|(key, schema)| Key {
                        path: format!("{name}.{key}"),
                        schema: schema.clone(),
                    })
                    .collect(),
            }),
            Some(_) | None => top.keys.push(Key { path: name.clone(), schema: schema.clone() }),
        }
    }
    let mut all = vec![top];
    all.append(&mut tables);
    all
}

fn drop_nulls(schema: &mut Value) {
    if let Some(map) = schema.as_object_mut() {
        if let Some(kinds) = map.get_mut("type").and_then(Value::as_array_mut) {
            kinds.retain(|kind| kind != "null");
            if let [only] = kinds.as_slice() {
                let only = only.clone();
                map.insert("type".to_owned(), only);
            }
        }
        if let Some(any) = map.get_mut("anyOf").and_then(Value::as_array_mut) {
            any.retain(|one| one.get("type").and_then(Value::as_str) != Some("null"));
            if let [only] = any.as_slice() {
                let only = only.as_object().cloned().unwrap_or_default();
                map.remove("anyOf");
                for (field, value) in only {
                    map.entry(field).or_insert(value);
                }
            }
        }
        if map.get("default") == Some(&Value::Null) {
            map.remove("default");
        }
        for (_, inner) in map.iter_mut() {
            drop_nulls(inner);
        }
    } else if let Some(list) = schema.as_array_mut() {
        list.iter_mut().for_each(drop_nulls);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_text_a_type_and_a_time_of_effect() {
        let mut count = 0;
        for key in keys() {
            count += 1;
            assert!(
                key.text("description").is_some_and(|text| text.ends_with('.')),
                "{}: no text",
                key.path
            );
            assert!(
                matches!(key.text("x-applied"), Some("live" | "restart")),
                "{}: x-applied is neither live nor restart",
                key.path
            );
            let understood = key.text("x-kind").is_some()
                || key.choices().is_some()
                || key.may_be("boolean")
                || key.may_be("string")
                || key.may_be("array");
            assert!(understood, "{}: the schema has no kind: {}", key.path, key.schema);
        }
        assert!(count > 30, "the table has {count} keys");
    }

    #[test]
    fn sections_have_a_text() {
        for section in SECTIONS.iter().skip(1) {
            assert!(section.text.ends_with('.'), "{:?}: {:?}", section.name, section.text);
        }
    }
}
