//! Errors: each has a message and advice.

use std::time::Duration;

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use control::{ControlError, OperatorError, OperatorErrorKind};

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

    pub(crate) fn timed_out() -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "the server did not get round to answering in time",
            "it is overloaded or stuck; look at its log and at `top -H`",
        )
    }
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
