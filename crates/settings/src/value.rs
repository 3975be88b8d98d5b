//! Values as an operator writes them: text with a unit or a form of its own, checked where it is read.
//!
//! Each kind of value knows how it is written (`Written::forms`), so that an error, the reference
//! page and the JSON schema say the same. Bounds are part of the type: `Duration<60, 3600>` cannot
//! hold two hours.

mod address;
mod interface;
mod peers;
mod relay;
mod units;
mod words;

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, Error, Visitor};
use serde_json::{Map, json};

pub use address::{Endpoint, Host, PortRange};
pub use interface::InterfaceName;
pub use peers::Prefix;
pub use relay::{External, RelayEntry};
pub use units::{Bytes, Count, Duration};
pub(crate) use units::{show_bytes, show_duration};
pub use words::{OpenRelay, SecretText, Text, WebPrefix, WorkerCount};

/// A value that is written as text in the file.
pub(crate) trait Written: Sized {
    /// What the reference page calls this kind of value.
    const KIND: &'static str;

    /// How it is written, as a whole sentence with an example: the advice under every error.
    fn forms() -> String;

    /// Reads it. An error says what is wrong with the text, as the end of "`key`: ...".
    fn parse(text: &str) -> Result<Self, String>;

    /// Reads a bare whole number, where the operator forgot the quotes or the unit.
    fn parse_number(number: i64) -> Result<Self, String> {
        Err(format!("{number} is a bare number, and text in quotes is needed"))
    }

    /// Reads a bare `true` or `false`.
    fn parse_switch(switch: bool) -> Result<Self, String> {
        Err(format!("{switch} is a switch, and text in quotes is needed"))
    }

    /// The form it is shown and written in.
    fn show(&self) -> String;

    /// More to say in the JSON schema, such as a pattern or bounds.
    fn describe(_schema: &mut Map<String, serde_json::Value>) {}
}

/// Reads a [`Written`] value; the error keeps the advice behind a line break (see [`advice`]).
pub(crate) fn read<'de, T: Written, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_any(TextVisitor(PhantomData))
}

/// Joins what is wrong and what to do into the one text that passes through serde.
pub(crate) fn advice(what: impl fmt::Display, help: impl fmt::Display) -> String {
    format!("{what}\n{help}")
}

/// The JSON schema of a [`Written`] value.
pub(crate) fn schema_of<T: Written>() -> schemars::Schema {
    let mut map = Map::new();
    map.insert("type".to_owned(), json!("string"));
    map.insert("x-kind".to_owned(), json!(T::KIND));
    map.insert("x-forms".to_owned(), json!(T::forms()));
    T::describe(&mut map);
    schemars::Schema::from(map)
}

struct TextVisitor<T>(PhantomData<T>);

impl<T: Written> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::KIND)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::parse(text).map_err(|what| E::custom(advice(what, T::forms())))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        T::parse_number(number).map_err(|what| E::custom(advice(what, T::forms())))
    }

    fn visit_bool<E: Error>(self, switch: bool) -> Result<T, E> {
        T::parse_switch(switch).map_err(|what| E::custom(advice(what, T::forms())))
    }
}

/// Gives a [`Written`] type its place in files and schemas: `written!([const MAX: u64] Bytes<MAX>)`.
macro_rules! written {
    ([$($generics:tt)*] $type:ty) => {
        impl<$($generics)*> serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&$crate::value::Written::show(self))
            }
        }

        impl<'de, $($generics)*> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::value::read(from)
            }
        }

        impl<$($generics)*> schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                <Self as $crate::value::Written>::KIND.into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $crate::value::schema_of::<Self>()
            }
        }
    };
}
pub(crate) use written;
