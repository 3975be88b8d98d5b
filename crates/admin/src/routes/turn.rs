//! `/turn`: time-limited credentials in the form that applications already ask for
//! (draft-uberti-behave-turn-rest-00 §2).

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use control::{MintWish, OperatorRequest};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::oneshot;
use turn_proto::{GrantLimits, LimitsError, UserName};

use crate::holder::Holder;
use crate::limits::MINTED_PER_SECOND;
use crate::problem::Problem;
use crate::routes::App;
use crate::types::Minted;

/// Credentials by token, or by user of signed tokens, in the present second. Beyond [`RATES_MAX`]
/// those of past seconds go.
#[derive(Clone, Debug, Default)]
pub(crate) struct MintRates(Arc<Mutex<BTreeMap<String, Rate>>>);

/// Callers of one second that are counted: far more than the connections that are served answer in
/// one.
const RATES_MAX: usize = 10_000;

/// Replacement of bytes that are not UTF-8: different names would have one user.
const REPLACED: char = char::REPLACEMENT_CHARACTER;

/// Beginning of a second, and credentials since then.
type Rate = (Option<Instant>, u32);

impl MintRates {
    /// Counts a credential; false beyond the rate.
    fn admit(&self, token: &str, now: Instant) -> bool {
        let mut rates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |since: Instant| now.duration_since(since) >= Duration::from_secs(1);
        if rates.len() >= RATES_MAX {
            rates.retain(|_, (since, _)| !since.is_none_or(is_over));
            if rates.len() >= RATES_MAX && !rates.contains_key(token) {
                return false;
            }
        }
        let (since, count) = rates.entry(token.to_owned()).or_default();
        if since.is_none_or(is_over) {
            (*since, *count) = (Some(now), 0);
        }
        *count += 1;
        *count <= MINTED_PER_SECOND
    }
}

/// The query. An unknown parameter may be a mistyped limit, and is refused.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    /// Read where callers are identified.
    #[serde(rename = "key", alias = "api_key")]
    _token: Option<IgnoredAny>,
    service: Option<String>,
    username: Option<String>,
    realm: Option<String>,
    ttl: Option<u64>,
    allocations: Option<NonZeroU32>,
    bytes_per_second: Option<NonZeroU64>,
    lifetime: Option<NonZeroU32>,
    peers: Option<String>,
}

impl Asked {
    /// The limits of the credential.
    fn limits(&self) -> Result<GrantLimits, String> {
        let &Self { allocations, bytes_per_second, lifetime, .. } = self;
        let Some(peers) = &self.peers else {
            return Ok(GrantLimits { allocations, bytes_per_second, lifetime, peers: None });
        };
        let read: GrantLimits =
            format!("peers={peers}").parse().map_err(|error: LimitsError| error.to_string())?;
        if read != (GrantLimits { peers: read.peers.clone(), ..GrantLimits::default() }) {
            return Err(LimitsError::Peers.to_string());
        }
        Ok(GrantLimits { allocations, bytes_per_second, lifetime, ..read })
    }
}

pub(super) async fn mint(
    State(app): State<App>,
    Extension(caller): Extension<Holder>,
    query: Result<Query<Asked>, QueryRejection>,
) -> Result<Json<Minted>, Problem> {
    let advice = "ask for /turn?service=turn&username=alice";
    let Query(asked) =
        query.map_err(|rejection| Problem::bad_request(rejection.body_text(), advice))?;
    if asked.service.as_deref() != Some("turn") {
        return Err(Problem::bad_request("service is missing, or is not turn", advice));
    }
    if [&asked.username, &asked.realm].into_iter().flatten().any(|name| name.contains(REPLACED)) {
        return Err(Problem::bad_request("username or realm is not UTF-8", advice));
    }
    if !app.mint_rates.admit(&caller.name, Instant::now()) {
        return Err(Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            format!(
                "more than {MINTED_PER_SECOND} credentials a second were asked for with this token"
            ),
            "keep a credential for as long as it is valid, or use several tokens",
        )
        .retry_after(Duration::from_secs(1)));
    }
    let (reply, answer) = oneshot::channel();
    let limits = asked.limits().map_err(|error| Problem::bad_request(error, advice))?;
    let lasts = asked.ttl.map(Duration::from_secs);
    let wish = match &caller.signed {
        None => {
            let user = asked.username.unwrap_or_default();
            MintWish { realm: caller.realm_of(asked.realm)?, user, lasts, limits }
        }
        Some(signed) => {
            let other = asked.username.is_some_and(|name| UserName::form_of(&name) != signed.user);
            if other || asked.realm.is_some() {
                let error = "a signed token is for its own user in the server's own realm";
                return Err(Problem::bad_request(error, "leave username and realm out"));
            }
            let limits = limits.and(&signed.limits);
            MintWish { realm: None, user: signed.user.clone(), lasts, limits }
        }
    };
    let request = OperatorRequest::Mint { wish, reply };
    app.handle.operator(request).await.map_err(|_| Problem::stopping())?;
    let minted = answer.await.map_err(|_| Problem::stopping())?.map_err(Problem::of_operator)?;
    let control::Minted { username, password, ttl, uris } = minted;
    Ok(Json(Minted { username, password: password.expose().clone(), ttl: ttl.as_secs(), uris }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_has_a_rate_of_its_own() {
        let (rates, now) = (MintRates::default(), Instant::now());
        for _ in 0..MINTED_PER_SECOND {
            assert!(rates.admit("web", now));
        }
        assert!(!rates.admit("web", now));
        assert!(rates.admit("app", now));
        assert!(rates.admit("web", now + Duration::from_secs(1)));
    }
}
