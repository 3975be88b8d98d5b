//! `GET /v1/refusals`: asks the workers, within their deadline.

use std::net::IpAddr;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use control::{RefusalFilter, Refused, reasons};
use serde::Deserialize;
use turn_proto::{ShareHolder, UserName};
use turn_types::Instant;

use crate::limits::{SESSIONS_DEFAULT, SESSIONS_MAX};
use crate::problem::Problem;
use crate::routes::App;
use crate::types::{Refusal, Refusals};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    user: Option<String>,
    client: Option<IpAddr>,
    limit: Option<usize>,
}

pub(super) async fn list(
    State(app): State<App>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Refusals>, Problem> {
    let Query(which) = which.map_err(|rejection| {
        let hint = "the parameters are user, client (an IP address) and limit";
        Problem::bad_request(rejection.body_text(), hint)
    })?;
    let limit = which.limit.unwrap_or(SESSIONS_DEFAULT);
    if !(1..=SESSIONS_MAX).contains(&limit) {
        let error = format!("limit is {limit}, and must be from 1 to {SESSIONS_MAX}");
        return Err(Problem::bad_request(error, "ask for one user or client to see fewer"));
    }
    let user = which.user.map(|name| UserName::form_of(&name).into_owned());
    let filter = RefusalFilter { user, client: which.client };
    // One more than asked for tells whether there are more.
    let found = app.handle.workers.refusals(filter, limit + 1).await;
    let mut found = found.map_err(Problem::of_workers)?;
    let more = found.len() > limit;
    found.truncate(limit);
    let now = (app.clock)();
    Ok(Json(Refusals { refusals: found.iter().map(|one| refusal(one, now)).collect(), more }))
}

fn refusal(refused: &Refused, now: Instant) -> Refusal {
    let Refused { latest, first, last, count, other_claims } = refused;
    let five_tuple = &latest.path.five_tuple;
    let reason = reasons::of_refusal(latest.reason);
    let peer = latest.peer.as_ref();
    let rule = peer.and_then(|peer| peer.rule.as_ref());
    Refusal {
        seconds_ago: now.saturating_since(*last).as_secs(),
        first_seconds_ago: now.saturating_since(*first).as_secs(),
        count: *count,
        client: five_tuple.client.to_string(),
        transport: five_tuple.transport.label().to_owned(),
        server: five_tuple.server.to_string(),
        method: latest.method.name().unwrap_or("unknown").to_owned(),
        user: latest.user.as_deref().map(str::to_owned),
        claimed_user: latest.claimed.as_deref().map(str::to_owned),
        other_claimed_users: *other_claims,
        peer: peer.map(|peer| peer.address.to_string()),
        denied_by: peer.map(|peer| peer.by.label().to_owned()),
        rule: rule.map(|rule| rule.prefix.to_string()),
        rule_at: peer.map(|_| rule.map_or("built in", |rule| &*rule.place).to_owned()),
        share_level: latest.share.as_ref().map(|holder| holder.level().to_owned()),
        share_holder: latest.share.as_ref().map(|holder| match holder {
            ShareHolder::Network(network) => network.to_string(),
            ShareHolder::Account(name) => (**name).to_owned(),
            ShareHolder::Realm(name) => (**name).to_owned(),
        }),
        reason: reason.name.to_owned(),
        code: latest.reason.code(),
        meaning: reason.meaning.to_owned(),
        advice: reason.advice.to_owned(),
    }
}
