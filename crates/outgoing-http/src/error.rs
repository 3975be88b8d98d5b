//! Errors of requests, in words for an operator.

use std::error::Error;
use std::fmt::Write as _;
use std::io;

/// Reason for a request without a usable response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The service cannot be reached, its certificate is not trusted, or the connection broke.
    #[error("{0}")]
    Unreachable(String),
    /// The service closed the connection without a byte of a response.
    #[error("{0}")]
    BrokenOff(String),
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
        Self::Unreachable(with_causes(error))
    }

    /// The same before a response.
    pub(crate) fn without_response(error: &(dyn Error + 'static)) -> Self {
        let text = with_causes(error);
        let mut next = Some(error);
        while let Some(error) = next {
            if is_closed(error) {
                return Self::BrokenOff(text);
            }
            next = error.source();
        }
        Self::Unreachable(text)
    }
}

fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

/// Returns true for a connection that was closed in place of a response.
fn is_closed(error: &(dyn Error + 'static)) -> bool {
    let by_http = error.downcast_ref::<hyper::Error>();
    let by_system = error.downcast_ref::<io::Error>().map(io::Error::kind);
    by_http.is_some_and(|error| error.is_incomplete_message() || error.is_canceled())
        || matches!(by_system, Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe))
}
