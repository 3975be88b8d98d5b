//! Environment variables that override keys: `TURNPIKE_RELAY__PORTS` is `relay.ports`.
//!
//! A variable is the key in capitals, with two underscores between table and key. Another variable
//! that begins with `TURNPIKE_` is an error if its name is near a key's: a setting that silently
//! does nothing is worse. One of a wrapper, of a name that no key has, is a warning. Variables that
//! Kubernetes makes for a service called "turnpike" (or "turnpike-...") are ignored, known by name
//! and value: see [`is_service_link`].

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::coturn::coturns;
use crate::error::{Errors, Place};
use crate::keys::{Key, VARIABLE_PREFIX, key, keys};
use crate::suggest::nearest;

/// The `TURNPIKE_` variables of a process.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// No variables: the file alone counts.
    #[must_use]
    pub const fn empty() -> Self {
        Self(BTreeMap::new())
    }

    pub(crate) fn of(&self, key: &Key) -> Option<&str> {
        self.0.get(&key.variable()).map(String::as_str)
    }

    /// Refuses variables with names near those of keys. Returns the names of others that are
    /// neither keys nor Kubernetes'.
    pub(crate) fn check_names(&self, errors: &mut Errors) -> Vec<String> {
        let mut unused = Vec::new();
        for (name, value) in &self.0 {
            if keys().any(|key| key.variable() == *name) || is_service_link(name, value) {
                continue;
            }
            let place = Place::Environment(name.clone());
            match meant(name) {
                Some(key) => {
                    errors.add(place, "", "there is no such key", format!("did you mean {key}?"));
                }
                None => unused.push(name.clone()),
            }
        }
        unused
    }
}

/// The variable that a misspelt name probably means. Underscores are not counted, since there are
/// two between table and key; coturn's options lead to the keys that replace them.
fn meant(name: &str) -> Option<String> {
    let rest = name.strip_prefix(VARIABLE_PREFIX)?;
    let theirs = rest.to_lowercase().replace('_', "-");
    if let Some(ours) = coturns(&theirs).and_then(key) {
        return Some(ours.variable());
    }
    let plain = |text: &str| text.to_uppercase().replace(['_', '.'], "");
    let wanted = plain(rest);
    let last = |key: &Key| plain(key.path.rsplit('.').next().unwrap_or_default());
    let places = PLACES.iter().map(|place| (*place).to_owned());
    let all: Vec<String> = keys().map(Key::variable).chain(places).collect();
    let exact = all.iter().find(|variable| plain(&variable[VARIABLE_PREFIX.len()..]) == wanted);
    let short = || keys().find(|key| last(key) == wanted).map(Key::variable);
    let near = || nearest(name, all.iter().map(String::as_str)).map(str::to_owned);
    let lasts: Vec<(String, String)> = keys().map(|key| (last(key), key.variable())).collect();
    let near_short = || {
        let near = nearest(&wanted, lasts.iter().map(|(last, _)| last.as_str()))?;
        lasts.iter().find(|(last, _)| last == near).map(|(_, variable)| variable.clone())
    };
    let begun = |variable: &&String| plain(&variable[VARIABLE_PREFIX.len()..]).starts_with(&wanted);
    let begun = || all.iter().find(begun).filter(|_| wanted.len() >= BEGUN_MIN).cloned();
    exact.cloned().or_else(short).or_else(near).or_else(begun).or_else(near_short)
}

/// Letters that identify a key.
const BEGUN_MIN: usize = 4;

/// Variables that are not keys.
const PLACES: [&str; 2] = ["TURNPIKE_CONFIG", "TURNPIKE_DATA"];

/// Returns whether a variable is one that Kubernetes makes for a service whose name is "turnpike"
/// or begins with "turnpike-": `..._SERVICE_HOST` (an address), `..._SERVICE_PORT` and
/// `..._SERVICE_PORT_<NAME>` (a port), `..._PORT` and `..._PORT_<N>_<PROTOCOL>`
/// (`udp://10.0.0.1:3478`), and of the latter `_PROTO`, `_PORT` and `_ADDR`. The value has to fit,
/// so that a slip such as `TURNPIKE_LISTENING_PORT=3478` is still one.
fn is_service_link(name: &str, value: &str) -> bool {
    let is_port = || value.parse::<u16>().is_ok();
    let is_address = || value.parse::<IpAddr>().is_ok();
    let is_protocol = |text: &str| matches!(text, "tcp" | "udp" | "sctp");
    let is_url = || {
        let at = value.split_once("://").filter(|(protocol, _)| is_protocol(protocol));
        at.is_some_and(|(_, at)| at.parse::<SocketAddr>().is_ok())
    };
    if name.ends_with("_SERVICE_HOST") {
        return is_address();
    }
    if name.ends_with("_SERVICE_PORT") || name.contains("_SERVICE_PORT_") {
        return is_port();
    }
    if name.ends_with("_PORT") && is_url() {
        return true;
    }
    // ..._PORT_<N>_<PROTOCOL>, and a part of it.
    let Some((_, numbered)) = name.rsplit_once("_PORT_") else { return false };
    let mut words = numbered.split('_');
    let number = words.next().is_some_and(|number| number.parse::<u16>().is_ok());
    let protocol = words.next().is_some_and(|word| is_protocol(&word.to_lowercase()));
    let fits = match words.next() {
        None => is_url(),
        Some("PROTO") => is_protocol(value),
        Some("ADDR") => is_address(),
        Some("PORT") => is_port(),
        Some(_) => false,
    };
    number && protocol && fits && words.next().is_none()
}

impl FromIterator<(String, String)> for Environment {
    /// The variables of the server among all variables (`std::env::vars()`).
    fn from_iter<I: IntoIterator<Item = (String, String)>>(all: I) -> Self {
        Self(all.into_iter().filter(|(name, _)| name.starts_with(VARIABLE_PREFIX)).collect())
    }
}

impl fmt::Debug for Environment {
    /// Names alone: there may be secrets among the values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_variables_lead_to_keys() {
        for (slip, ours) in [
            ("TURNPIKE_SECRET", "TURNPIKE_AUTH__SECRET"),
            ("TURNPIKE_AUTH_SECRET", "TURNPIKE_AUTH__SECRET"),
            ("TURNPIKE_EXTERNAL_IP", "TURNPIKE_RELAY__EXTERNAL"),
            ("TURNPIKE_LISTENING_PORT", "TURNPIKE_LISTEN"),
            ("TURNPIKE_TLS_CERT", "TURNPIKE_TLS__CERTIFICATES"),
            ("TURNPIKE_CONFG", "TURNPIKE_CONFIG"),
            ("TURNPIKE_RELAM", "TURNPIKE_REALM"),
        ] {
            assert_eq!(meant(slip).as_deref(), Some(ours), "{slip}");
        }
        assert_eq!(meant("TURNPIKE_XYZZY"), None);
    }

    #[test]
    fn links_of_services_are_known_by_name_and_value() {
        for (name, value) in [
            ("TURNPIKE_SERVICE_HOST", "10.0.0.1"),
            ("TURNPIKE_UDP_SERVICE_HOST", "fd00::1"),
            ("TURNPIKE_SERVICE_PORT", "3478"),
            ("TURNPIKE_SERVICE_PORT_TURN_UDP", "3478"),
            ("TURNPIKE_PORT", "udp://10.0.0.1:3478"),
            ("TURNPIKE_PORT", "tcp://[fd00::1]:3478"),
            ("TURNPIKE_PORT_3478_UDP", "udp://10.0.0.1:3478"),
            ("TURNPIKE_PORT_3478_UDP_PROTO", "udp"),
            ("TURNPIKE_PORT_3478_UDP_PORT", "3478"),
            ("TURNPIKE_PORT_3478_UDP_ADDR", "10.0.0.1"),
        ] {
            assert!(is_service_link(name, value), "{name}={value}");
        }
        for (name, value) in [
            ("TURNPIKE_PORT", "3478"),
            ("TURNPIKE_LISTENING_PORT", "3478"),
            ("TURNPIKE_SERVICE_HOST", "turn.example.org"),
            ("TURNPIKE_RELAY__PORT", "50000-60000"),
            ("TURNPIKE_PORT_3478_UDP", "3478"),
            ("TURNPIKE_PORT_3478_UDP_ADDR", "3478"),
            ("TURNPIKE_PORT_MAX_UDP", "udp://10.0.0.1:3478"),
            ("TURNPIKE_PORT_3478_UDP_PROTO_X", "udp"),
        ] {
            assert!(!is_service_link(name, value), "{name}={value}");
        }
    }
}
