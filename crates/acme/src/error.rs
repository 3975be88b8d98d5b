//! Errors of an order, in words for an operator.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use instant_acme::Error;
use outgoing_http::RootsError;

use crate::http_failure::HttpFailure;
use crate::problem::described;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum AcmeError {
    /// The authority refused a request, or its answer is not understood.
    #[error("{0}")]
    Authority(String),
    /// The authority is unreachable, or a request timed out.
    #[error("the certificate authority cannot be reached: {0}")]
    Unreachable(String),
    /// The authority takes no more requests for now: too many came from this account or name, or
    /// from all clients (429, 503).
    #[error("the certificate authority takes no more requests for now: {what}")]
    Overloaded {
        /// The authority's words.
        what: String,
        /// Time after which it takes requests again (Retry-After), if it named one.
        retry_after: Option<Duration>,
    },
    /// The authority refused the anti-replay nonce of a request several times in a row. Its own
    /// nonces may expire early, and the next order has new ones (RFC 8555 §6.5).
    #[error("{0}")]
    Nonce(String),
    /// The authority could not verify a name.
    #[error("the certificate authority could not verify {name} by {by}: {why}")]
    NotVerified {
        /// The name.
        name: String,
        /// Kind of challenge.
        by: &'static str,
        /// The authority's words.
        why: String,
    },
    /// The authority offers no challenge of the wanted kind for a name.
    #[error("the certificate authority does not offer {by} for {name}")]
    NotOffered {
        /// The name.
        name: String,
        /// Kind of challenge.
        by: &'static str,
    },
    /// The issued certificate cannot be used. The stored one remains.
    #[error("the certificate authority issued a certificate that is of no use: {0}")]
    Unusable(String),
    /// An order took longer than [`ORDER`](crate::limits::ORDER).
    #[error("the certificate authority did not finish the order in time")]
    TooSlow,
    /// A file of the store cannot be read or written.
    #[error("{}: {error}", path.display())]
    Store {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The file of authorities to trust for the connection has none.
    #[error(transparent)]
    Roots(#[from] RootsError),
    /// The certificate of a challenge could not be made.
    #[error("the answer to a challenge could not be made: {0}")]
    Answer(String),
}

impl From<Error> for AcmeError {
    fn from(error: Error) -> Self {
        if let Error::Api(problem) = &error {
            let text = format!("refused: {}", described(problem));
            let is_nonce =
                problem.r#type.as_deref().is_some_and(|kind| kind.ends_with(":badNonce"));
            return if is_nonce { Self::Nonce(text) } else { Self::Authority(text) };
        }
        if matches!(error, Error::Timeout(_)) {
            return Self::TooSlow;
        }
        let Error::Other(cause) = error else { return Self::Authority(with_causes(&error)) };
        match cause.downcast::<HttpFailure>() {
            Ok(failure) => (*failure).into(),
            Err(cause) => Self::Authority(with_causes(&*cause)),
        }
    }
}

impl From<HttpFailure> for AcmeError {
    fn from(failure: HttpFailure) -> Self {
        match failure {
            HttpFailure::Overloaded { what, retry_after } => Self::Overloaded { what, retry_after },
            HttpFailure::Unreachable(error) => Self::Unreachable(with_causes(&error)),
        }
    }
}

/// An error with its causes: that of HTTP alone says no more than that something failed.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}
