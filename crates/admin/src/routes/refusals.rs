//! `GET /v1/refusals`: asks the workers, within their deadline.

use std::net::IpAddr;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use control::{ConfiguredKey, RefusalFilter, Refused, reasons};
use serde::Deserialize;
use turn_proto::{DeniedBy, ShareHolder, UserName};
use turn_types::Instant;

use crate::limits::{SESSIONS_DEFAULT, SESSIONS_MAX};
use crate::problem::Problem;
use crate::routes::App;
use crate::types::{Refusal, Refusals};

/// Advice where the limits of a credential forbid the peer: no rule of the configuration does.
const LIMITED_PEERS: &str = "The name of the credential, the claim of a signed token or the authorizer limits this client to \
     other peers: change it there. `peers.allow` does not widen it.";

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
    let configuration = app.handle.configuration();
    let refusals = found.iter().map(|one| {
        let refusal = refusal(one, now);
        let settings = settings(&refusal.advice, &configuration);
        Refusal { settings, ..refusal }
    });
    Ok(Json(Refusals { refusals: refusals.collect(), more }))
}

/// Settings that an advice names, with their values and places.
fn settings(advice: &str, configuration: &[ConfiguredKey]) -> Vec<String> {
    let named = advice.split('`').skip(1).step_by(2);
    let keys = named.filter_map(|name| configuration.iter().find(|key| key.key == name));
    let shown = keys.map(|ConfiguredKey { key, value, origin, .. }| {
        format!("{key} = {value} ({})", origin.as_deref().unwrap_or("default"))
    });
    shown.collect()
}

fn refusal(refused: &Refused, now: Instant) -> Refusal {
    let Refused { latest, first, last, count, other_claims } = refused;
    let five_tuple = &latest.path.five_tuple;
    let reason = reasons::of_refusal(latest.reason);
    let peer = latest.peer.as_ref();
    let rule = peer.and_then(|peer| peer.rule.as_ref());
    let is_by_credential = peer.is_some_and(|peer| peer.by == DeniedBy::Credential);
    let without_rule = if is_by_credential { "limits of the credential" } else { "built in" };
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
        rule_at: peer.map(|_| rule.map_or(without_rule, |rule| &*rule.place).to_owned()),
        share_level: latest.share.as_ref().map(|holder| holder.level().to_owned()),
        share_holder: latest.share.as_ref().map(|holder| match holder {
            ShareHolder::Network(network) => network.to_string(),
            ShareHolder::Account(name) => (**name).to_owned(),
            ShareHolder::Realm(name) => (**name).to_owned(),
        }),
        reason: reason.name.to_owned(),
        code: latest.reason.code(),
        meaning: reason.meaning.to_owned(),
        advice: if is_by_credential { LIMITED_PEERS } else { reason.advice }.to_owned(),
        settings: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use turn_proto::{ForbiddenPeer, RefusedRequest};

    use super::*;

    #[test]
    fn the_limit_that_counted_is_shown_with_its_place() {
        let key = |key: &str, value: &str, origin: Option<&str>| ConfiguredKey {
            key: key.to_owned(),
            value: value.to_owned(),
            origin: origin.map(str::to_owned),
            is_live: true,
        };
        let configuration = [
            key("quotas.allocations_per_user", "12", Some("/etc/t.toml:7")),
            key("quotas.allocations_total", "0", None),
        ];
        let of = |reason| settings(reasons::of_refusal(reason).advice, &configuration);
        let user = of(turn_proto::Refusal::UserQuota);
        assert_eq!(user, ["quotas.allocations_per_user = 12 (/etc/t.toml:7)"]);
        let total = of(turn_proto::Refusal::TotalQuota);
        assert_eq!(total, ["quotas.allocations_total = 0 (default)"]);
    }

    #[test]
    fn limits_of_a_credential_are_not_changed_by_the_configuration() {
        let of = |by| {
            let address = "198.51.100.7".parse().unwrap();
            let peer = Some(ForbiddenPeer { address, by, rule: None });
            let sample = RefusedRequest::sample(turn_proto::Refusal::PeerForbidden);
            refusal(&Refused::new(RefusedRequest { peer, ..sample }, Instant::ZERO), Instant::ZERO)
        };
        let limited = of(DeniedBy::Credential);
        assert!(!limited.advice.contains("add it to `peers.allow`"), "{limited:?}");
        assert_eq!(limited.rule_at.as_deref(), Some("limits of the credential"));
        let private = of(DeniedBy::SpecialPurpose);
        assert!(private.advice.contains("add it to `peers.allow`"), "{private:?}");
        assert_eq!(private.rule_at.as_deref(), Some("built in"));
    }
}
