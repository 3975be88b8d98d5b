//! Rights of operators.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rights of the holder of a token; each has those before it, but only `admin` those of `mint`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Asks for time-limited credentials (`/turn`), and nothing else: for applications.
    Mint,
    /// Sees everything, and changes nothing.
    Read,
    /// Ends sessions, and has the server read its configuration again.
    Operate,
    /// Drains the server, which ends it, and changes users of the database.
    Admin,
}

impl Role {
    /// Returns true if it has the rights that an operation needs.
    #[must_use]
    pub fn may(self, needed: Self) -> bool {
        match needed {
            Self::Mint => matches!(self, Self::Mint | Self::Admin),
            Self::Read | Self::Operate | Self::Admin => self >= needed,
        }
    }

    /// Its name: `mint`, `read`, `operate` or `admin`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mint => "mint",
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}
