//! The table of routes.
//!
//! The operations, with the rights and forms of each, stand in `routes/table.rs`.
//!
//! Every answer that is not 2xx is a [`Problem`](crate::types::Problem).

pub(crate) mod accounts;
mod drain;
mod refusals;
mod reload;
mod revocations;
mod sessions;
mod status;
pub(crate) mod table;
mod traces;
mod turn;
mod views;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::routing::{get, post};
use control::{Handle, OffloadWatch, RecentLog};
use turn_types::Instant;

use crate::accounts::Accounts;
use crate::limits::REQUEST_BYTES_MAX;
use crate::live::Live;
use crate::monitored::Monitored;
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
    /// The overview for those that watch.
    pub(crate) live: Live,
    /// Recent warnings and errors of the log.
    pub(crate) log: RecentLog,
    /// Credentials that tokens asked for.
    pub(crate) mint_rates: turn::MintRates,
    /// Users of the database, where the server has one.
    pub(crate) accounts: Option<accounts::Database>,
}

impl App {
    pub(crate) fn monitored(&self) -> Monitored {
        let Self { handle, clock, offload, .. } = self;
        Monitored { handle: handle.clone(), clock: *clock, offload: offload.clone() }
    }
}

/// The operations of version 1 on a running server.
#[derive(Clone)]
pub struct Routes {
    app: App,
}

impl Routes {
    /// `clock` is the clock that workers date allocations by; `offload` is the state of the kernel
    /// path, where one runs; `log` has its recent warnings.
    #[must_use]
    pub fn new(
        handle: Handle,
        clock: fn() -> Instant,
        offload: Option<Arc<dyn OffloadWatch>>,
        log: RecentLog,
    ) -> Self {
        let (roll, live) = (Arc::default(), Live::default());
        Self {
            app: App {
                handle,
                clock,
                offload,
                roll,
                live,
                log,
                mint_rates: turn::MintRates::default(),
                accounts: None,
            },
        }
    }

    /// The same with users of a database.
    #[must_use]
    pub fn with_accounts(self, accounts: Arc<dyn Accounts>) -> Self {
        let accounts = Some(accounts::Database::new(accounts));
        Self { app: App { accounts, ..self.app } }
    }

    /// The routes alone; within a runtime.
    pub(crate) fn operations(&self) -> Router {
        self.app.live.start(&self.app.monitored());
        Router::new()
            .route("/v1/status", get(status::show))
            .route("/v1/sessions", get(sessions::list))
            .route("/v1/sessions/{id}", get(views::session).delete(sessions::end))
            .route("/v1/overview", get(views::overview))
            .route("/v1/history", get(views::history))
            .route("/v1/events", get(views::events))
            .route("/v1/users", get(views::users))
            .route("/v1/configuration", get(views::configuration))
            .route("/v1/warnings", get(views::warnings))
            .route("/v1/refusals", get(refusals::list))
            .route("/v1/reload", post(reload::reload))
            .route("/v1/traces", get(traces::list).post(traces::add).delete(traces::clear))
            .route(table::TURN, get(turn::mint).post(turn::mint))
            .route(
                "/v1/revocations",
                get(revocations::list).post(revocations::revoke).delete(revocations::restore),
            )
            .route("/v1/accounts", get(accounts::list).post(accounts::add).delete(accounts::delete))
            .route("/v1/accounts/forget", post(accounts::forget))
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
