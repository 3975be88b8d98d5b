//! Failures of requests without a word on the order: the authority is overloaded, or out of
//! reach.

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{HeaderMap, RETRY_AFTER};
use instant_acme::{Error, Problem};
use outgoing_http::HttpError;

use crate::problem::described;

/// Failure of a request without a word on the order.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpFailure {
    /// The authority takes no more requests for now.
    #[error("{what}")]
    Overloaded {
        /// The authority's words.
        what: String,
        /// Value of Retry-After, if it is a number of seconds.
        retry_after: Option<Duration>,
    },
    /// The authority cannot be reached, or is too slow.
    #[error(transparent)]
    Unreachable(HttpError),
}

impl HttpFailure {
    /// The error of a request without a usable response.
    pub(crate) fn of_exchange(error: HttpError) -> Error {
        match error {
            // It is there, and its response is none of an authority.
            HttpError::TooLarge(_) | HttpError::Status(_) | HttpError::Header(_) => {
                Error::Other(Box::new(error))
            }
            HttpError::Unreachable(_)
            | HttpError::BrokenOff(_)
            | HttpError::TooSlow
            | HttpError::Tls(_) => Self::Unreachable(error).into(),
        }
    }

    /// The overload that a response tells of; `None` for any other response.
    pub(crate) fn of_response(
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Option<Self> {
        if !matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            return None;
        }
        // A proxy sends no problem document.
        let what = match serde_json::from_slice::<Problem>(body) {
            Ok(problem) => described(&problem),
            Err(_) => format!("it answers with status {}", status.as_u16()),
        };
        let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        Some(Self::Overloaded { what, retry_after: seconds.map(Duration::from_secs) })
    }
}

impl From<HttpFailure> for Error {
    fn from(failure: HttpFailure) -> Self {
        Self::Other(Box::new(failure))
    }
}
