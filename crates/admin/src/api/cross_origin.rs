//! Pages of other sites that ask for credentials at `/turn` with a token of their own (Cross-Origin
//! Resource Sharing, Fetch Standard §3.2). The operator names their origins; nothing else of the
//! interface is open to them.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use crate::api::access::Access;
use crate::routes::table;

/// The origin of a page that may ask, of a request to `/turn`.
pub(crate) fn of(access: Option<&Access>, request: &Request) -> Option<HeaderValue> {
    let access = access.filter(|_| request.uri().path() == table::TURN)?;
    let origin = request.headers().get(header::ORIGIN)?;
    access.takes_origin(origin.to_str().ok()?).then(|| origin.clone())
}

/// The answer to the question that a browser asks before the request.
pub(crate) fn preflight() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type"),
        (header::ACCESS_CONTROL_MAX_AGE, "7200"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// Lets the page of this origin read an answer.
pub(crate) fn permit(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
}
