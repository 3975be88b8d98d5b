//! Time-limited credentials.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Answer to `/turn`: a time-limited credential (draft-uberti-behave-turn-rest-00 §2.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Minted {
    /// The name, with the expiry in it.
    pub username: String,
    /// The password.
    pub password: String,
    /// Seconds for which it is valid.
    pub ttl: u64,
    /// URIs of the server.
    pub uris: Vec<String>,
}
