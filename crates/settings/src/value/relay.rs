//! Relayed addresses.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::{Host, Written, written};

/// One entry of `relay.addresses`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayEntry {
    /// The address of each family that this host reaches others from.
    Auto,
    /// An address of this host, and the public address in front of it when that differs.
    Address {
        /// Address that relay sockets bind to.
        local: IpAddr,
        /// Address in responses; `None`: `local`, or `relay.external`.
        public: Option<IpAddr>,
    },
}

/// An address that relay sockets bind to, and its public one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayPair {
    /// The address of this host.
    pub local: IpAddr,
    /// The address in front of it; the same where there is no NAT.
    pub public: IpAddr,
}

/// Public addresses, in the order of the file: one, or a list of one per family; none is `"auto"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct External(pub Vec<IpAddr>);

impl External {
    /// True if the addresses are to be found.
    #[must_use]
    pub const fn is_auto(&self) -> bool {
        self.0.is_empty()
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

impl Written for RelayEntry {
    const KIND: &'static str = "relay address";

    fn forms() -> String {
        "write \"auto\", an address of this host such as \"203.0.113.7\", or, behind 1:1 NAT, \
         { local = \"10.0.0.5\", public = \"203.0.113.7\" }"
            .to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        Ok(Self::Address { local: Host::read(text)?.0, public: None })
    }

    fn parse_table(mut parts: BTreeMap<String, String>) -> Option<Result<Self, String>> {
        let mut host = |name| parts.remove(name).map(|text| Host::read(&text)).transpose();
        let (local, public) = (host("local"), host("public"));
        if let Some((other, _)) = parts.first_key_value() {
            return Some(Err(format!("\"{other}\" is not a part of a relay address")));
        }
        Some(match (local, public) {
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(None), _) => Err("the entry does not say its local address".to_owned()),
            (Ok(Some(local)), Ok(public)) => {
                Ok(Self::Address { local: local.0, public: public.map(|host| host.0) })
            }
        })
    }

    fn written(&self) -> Value {
        match self {
            Self::Address { local, public: Some(public) } => {
                json!({ "local": local, "public": public })
            }
            Self::Auto | Self::Address { .. } => json!(self.to_string()),
        }
    }

    fn describe(schema: &mut Map<String, Value>) {
        schema.remove("type");
        let table = json!({
            "type": "object",
            "properties": {
                "local": { "type": "string", "description": "The address of this host." },
                "public": { "type": "string", "description": "The address that clients are told." },
            },
            "required": ["local"],
            "additionalProperties": false,
        });
        schema.insert("anyOf".to_owned(), json!([{ "type": "string" }, table]));
    }
}
written!([] RelayEntry);

impl Written for External {
    const KIND: &'static str = "address or list of addresses";

    fn forms() -> String {
        "write \"auto\", the public address, such as \"203.0.113.7\", or a list of one per family, \
         [\"203.0.113.7\", \"2001:db8::7\"]"
            .to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self(Vec::new()));
        }
        Ok(Self(vec![Host::read(text)?.0]))
    }

    fn parse_list(texts: Vec<String>) -> Option<Result<Self, String>> {
        if texts.is_empty() {
            return Some(Err("the list has no address".to_owned()));
        }
        let hosts = texts.iter().map(|text| Host::read(text).map(|host| host.0));
        Some(hosts.collect::<Result<_, _>>().map(Self))
    }

    fn written(&self) -> Value {
        if self.is_auto() { json!("auto") } else { json!(self.0) }
    }

    fn describe(schema: &mut Map<String, Value>) {
        schema.remove("type");
        let list = json!({ "type": "array", "items": { "type": "string" } });
        schema.insert("anyOf".to_owned(), json!([{ "type": "string" }, list]));
    }
}
written!([] External);
