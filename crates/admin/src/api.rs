//! The interface over the network: the routes of the control socket, for holders of tokens.
//!
//! ```text
//! tokens.rs (their file) -> access.rs (callers) -> guard.rs (each request) -> the routes
//!                                  origin.rs (other sites) ^    sign_in.rs (browsers)
//!                            cross_origin.rs (pages of them that may ask for credentials) ^
//!                                             queries.rs (a few of each holder at a time) ^
//! ```

mod access;
mod cross_origin;
mod guard;
mod origin;
mod queries;
mod sign_in;
mod tokens;

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderValue, header};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};

pub use self::access::Access;
pub use self::tokens::{Rights, Token, TokenError, TokenFile};
pub use crate::signed::{Signed, SignedTokenError, SignedTokens};

use crate::limits::REQUEST_BYTES_MAX;
use crate::openapi;
use crate::page;
use crate::problem;
use crate::routes::Routes;

/// The routes of the control socket: its callers are known to the kernel, and may do everything.
pub fn control(routes: &Routes) -> Router {
    with_document(routes.operations())
        .route_layer(from_fn_with_state(None::<Arc<Access>>, guard::guard))
        .layer(map_response(problem::explained))
}

/// The routes for the network: each asks for a token.
pub fn router(routes: &Routes, access: Access) -> Router {
    let access = Arc::new(access);
    let known = Router::new()
        .route("/v1/me", get(sign_in::show))
        .route("/v1/sign-out", post(sign_in::sign_out))
        .with_state(Arc::clone(&access))
        .merge(with_document(routes.operations()))
        .route_layer(from_fn_with_state(Some(Arc::clone(&access)), guard::guard));
    Router::new()
        .route("/v1/sign-in", post(sign_in::sign_in))
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(access)
        .merge(known)
        .merge(page::router())
        .layer(map_response(problem::explained))
        .layer(map_response(harden))
}

fn with_document(operations: Router) -> Router {
    operations.route("/v1/openapi.json", get(async || Json(&*openapi::DOCUMENT)))
}

/// Headers of every answer: nothing is kept, framed or taken for another type.
async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}
