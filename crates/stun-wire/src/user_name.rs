//! Names of users (USERNAME, RFC 8489 §14.3) in prepared form.

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt;

use crate::opaque_string::{PrecisError, opaque_string};

/// Name of a user in prepared form: the OpaqueString (RFC 8265 §4.2) with at most
/// [`BYTES_MAX`](Self::BYTES_MAX) bytes. The server prepares each name on receipt, so all later
/// comparisons are byte by byte. Printable ASCII is borrowed unchanged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserName<'a>(Cow<'a, str>);

/// Reason why text cannot be the name of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserNameError {
    /// The text is empty.
    Empty,
    /// The text contains a character that RFC 8265 forbids, such as a control character.
    Forbidden,
    /// The text exceeds the maximum length of USERNAME. The value is the length in bytes.
    TooLong(usize),
}

impl fmt::Display for UserNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty"),
            Self::Forbidden => f.write_str(
                "has a character that RFC 8265 does not allow, such as a control character",
            ),
            Self::TooLong(bytes) => {
                write!(f, "has {bytes} bytes, and the most is {}", UserName::BYTES_MAX)
            }
        }
    }
}

impl core::error::Error for UserNameError {}

impl<'a> UserName<'a> {
    /// Maximum length in bytes: USERNAME is shorter than 509 bytes (RFC 8489 §14.3).
    pub const BYTES_MAX: usize = 508;

    /// Prepares a name.
    ///
    /// # Errors
    /// The text cannot be the name of a user.
    pub fn new(text: &'a str) -> Result<Self, UserNameError> {
        let form = opaque_string(text).map_err(|error| match error {
            PrecisError::Empty => UserNameError::Empty,
            PrecisError::Forbidden => UserNameError::Forbidden,
        })?;
        if form.len() > Self::BYTES_MAX {
            return Err(UserNameError::TooLong(form.len()));
        }
        Ok(Self(form))
    }

    /// Returns the prepared form of a name, for comparisons with names of users. Text that cannot
    /// be a user's name is returned unchanged, and equals no user's name.
    #[must_use]
    pub fn form_of(text: &'a str) -> Cow<'a, str> {
        Self::new(text).map_or(Cow::Borrowed(text), |name| name.0)
    }

    /// Returns the prepared name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the prepared name as owned text.
    #[must_use]
    pub fn into_string(self) -> String {
        self.0.into_owned()
    }
}

impl fmt::Display for UserName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
