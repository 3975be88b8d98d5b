//! Browsers: `POST /v1/sign-in` exchanges a token for a cookie, `POST /v1/sign-out` ends it,
//! `GET /v1/me` tells the rights.
//!
//! A cookie, because script cannot read it (`HttpOnly`), it survives a reload of the page, and no
//! address or history holds it. Its value is random, and not the token: a stolen one is worth
//! nothing once the token is removed, the server restarts, or some hours have passed.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};

use crate::api::access::Access;
use crate::api::guard::{cookie, cookie_name, is_of_this_site, refused_site, wrong};
use crate::holder::Holder;
use crate::limits::SIGNED_IN;
use crate::peer::Peer;
use crate::problem::Problem;
use crate::types::{Me, SignIn};

/// `POST /v1/sign-in`.
pub(crate) async fn sign_in(
    State(access): State<Arc<Access>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    if !is_of_this_site(&headers, &peer) {
        return Err(refused_site());
    }
    let advice = "send {\"token\": \"turnpike_...\"} as application/json";
    // A form of another site can send text, and no JSON.
    let is_json = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if !is_json {
        return Err(Problem::bad_request("the body is not application/json", advice));
    }
    let body = body.map_err(|rejection| Problem::bad_request(rejection.body_text(), advice))?;
    // The error would quote the body.
    let wish: SignIn = serde_json::from_slice(&body)
        .map_err(|_| Problem::bad_request("the body is not a token in JSON", advice))?;
    access.refresh().await;
    let signed_in = access.sign_in(wish.token.trim(), peer.ip());
    let (value, holder) = signed_in.map_err(|why| wrong(why, &peer))?;
    peer.make_known(&holder.name);
    tracing::info!(by = holder.name, %peer, "api: a browser signed in");
    let age = SIGNED_IN.as_secs();
    let cookie = set_cookie(&peer, &format!("{value}; Max-Age={age}"));
    Ok(([(header::SET_COOKIE, cookie)], Json(me(holder))).into_response())
}

/// `POST /v1/sign-out`.
pub(crate) async fn sign_out(
    State(access): State<Arc<Access>>,
    Extension(peer): Extension<Peer>,
    Extension(holder): Extension<Holder>,
    request: Request,
) -> Response {
    if let Some(value) = cookie(request.headers(), &peer) {
        access.sign_out(value);
    }
    let cookie = set_cookie(&peer, "; Max-Age=0");
    ([(header::SET_COOKIE, cookie)], Json(me(holder))).into_response()
}

/// `GET /v1/me`.
pub(crate) async fn show(Extension(holder): Extension<Holder>) -> Json<Me> {
    Json(me(holder))
}

fn me(holder: Holder) -> Me {
    Me { token: holder.name, role: holder.role, realm: holder.realm }
}

fn set_cookie(peer: &Peer, value: &str) -> HeaderValue {
    let secure = if matches!(peer, Peer::Tcp { is_encrypted: true, .. }) { "; Secure" } else { "" };
    let name = cookie_name(peer);
    let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}");
    // Base64 and words of our own.
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
}
