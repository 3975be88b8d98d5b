//! Every request of the interface passes here: is it of this site, by a known caller, with the
//! rights that it needs? Changes leave a line in the log.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::sleep;

use crate::api::access::{Access, SignedRefusal, Unknown};
use crate::api::queries::Querier;
use crate::api::{cross_origin, origin};
use crate::holder::Holder;
use crate::limits::{CHANGE_TAKES, REFUSED_AFTER, REQUEST_BYTES_MAX, REQUEST_TAKES};
use crate::pace::Rightful;
use crate::peer::Peer;
use crate::problem::Problem;
use crate::role::Role;
use crate::routes::table;

/// Name of a browser's cookie; over TLS with a prefix by which browsers keep other hosts from
/// setting it.
pub(crate) const COOKIE: &str = "turnpike";
pub(crate) const COOKIE_ENCRYPTED: &str = "__Host-turnpike";

/// Time in which missing keys of signed tokens may have been fetched.
const KEYS_AGAIN_AFTER: Duration = Duration::from_mins(1);

/// Time in which wrong tokens of an address are counted.
const WRONG_TOKENS_FOR: Duration = Duration::from_mins(1);

/// Access to the interface; `None` on the control socket, where the kernel decides.
pub(crate) type Gate = Option<Arc<Access>>;

/// Lets a request pass, or refuses it.
pub(crate) async fn guard(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let Some(peer) = request.extensions().get::<Peer>().cloned() else {
        return unauthorized("this connection cannot be identified").into_response();
    };
    let page = cross_origin::of(gate.as_deref(), &request);
    let mut response = match &page {
        Some(_) if *request.method() == Method::OPTIONS => cross_origin::preflight(),
        page => serve(&gate, request, &peer, page.is_some(), next).await,
    };
    if let Some(origin) = page {
        cross_origin::permit(response.headers_mut(), origin);
    }
    response
}

/// Serves a caller with the rights for it. `other_site` is a page of another site that may ask.
async fn serve(
    gate: &Gate,
    request: Request,
    peer: &Peer,
    other_site: bool,
    next: Next,
) -> Response {
    let request = with_form_as_query(request).await;
    if let Some(access) = gate {
        access.refresh().await;
    }
    let admitted = match request {
        Ok(request) => admit(gate, &request, peer, other_site).map(|caller| (request, caller)),
        Err(problem) => Err(problem),
    };
    let (mut request, caller) = match admitted {
        Ok(admitted) => admitted,
        Err(problem) => {
            if problem.is_too_many() {
                sleep(REFUSED_AFTER).await;
            }
            return problem.into_response();
        }
    };
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let by = caller.name.clone();
    let querier = Querier::of(&caller);
    request.extensions_mut().insert(caller);
    let is_query = method == Method::GET || method == Method::HEAD;
    let turn = match gate {
        // Credentials cost little, and applications ask for many.
        Some(access) if path != table::TURN => {
            let others = if is_query { access.queries() } else { access.changes() };
            others.next(querier.clone()).await
        }
        Some(_) | None => None,
    };
    let mut response = next.run(request).await;
    // Queries and changes have their turns, and credentials a rate, for each token.
    if turn.is_some() || response.status().is_success() {
        response.extensions_mut().insert(Rightful);
    }
    if let Some(turn) = turn {
        turn.end(if !is_query && querier.is_tenant() { CHANGE_TAKES } else { REQUEST_TAKES });
    }
    if !is_query {
        let result = response.status().as_u16();
        tracing::info!(by, %peer, result, "api: {method} {path}");
    }
    response
}

/// The same request to `/turn` with the fields of its form in the query, where the token may be as
/// well. A body of another form is refused: it may have limits.
async fn with_form_as_query(request: Request) -> Result<Request, Problem> {
    if request.uri().path() != table::TURN || request.body().is_end_stream() {
        return Ok(request);
    }
    let advice = "send service=turn&username=alice in the query, or as a form (application/x-www-form-urlencoded) with POST";
    if request.method() != Method::POST || !is_form(request.headers()) {
        let error = "the body is no form";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error, advice));
    }
    let unusable = || {
        let error = format!("the form cannot be read, or has more than {REQUEST_BYTES_MAX} bytes");
        Problem::bad_request(error, advice)
    };
    let (mut parts, body) = request.into_parts();
    let body = to_bytes(body, REQUEST_BYTES_MAX).await.map_err(|_| unusable())?;
    let form = std::str::from_utf8(&body).map_err(|_| unusable())?;
    let both = match parts.uri.query() {
        Some(query) if form.is_empty() => query.to_owned(),
        Some(query) => format!("{query}&{form}"),
        None => form.to_owned(),
    };
    parts.uri = format!("{}?{both}", table::TURN).parse().map_err(|_| unusable())?;
    Ok(Request::from_parts(parts, Body::empty()))
}

/// Returns true for the media type of forms, with or without parameters (RFC 9110 §8.3.1).
fn is_form(headers: &HeaderMap) -> bool {
    const FORM: &str = "application/x-www-form-urlencoded";
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case(FORM))
}

fn admit(gate: &Gate, request: &Request, peer: &Peer, other_site: bool) -> Result<Holder, Problem> {
    let headers = request.headers();
    if !is_host(headers, peer) || !(other_site || origin::is_own(headers)) {
        return Err(refused_site());
    }
    let caller = match gate {
        None => {
            let name = "control socket".to_owned();
            Holder { name, role: Role::Admin, realm: None, signed: None }
        }
        Some(access) => identify(access, request, peer, other_site)?,
    };
    peer.make_known(&caller.name);
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let refused = match table::needed(request.method(), path) {
        Some(needed) if !caller.role.may(needed.role) => (
            format!("the token \"{}\" has the role {}", caller.name, caller.role.name()),
            format!("this needs one with the role {}", needed.role.name()),
        ),
        Some(needed)
            if !needed.is_by_realm
                && let Some(realm) = &caller.realm =>
        {
            (
                format!("the token \"{}\" is for the realm {realm} alone", caller.name),
                "this is about the whole server, and needs a token without a realm".to_owned(),
            )
        }
        // Answered by the route itself: it has no such method.
        Some(_) | None => return Ok(caller),
    };
    tracing::info!(by = caller.name, %peer, "api: {} {} refused", request.method(), request.uri().path());
    let (error, hint) = refused;
    Err(Problem::new(StatusCode::FORBIDDEN, error, hint))
}

/// Returns whether no page of another site has a part in the request.
pub(crate) fn is_of_this_site(headers: &HeaderMap, peer: &Peer) -> bool {
    is_host(headers, peer) && origin::is_own(headers)
}

/// Returns whether the request is to a name that leads here by the operator's will.
fn is_host(headers: &HeaderMap, peer: &Peer) -> bool {
    match peer {
        Peer::Tcp { is_encrypted: false, .. } => origin::is_host_of_loopback(headers),
        // The certificate is for the name.
        Peer::Tcp { is_encrypted: true, .. } => true,
        Peer::Unix(_) => origin::is_host_of_socket(headers),
    }
}

pub(crate) fn refused_site() -> Problem {
    Problem::new(
        StatusCode::FORBIDDEN,
        "the request was sent by a page of another site, or to another name of this host",
        "open the page under its own address; over loopback that is localhost or 127.0.0.1",
    )
}

fn identify(
    access: &Access,
    request: &Request,
    peer: &Peer,
    other_site: bool,
) -> Result<Holder, Problem> {
    let headers = request.headers();
    if let Some(token) = bearer(headers) {
        if request.uri().path() == table::TURN && access.takes_signed(token) {
            let signed = access.by_signed_token(token, peer.ip());
            return signed.map_err(|refusal| refused_token(&refusal, peer));
        }
        return access.by_token(token, peer.ip()).map_err(|why| wrong(why, peer));
    }
    // Applications that cannot send a header; only here, as queries may be logged on their way.
    if request.uri().path() == table::TURN
        && let Some(token) = request.uri().query().and_then(key)
    {
        return access.by_token(token, peer.ip()).map_err(|why| wrong(why, peer));
    }
    // A page of another site shows a token of its own, never that of a browser that signed in here.
    let Some(cookie) = cookie(headers, peer).filter(|_| !other_site) else {
        return Err(unauthorized("this needs a token"));
    };
    let changes = request.method() != Method::GET && request.method() != Method::HEAD;
    if changes && !origin::is_stated(headers) {
        return Err(refused_site());
    }
    access.by_cookie(cookie).map_err(|_| unauthorized("the browser is not signed in any more"))
}

/// A wrong token; the first of a source are in the log.
pub(crate) fn wrong(why: Unknown, peer: &Peer) -> Problem {
    match why {
        Unknown::Wrong => {
            // Not a warning: strangers must not push the warnings of the server out of the page.
            tracing::info!(%peer, "api: a wrong or expired token");
            unauthorized("the token is wrong or has expired")
        }
        Unknown::TooMany => Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too many wrong tokens came from this address",
            "wait a minute; `turnpike token list` shows the tokens, and `turnpike token add` makes one",
        )
        .retry_after(WRONG_TOKENS_FOR),
    }
}

/// A signed token that is not accepted; the first of a source are in the log.
fn refused_token(refusal: &SignedRefusal, peer: &Peer) -> Problem {
    match refusal {
        SignedRefusal::Denied(Unknown::Wrong, why) => {
            tracing::info!(%peer, why, "api: a signed token is refused");
            let hint = "let the application get a new one from its issuer; see signed_tokens in the configuration";
            Problem::new(
                StatusCode::UNAUTHORIZED,
                format!("the signed token is refused: {why}"),
                hint,
            )
        }
        SignedRefusal::Denied(Unknown::TooMany, _) => wrong(Unknown::TooMany, peer),
        // The log has a line about the keys.
        SignedRefusal::Unavailable(why) => Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the signed token cannot be verified now: {why}"),
            "show it again in a minute; the log of the server says why signed_tokens.keys_url gives no keys",
        )
        .retry_after(KEYS_AGAIN_AFTER),
    }
}

fn unauthorized(error: &str) -> Problem {
    let hint = "make a token with `turnpike token add NAME --role read` (for /turn: `--role mint`) on the server, and \
                send it as `Authorization: Bearer TOKEN`";
    Problem::new(StatusCode::UNAUTHORIZED, error, hint)
}

/// The token of a query.
fn key(query: &str) -> Option<&str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find_map(|(name, value)| ["key", "api_key"].contains(&name).then_some(value))
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Name of the cookie for a connection.
pub(crate) const fn cookie_name(peer: &Peer) -> &'static str {
    match peer {
        Peer::Tcp { is_encrypted: true, .. } => COOKIE_ENCRYPTED,
        Peer::Tcp { is_encrypted: false, .. } | Peer::Unix(_) => COOKIE,
    }
}

/// The value of the browser's cookie.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, peer: &Peer) -> Option<&'a str> {
    let name = cookie_name(peer);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    cookies.flat_map(|value| value.split(';')).find_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        (key == name).then_some(value)
    })
}
