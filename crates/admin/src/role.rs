//! Rights of operators.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rights of an operator; each has those before it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sees everything, and changes nothing.
    Read,
    /// Ends sessions, and has the server read its configuration again.
    Operate,
    /// Drains the server, which ends it.
    Admin,
}

impl Role {
    /// Its name: `read`, `operate` or `admin`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}
