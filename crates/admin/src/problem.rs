//! Errors: each has a message and advice.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use control::{ControlError, OperatorError, OperatorErrorKind};

use crate::types;

/// A refusal on its way out.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    body: types::Problem,
}

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        error: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { status, body: types::Problem { error: error.into(), hint: hint.into() } }
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
        (self.status, Json(self.body)).into_response()
    }
}
