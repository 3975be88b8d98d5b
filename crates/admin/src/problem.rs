//! Errors: each has a message and advice.

use std::time::Duration;

use axum::Json;
use axum::body::to_bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use control::{ControlError, OperatorError, OperatorErrorKind};

use crate::limits::{HEAD_BYTES_MAX, REQUEST_BYTES_MAX};
use crate::types;

/// A refusal on its way out.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    /// Time after which the same request may succeed.
    retry_after: Option<Duration>,
    body: types::Problem,
}

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        error: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        let body = types::Problem { error: error.into(), hint: hint.into() };
        Self { status, retry_after: None, body }
    }

    /// Returns true for a refusal because of too many requests.
    pub(crate) fn is_too_many(&self) -> bool {
        self.status == StatusCode::TOO_MANY_REQUESTS
    }

    /// Adds `Retry-After` (RFC 9110 §10.2.3).
    pub(crate) const fn retry_after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }

    pub(crate) fn bad_request(error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error, hint)
    }

    pub(crate) fn not_found(error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, error, hint)
    }

    pub(crate) fn stopping() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "this process of the server is stopping",
            "if another one takes its place, send the request again; otherwise start the server again",
        )
    }

    /// The workers could not be asked.
    pub(crate) fn of_workers(error: ControlError) -> Self {
        match error {
            ControlError::Unresponsive(worker) => Self::new(
                StatusCode::GATEWAY_TIMEOUT,
                format!("worker {} does not answer", worker.0),
                "the server is overloaded or stuck; look at its log and at `top -H`",
            ),
            ControlError::Stopping => Self::stopping(),
        }
    }

    /// The server refused, or failed.
    pub(crate) fn of_operator(error: OperatorError) -> Self {
        let status = match error.kind {
            OperatorErrorKind::NotFound => StatusCode::NOT_FOUND,
            OperatorErrorKind::Invalid => StatusCode::BAD_REQUEST,
            OperatorErrorKind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.error, error.hint)
    }

    pub(crate) fn long_head() -> Self {
        Self::new(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            format!("path and headers of the request have more than {HEAD_BYTES_MAX} bytes"),
            "send fewer or shorter headers: a token has a hundred bytes",
        )
    }

    pub(crate) fn timed_out() -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "the server did not get round to answering in time",
            "it is overloaded or stuck; look at its log and at `top -H`",
        )
    }
}

/// Adds to a refusal of the HTTP library the body that every refusal of this interface has.
pub(crate) async fn explained(response: Response) -> Response {
    /// Longest text of the library's that is quoted.
    const REASON_BYTES_MAX: usize = 1024;
    let status = response.status();
    let is_json = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if is_json || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let reason = to_bytes(body, REASON_BYTES_MAX).await.unwrap_or_default();
    let reason = String::from_utf8_lossy(&reason).trim().to_owned();
    let reason = if reason.is_empty() {
        status.canonical_reason().unwrap_or("refused").to_owned()
    } else {
        reason
    };
    let hint = match status {
        StatusCode::PAYLOAD_TOO_LARGE => {
            format!("send a body of at most {REQUEST_BYTES_MAX} bytes")
        }
        _ => "docs/operate/api.md describes the requests".to_owned(),
    };
    let mut problem = Problem::new(status, reason, hint).into_response();
    *problem.extensions_mut() = parts.extensions;
    for (name, value) in &parts.headers {
        let is_of_body = [header::CONTENT_TYPE, header::CONTENT_LENGTH].contains(name);
        if !is_of_body && !problem.headers().contains_key(name) {
            problem.headers_mut().insert(name.clone(), value.clone());
        }
    }
    problem
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body)).into_response();
        if let Some(time) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, time.as_secs().max(1).into());
        }
        response
    }
}
