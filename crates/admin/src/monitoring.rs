//! HTTP for monitoring. Nothing can be changed by it, and no user, client or session is named.
//!
//! | path | answer |
//! |---|---|
//! | `GET /metrics` (`http.metrics_path`) | metrics for Prometheus, see `docs/operate/metrics.md` |
//! | `GET /healthz` | [`Health`]: 200 when every worker and listener serves, otherwise 503 |
//! | `GET /readyz` | the same, and 503 while it drains or has no address to serve at |
//!
//! [`Health`]: crate::types::Health

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use control::{Handle, OffloadWatch};
use turn_types::Instant;

use crate::health::{self, Examination, ListenerTest};
use crate::metrics::{self, Texts};
use crate::monitored::Monitored;
use crate::problem::Problem;

/// The routes for monitoring. `clock` and `offload` as in [`Routes`](crate::routes::Routes);
/// `listeners` sends a request to each listener. Metrics are at `metrics_path`.
pub fn router(
    handle: Handle,
    clock: fn() -> Instant,
    offload: Option<Arc<dyn OffloadWatch>>,
    listeners: Arc<dyn ListenerTest>,
    metrics_path: &str,
) -> Router {
    let monitored = Monitored { handle, clock, offload };
    let examination = Arc::new(Examination::new(monitored.clone(), listeners));
    Router::new()
        .route("/healthz", get(health::healthy))
        .route("/readyz", get(health::ready))
        .with_state(examination)
        .route(metrics_path, get(metrics::show))
        .with_state(Arc::new(Texts::new(monitored)))
        .fallback(async || {
            let help = "see the metrics (http.metrics_path), /healthz and /readyz";
            Problem::not_found("there is nothing at this path", help)
        })
        .method_not_allowed_fallback(async || {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this path has no such method", "use GET")
        })
}
