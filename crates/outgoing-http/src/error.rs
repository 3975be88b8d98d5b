//! Errors of requests, in words for an operator.

use std::error::Error;
use std::fmt::Write as _;

/// Reason for a request without a usable response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The service cannot be reached, its certificate is not trusted, or the connection broke.
    #[error("{0}")]
    Unreachable(String),
    /// No complete response before the deadline.
    #[error("no complete response in time")]
    TooSlow,
    /// The body of the response is larger than the bound.
    #[error("the response is larger than {0} bytes")]
    TooLarge(usize),
    /// A status that the caller cannot use.
    #[error("the response has status {0}")]
    Status(u16),
    /// A header of the request has a character that HTTP does not permit.
    #[error("the header {0} has characters that HTTP does not permit")]
    Header(String),
    /// The TLS library refused its configuration.
    #[error("TLS: {0}")]
    Tls(String),
}

impl HttpError {
    /// An error of the connection, with its causes: hyper's own text says no more than that
    /// something failed.
    pub(crate) fn unreachable(error: &dyn Error) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let _ = write!(text, ": {error}");
            cause = error.source();
        }
        Self::Unreachable(text)
    }
}
