//! Values as an operator writes them: text with a unit or a form of its own, checked where it is
//! read.
//!
//! Each kind of value knows its form (`Written::forms`), so that an error, the reference page and
//! the JSON schema agree. Bounds are part of the type: `Duration<60, 3600>` cannot hold two hours.

mod address;
mod database;
mod domain;
mod http_listen;
mod interface;
mod peers;
mod quantity;
mod relay;
mod stun_server;
mod url_path;
mod web_origin;
mod words;

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_json::{Map, Value, json};

pub use address::{Endpoint, Host, PortRange};
pub use database::Database;
pub use domain::{DomainName, HttpsUrl, ServiceUrl};
pub use http_listen::HttpListen;
pub use interface::InterfaceName;
pub use peers::Prefix;
pub use quantity::{Bytes, Count, Duration};
pub use relay::{External, RelayEntry, RelayPair};
pub use stun_server::StunServer;
pub use url_path::UrlPath;
pub use web_origin::WebOrigin;
pub use words::{OpenRelay, SecretText, Text, WebPrefix, WorkerCount};

/// A value with a form of its own in the file.
///
/// The errors of its functions complete the sentence "`key`: ..."; `None` is for a kind of TOML
/// value that it is never written as.
pub(crate) trait Written: Sized {
    /// Name of this kind of value in the reference page.
    const KIND: &'static str;

    /// A whole sentence about the form, with an example: the advice under every error.
    fn forms() -> String;

    /// Reads text.
    fn parse(text: &str) -> Result<Self, String>;

    /// Reads a bare whole number, where the operator forgot the quotes or the unit.
    fn parse_number(number: i64) -> Result<Self, String> {
        Err(format!("{number} is a bare number, and text in quotes is needed"))
    }

    /// Reads a bare `true` or `false`.
    fn parse_switch(switch: bool) -> Result<Self, String> {
        Err(format!("{switch} is a switch, and text in quotes is needed"))
    }

    /// Reads a list of texts.
    fn parse_list(_: Vec<String>) -> Option<Result<Self, String>> {
        None
    }

    /// Reads a table of texts.
    fn parse_table(_: BTreeMap<String, String>) -> Option<Result<Self, String>> {
        None
    }

    /// The value in the form it is written in, as JSON.
    fn written(&self) -> Value;

    /// Adds to the JSON schema, such as a pattern or bounds, or replaces its type.
    fn describe(_schema: &mut Map<String, Value>) {}
}

/// Reads a [`Written`] value; the error keeps the advice behind a line break (see [`advice`]).
pub(crate) fn read<'de, T: Written, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_any(WrittenVisitor(PhantomData))
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

struct WrittenVisitor<T>(PhantomData<T>);

/// Joins an error and the advice into the one text that passes through serde.
fn advice<T: Written, E: Error>(result: Result<T, String>) -> Result<T, E> {
    result.map_err(|error| E::custom(format_args!("{error}\n{}", T::forms())))
}

impl<'de, T: Written> Visitor<'de> for WrittenVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::KIND)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        advice(T::parse(text))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        advice(T::parse_number(number))
    }

    fn visit_bool<E: Error>(self, switch: bool) -> Result<T, E> {
        advice(T::parse_switch(switch))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<T, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = list.next_element()? {
            texts.push(text);
        }
        let unexpected = || Err(Error::invalid_type(Unexpected::Seq, &self));
        T::parse_list(texts).map_or_else(unexpected, advice)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut parts = BTreeMap::new();
        while let Some((name, text)) = map.next_entry()? {
            parts.insert(name, text);
        }
        let unexpected = || Err(Error::invalid_type(Unexpected::Map, &self));
        T::parse_table(parts).map_or_else(unexpected, advice)
    }
}

/// Implements serde and schemars for a [`Written`] type: `written!([const MAX: u64] Bytes<MAX>)`.
macro_rules! written {
    ([$($generics:tt)*] $type:ty) => {
        impl<$($generics)*> serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                serde::Serialize::serialize(&$crate::value::Written::written(self), to)
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
