//! The table of routes.
//!
//! | method and path | effect |
//! |---|---|
//! | `GET /v1/status` | the state of the server: [`Status`](crate::types::Status) |
//! | `GET /v1/sessions?user=&client=&filter=&sort=&rates=&limit=&after=` | live allocations: [`Sessions`](crate::types::Sessions) |
//! | `DELETE /v1/sessions/{id}` | ends one allocation: [`Ended`](crate::types::Ended) |
//! | `GET /v1/refusals?user=&client=&limit=` | recent refusals: [`Refusals`](crate::types::Refusals) |
//! | `POST /v1/reload` | reads the configuration again: [`Reload`](crate::types::Reload) |
//! | `POST /v1/drain` | no new allocations, stop when empty: [`Drain`](crate::types::Drain) |
//! | `DELETE /v1/drain` | new allocations again: [`DrainCancelled`](crate::types::DrainCancelled) |
//!
//! Every answer that is not 2xx is a [`Problem`](crate::types::Problem).

mod drain;
mod refusals;
mod reload;
mod sessions;
mod status;
pub(crate) mod table;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::routing::{delete, get, post};
use control::{Handle, OffloadWatch};
use turn_types::Instant;

use crate::limits::REQUEST_BYTES_MAX;
use crate::problem::Problem;
use crate::roll::Roll;

/// State of the routes.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) handle: Handle,
    /// Reads the clock that allocations are dated by.
    pub(crate) clock: fn() -> Instant,
    /// State of the kernel path, where there is one.
    pub(crate) offload: Option<Arc<dyn OffloadWatch>>,
    /// The sessions as they were last gathered.
    pub(crate) roll: Arc<Roll>,
}

/// The operations of version 1 on a running server.
#[derive(Clone)]
pub struct Routes {
    app: App,
}

impl Routes {
    /// `clock` is the clock that workers date allocations by; `offload` is the state of the kernel path, where one
    /// runs.
    #[must_use]
    pub fn new(
        handle: Handle,
        clock: fn() -> Instant,
        offload: Option<Arc<dyn OffloadWatch>>,
    ) -> Self {
        Self { app: App { handle, clock, offload, roll: Arc::default() } }
    }

    /// The routes alone.
    pub(crate) fn operations(&self) -> Router {
        Router::new()
            .route("/v1/status", get(status::show))
            .route("/v1/sessions", get(sessions::list))
            .route("/v1/sessions/{id}", delete(sessions::end))
            .route("/v1/refusals", get(refusals::list))
            .route("/v1/reload", post(reload::reload))
            .route("/v1/drain", post(drain::drain).delete(drain::cancel))
            .fallback(async || {
                Problem::not_found("there is nothing at this path", "see the routes under /v1")
            })
            .method_not_allowed_fallback(async || {
                Problem::new(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "this path has no such method",
                    table::summary(),
                )
            })
            .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
            .with_state(self.app.clone())
    }
}
