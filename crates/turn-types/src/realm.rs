//! Name of a realm.

use alloc::sync::Arc;
use core::borrow::Borrow;
use core::fmt;
use core::ops::Deref;

/// Name of a realm (REALM, RFC 8489 §9.2.1), used to look up users and quotas. At most 127 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Realm(Arc<str>);

impl From<&str> for Realm {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl From<Realm> for Arc<str> {
    fn from(realm: Realm) -> Self {
        realm.0
    }
}

/// A realm compares and hashes like its text.
impl Borrow<str> for Realm {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Deref for Realm {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Realm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
