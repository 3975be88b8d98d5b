//! Where relayed addresses come from.

use std::fmt;
use std::net::IpAddr;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Host, advice};

/// One entry of `relay.addresses`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayEntry {
    /// The address of each family that this host reaches others from.
    Auto,
    /// An address of this host, and the public address in front of it when that differs.
    Address {
        /// What relay sockets bind to.
        local: IpAddr,
        /// What clients are told; `None`: the same, or what `relay.external` says.
        public: Option<IpAddr>,
    },
}

/// Where a public address is expected, in the order the operator wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct External(pub Vec<IpAddr>);

const ENTRY_FORMS: &str = "write \"auto\", an address of this host such as \"203.0.113.7\", or, behind 1:1 NAT, \
                           { local = \"10.0.0.5\", public = \"203.0.113.7\" }";
const EXTERNAL_FORMS: &str = "write the public address, such as \"203.0.113.7\", or a list of one per family, [\"203.0.113.7\", \"2001:db8::7\"]";

impl Serialize for RelayEntry {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl fmt::Display for RelayEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Address { local, public: None } => local.fmt(f),
            Self::Address { local, public: Some(public) } => write!(f, "{local} as {public}"),
        }
    }
}

impl<'de> Deserialize<'de> for RelayEntry {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct EntryVisitor;
        impl<'de> Visitor<'de> for EntryVisitor {
            type Value = RelayEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a relay address")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<RelayEntry, E> {
                match text {
                    "auto" => Ok(RelayEntry::Auto),
                    address => {
                        Ok(RelayEntry::Address { local: host(address, ENTRY_FORMS)?, public: None })
                    }
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RelayEntry, A::Error> {
                let (mut local, mut public) = (None, None);
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "local" => local = Some(host(&map.next_value::<String>()?, ENTRY_FORMS)?),
                        "public" => public = Some(host(&map.next_value::<String>()?, ENTRY_FORMS)?),
                        other => {
                            return Err(Error::custom(advice(
                                format!("\"{other}\" is not a part of a relay address"),
                                ENTRY_FORMS,
                            )));
                        }
                    }
                }
                let Some(local) = local else {
                    return Err(Error::custom(advice(
                        "the entry does not say its local address",
                        ENTRY_FORMS,
                    )));
                };
                Ok(RelayEntry::Address { local, public })
            }
        }
        from.deserialize_any(EntryVisitor)
    }
}

impl Serialize for External {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de> Deserialize<'de> for External {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ExternalVisitor;
        impl<'de> Visitor<'de> for ExternalVisitor {
            type Value = External;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a public address or a list of them")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<External, E> {
                Ok(External(vec![host(text, EXTERNAL_FORMS)?]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<External, A::Error> {
                let mut addresses = Vec::new();
                while let Some(text) = list.next_element::<String>()? {
                    addresses.push(host(&text, EXTERNAL_FORMS)?);
                }
                Ok(External(addresses))
            }
        }
        from.deserialize_any(ExternalVisitor)
    }
}

fn host<E: Error>(text: &str, forms: &str) -> Result<IpAddr, E> {
    Host::read(text).map(|host| host.0).map_err(|what| E::custom(advice(what, forms)))
}

impl schemars::JsonSchema for RelayEntry {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RelayEntry".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "anyOf": [
                { "type": "string" },
                {
                    "type": "object",
                    "properties": {
                        "local": { "type": "string", "description": "The address of this host." },
                        "public": { "type": "string", "description": "The address that clients are told." },
                    },
                    "required": ["local"],
                    "additionalProperties": false,
                },
            ],
            "x-kind": "relay address",
            "x-forms": ENTRY_FORMS,
        })
    }
}

impl schemars::JsonSchema for External {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "External".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }],
            "x-kind": "address or list of addresses",
            "x-forms": EXTERNAL_FORMS,
        })
    }
}
