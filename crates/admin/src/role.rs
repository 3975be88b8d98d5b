//! Rights of operators.

use std::sync::Arc;

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problem::Problem;
use crate::signed::Signed;

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

/// A caller with a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// The only realm that it sees and changes; `None` is the whole server.
    pub(crate) realm: Option<String>,
    /// By a signed token: what it proves.
    pub(crate) signed: Option<Arc<Signed>>,
}

impl Holder {
    /// Returns true if it may see and change what belongs to a realm.
    pub(crate) fn is_of(&self, realm: &str) -> bool {
        self.realm.as_deref().is_none_or(|own| own == realm)
    }

    /// The realm of a request: the caller's own one, which the request may name, or the one that it names.
    ///
    /// # Errors
    /// It names another than the caller's.
    pub(crate) fn realm_of(&self, named: Option<String>) -> Result<Option<String>, Problem> {
        match (&self.realm, named) {
            (Some(own), Some(named)) if *own != named => Err(Problem::new(
                StatusCode::FORBIDDEN,
                format!("the token \"{}\" is for the realm {own} alone", self.name),
                "leave the realm out, or use a token of the other one",
            )),
            (Some(own), _) => Ok(Some(own.clone())),
            (None, named) => Ok(named),
        }
    }
}
