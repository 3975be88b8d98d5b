//! Callers of the interface.

use std::sync::Arc;

use axum::http::StatusCode;

use crate::problem::Problem;
use crate::role::Role;
use crate::signed::Signed;

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

    /// The realm of a request: the caller's own one, which the request may name, or the one that it
    /// names.
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
