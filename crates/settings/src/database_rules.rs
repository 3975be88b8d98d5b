//! Rules that a database has beside the configuration: realms with their origins and limits,
//! secrets, rules for peers.

use std::collections::BTreeMap;

use turn_proto::{Origin, SharedSecret, TokenKey, UserName};
use turn_types::{Prefix, Secret};

use crate::limits::{SECRET_BYTES_MAX, SECRET_BYTES_MIN};
use crate::token_key;

/// Rules of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseRules {
    /// Rules of each realm, by its name.
    pub realms: BTreeMap<String, DatabaseRealm>,
    /// Rules for the peers of all realms.
    pub peers: DatabasePeers,
    /// True until rules for peers have been read once: no peer may be reached but those of
    /// `peers.allow`.
    pub is_unread: bool,
    /// True until secrets, token keys and realms have been read once: a credential that they may
    /// prove gets the response of an outage.
    pub is_incomplete: bool,
}

/// Rules of a realm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseRealm {
    /// Origins of web pages that choose it.
    pub origins: Vec<Origin>,
    /// Shared secrets.
    pub secrets: Vec<SharedSecret>,
    /// Keys of access tokens.
    pub token_keys: Vec<TokenKey>,
    /// As `quotas.allocations_per_user`.
    pub allocations_per_user: Option<u32>,
    /// As `quotas.allocations_total`, of this realm.
    pub allocations_total: Option<u32>,
    /// As `quotas.bytes_per_second`.
    pub bytes_per_second: Option<u64>,
    /// Rules for its peers.
    pub peers: DatabasePeers,
}

/// Rules for peers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabasePeers {
    /// Networks that may be reached.
    pub allow: Vec<Prefix>,
    /// Networks that may not be reached.
    pub deny: Vec<Prefix>,
}

/// Adds secrets that are not there yet.
pub(crate) fn add_secrets(secrets: &mut Vec<SharedSecret>, more: &[SharedSecret]) {
    for one in more {
        if secrets.iter().all(|known| known.secret != one.secret) {
            secrets.push(one.clone());
        }
    }
}

impl DatabaseRealm {
    /// Adds a shared secret. `may_be_short` is `compatibility.short_secrets`.
    ///
    /// # Errors
    /// It is too short, or too long.
    pub fn add_secret(&mut self, text: &str, may_be_short: bool) -> Result<(), String> {
        let len = text.len();
        let least = if may_be_short { 1 } else { SECRET_BYTES_MIN };
        if !(least..=SECRET_BYTES_MAX).contains(&len) {
            return Err(format!(
                "a secret has {len} bytes, and needs {least} to {SECRET_BYTES_MAX}: make another one"
            ));
        }
        let name = format!("database {}", self.secrets.len() + 1);
        let secret = Secret::new(text.as_bytes().into());
        add_secrets(&mut self.secrets, &[SharedSecret { name, secret }]);
        Ok(())
    }

    /// Adds a key of access tokens, in base64; of a longer one than its algorithm needs, coturn
    /// uses the first bytes.
    ///
    /// # Errors
    /// It is no such key.
    pub fn add_token_key(&mut self, kid: &str, key: &str, algorithm: &str) -> Result<(), String> {
        let algorithm = token_key::of_database(key, algorithm)
            .map_err(|why| format!("token key {kid}: {why}"))?;
        let kid =
            UserName::new(kid).map_err(|error| format!("token key {kid}: the kid {error}"))?;
        self.token_keys.push(TokenKey { kid: kid.as_str().into(), algorithm });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use turn_proto::TokenAlgorithm;

    use super::*;

    #[test]
    fn token_keys_are_those_of_coturn() {
        let mut realm = DatabaseRealm::default();
        // The example of coturn's documentation: 33 bytes.
        let key = "MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIK";
        realm.add_token_key("north", key, "").unwrap();
        let TokenAlgorithm::Aes256Gcm(found) = &realm.token_keys[0].algorithm else { panic!() };
        assert_eq!(found.expose(), b"12345678901234567890123456789012");
        realm.add_token_key("south", "MTIzNDU2Nzg5MDEyMzQ1Ng==", "A128GCM").unwrap();
        for (key, algorithm) in [("MTIz", ""), (key, "A256CBC"), ("!", "A128GCM")] {
            assert!(realm.add_token_key("k", key, algorithm).is_err());
        }
        // A client sends the kid as its name, which has one form.
        realm.add_token_key("nord\u{e9}e\u{a0}1", key, "").unwrap();
        realm.add_token_key("norde\u{301}e 2", key, "").unwrap();
        let kids: Vec<_> = realm.token_keys.iter().skip(2).map(|key| &*key.kid).collect();
        assert_eq!(kids, ["nord\u{e9}e 1", "nord\u{e9}e 2"]);
        assert!(realm.add_token_key("a\u{202e}b", key, "").is_err());
    }
}
