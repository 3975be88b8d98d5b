//! The views of the page: overview, one session, users, configuration, recent log.

use std::time::UNIX_EPOCH;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use control::RefusalFilter;
use control::reasons::{self, Reason};
use serde::Deserialize;
use turn_proto::{AllocationRecord, SessionHistory};
use turn_types::Instant;

use super::sessions::allocation_id;
use crate::holder::Holder;
use crate::limits::{MOMENTS_MAX, SESSIONS_DEFAULT, SESSIONS_MAX};
use crate::problem::Problem;
use crate::routes::App;
use crate::types::{
    ActiveUser, ActiveUsers, Configuration, ConfiguredKey, LoggedWarning, Moment, Overview,
    Session, SessionDetails, SessionPeers, SessionReason, TrafficHistory, Warnings,
};

/// `GET /v1/overview`.
pub(super) async fn overview(State(app): State<App>) -> Json<Overview> {
    Json(app.live.now(&app.monitored()))
}

/// `GET /v1/history`.
pub(super) async fn history(State(app): State<App>) -> Json<TrafficHistory> {
    Json(app.live.hour())
}

/// `GET /v1/events`.
pub(super) async fn events(
    State(app): State<App>,
    Extension(caller): Extension<Holder>,
) -> Result<Response, Problem> {
    let stream = app.live.watch(&caller.name).ok_or_else(|| {
        Problem::new(
            axum::http::StatusCode::SERVICE_UNAVAILABLE,
            "too many viewers watch already",
            "close a page that is not needed, or ask for /v1/overview",
        )
    })?;
    let kind = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((kind, axum::body::Body::new(stream)).into_response())
}

/// `GET /v1/sessions/{id}`.
pub(super) async fn session(
    State(app): State<App>,
    Extension(caller): Extension<Holder>,
    Path(id): Path<String>,
) -> Result<Json<SessionDetails>, Problem> {
    let id = allocation_id(&id)?;
    let workers = &app.handle.workers;
    let found = workers.session(id).await.map_err(Problem::of_workers)?;
    let found = found.filter(|(session, _)| caller.is_of(&session.record.realm));
    let (live, peers) = found.ok_or_else(|| {
        Problem::not_found(
            format!("there is no live session {id}"),
            "it may have ended already; the log has its reason",
        )
    })?;
    let rates = app.roll.take_with_rates(workers).await.map_err(Problem::of_workers)?.rates(id);
    let now = (app.clock)();
    let session = Session { rates, ..Session::of(&live, now) };
    let peers = SessionPeers::of(&peers, now);
    let mut timeline = timeline(&app, &live, &session, now).await?;
    if caller.realm.is_some() {
        // What came from its address before it may be of another realm.
        timeline.retain(|moment| moment.seconds_ago <= session.age_seconds);
    }
    Ok(Json(SessionDetails {
        path: path(&app, &session),
        session,
        permissions: peers.permissions,
        channels: peers.channels,
        refusals: counted(&live.record.history.refusals, reasons::of_refusal),
        drops: counted(&live.record.history.drops, reasons::of_drop),
        connected_peers: peers.connected_peers,
        timeline,
    }))
}

/// Counts of a session by reason.
fn counted<R: Copy>(counts: &[(R, u64)], reason: impl Fn(R) -> Reason) -> Vec<SessionReason> {
    let with_meaning = |&(one, count): &(R, u64)| {
        let Reason { name, meaning, advice, .. } = reason(one);
        SessionReason {
            reason: name.to_owned(),
            count,
            meaning: meaning.to_owned(),
            advice: advice.to_owned(),
        }
    };
    counts.iter().map(with_meaning).collect()
}

/// The path of a session's data, and the reason for it.
fn path(app: &App, session: &Session) -> String {
    let offload = &session.offload;
    let why = match offload.reason.as_deref() {
        None => {
            let interfaces = match &app.offload {
                Some(watch) => watch.interfaces(),
                None => app.handle.info().offload.interfaces.clone(),
            };
            let hooks: Vec<_> = interfaces
                .into_iter()
                .filter_map(|one| Some(format!("{} by {}", one.name, one.hook?)))
                .collect();
            return kernel_path(session, &hooks.join(", "));
        }
        Some("off") => "there is no kernel path on this server",
        Some("no_channel") => "no channel is bound, and the kernel relays channels alone",
        Some("silent") => {
            "its channels had no data, or none for ten seconds while slots were scarce"
        }
        Some("share") => {
            "the kernel path is nearly full, and the client, its network, account or realm has its \
             share (offload.flows)"
        }
        Some("full") => "the kernel path has as many channels as it may (offload.flows)",
        Some("transport") => "the client does not come over UDP",
        Some(_) => "the kernel refused its channels",
    };
    format!("Sockets relay everything: {why}.")
}

/// The routes of a session in the kernel, and their use: a route alone relays nothing.
fn kernel_path(session: &Session, hooks: &str) -> String {
    let Session { offload, channels, to_peers, to_client, .. } = session;
    let routes = format!("The kernel has routes for {} of {channels} channels", offload.channels);
    if offload.packets == 0 {
        return format!(
            "{routes} ({hooks}), and has relayed no packet by them yet: sockets relay all. It begins when it has seen \
             that the host's rules forward the packets; `turnpike status` has the reasons for packets left to sockets."
        );
    }
    let all = to_peers.packets + to_client.packets;
    format!("{routes} ({hooks}), and has relayed {} of {all} packets by them.", offload.packets)
}

/// Known events of a session's past: its refusals, served requests, and the dates of its record.
async fn timeline(
    app: &App,
    live: &control::Session,
    session: &Session,
    now: Instant,
) -> Result<Vec<Moment>, Problem> {
    let five_tuple = &live.record.five_tuple;
    let filter = RefusalFilter { client: Some(five_tuple.client.ip()), user: None };
    let refused = app.handle.workers.refusals(filter, MOMENTS_MAX).await;
    let mut moments: Vec<Moment> = refused
        .map_err(Problem::of_workers)?
        .iter()
        .filter(|one| one.latest.path.five_tuple.client == five_tuple.client)
        .map(|one| {
            let reason = reasons::of_refusal(one.latest.reason);
            let method = one.latest.method.name().unwrap_or("a request");
            let times =
                if one.count == 1 { String::new() } else { format!(" {} times", one.count) };
            let peer = one.latest.peer.as_ref().map(|peer| format!(" for peer {}", peer.address));
            let peer = peer.unwrap_or_default();
            let code = one.latest.reason.code();
            let mut text = format!("{method}{peer} refused{times} with {code}, {}", reason.name);
            // The session's own refusals have their meaning beside it; those before its Allocate
            // have it only here.
            let is_told =
                live.record.history.refusals.iter().any(|(own, _)| *own == one.latest.reason);
            if is_told {
                text.push('.');
            } else {
                text.push_str(format!(": {} {}", reason.meaning, reason.advice).trim_end());
            }
            let seconds_ago = now.saturating_since(one.last).as_secs();
            Moment { seconds_ago, text }
        })
        .collect();
    if let Some(seconds_ago) = session.offload.last_seen_seconds_ago {
        let text = "The kernel relayed its last packet.".to_owned();
        moments.push(Moment { seconds_ago, text });
    }
    moments.extend(served(&live.record, now));
    let text = format!(
        "Allocated {} for {} over {}.",
        session.relayed.join(" and "),
        session.client,
        session.transport
    );
    moments.push(Moment { seconds_ago: session.age_seconds, text });
    moments.sort_by_key(|moment| moment.seconds_ago);
    Ok(moments)
}

/// The latest of each kind of request that keeps a session alive.
fn served(record: &AllocationRecord, now: Instant) -> impl Iterator<Item = Moment> {
    let SessionHistory { refreshes, permissions, channels, .. } = &record.history;
    let kinds = [
        (refreshes, "Refresh", "keeps the allocation"),
        (permissions, "CreatePermission", "lets peers send"),
        (channels, "ChannelBind", "binds channels"),
    ];
    kinds.into_iter().filter_map(move |(served, method, effect)| {
        let served = served.as_ref()?;
        // Its time is in whole seconds, and no earlier than the Allocate.
        let seconds_ago = now.saturating_since(served.latest.max(record.created)).as_secs();
        let text = match served.count {
            1 => format!("{method}, which {effect}, was served once."),
            count => format!("{method}, which {effect}, was served for the last of {count} times."),
        };
        Some(Moment { seconds_ago, text })
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    filter: Option<String>,
    sort: Option<String>,
    limit: Option<usize>,
}

/// The rows that a request asks for, at most; `hint` is for a number that is none.
pub(super) fn row_limit(asked: Option<usize>, hint: &'static str) -> Result<usize, Problem> {
    let limit = asked.unwrap_or(SESSIONS_DEFAULT);
    if (1..=SESSIONS_MAX).contains(&limit) {
        Ok(limit)
    } else {
        Err(Problem::bad_request(format!("limit is {limit}"), hint))
    }
}

/// `GET /v1/users`.
pub(super) async fn users(
    State(app): State<App>,
    Extension(caller): Extension<Holder>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<ActiveUsers>, Problem> {
    let hint =
        "the parameters are filter, sort (rate, sessions, traffic or user) and limit (1 to 1000)";
    let Query(which) =
        which.map_err(|rejection| Problem::bad_request(rejection.body_text(), hint))?;
    let limit = row_limit(which.limit, hint)?;
    let part = which.filter.unwrap_or_default().to_lowercase();
    let gathered = app.roll.take_with_rates(&app.handle.workers).await;
    let gathered = gathered.map_err(Problem::of_workers)?;
    let users = gathered.users(caller.realm.as_deref()).iter();
    let mut users: Vec<&ActiveUser> = users
        .filter(|user| part.is_empty() || user.account.to_lowercase().contains(&part))
        .collect();
    users.sort_by(|one, other| (&one.account, &one.realm).cmp(&(&other.account, &other.realm)));
    match which.sort.as_deref().unwrap_or("rate") {
        "rate" => users.sort_by_key(|user| {
            let rates = &user.rates;
            std::cmp::Reverse(rates.to_peers.bits_per_second + rates.to_client.bits_per_second)
        }),
        "sessions" => users.sort_by_key(|user| std::cmp::Reverse(user.sessions)),
        "traffic" => {
            users.sort_by_key(|user| std::cmp::Reverse(user.to_peers.bytes + user.to_client.bytes));
        }
        "user" => {} // as they are
        other => {
            return Err(Problem::bad_request(
                format!("\"{other}\" is not an order of users"),
                hint,
            ));
        }
    }
    let (total, more) = (users.len() as u64, users.len() > limit);
    let users = users.into_iter().take(limit).cloned().collect();
    Ok(Json(ActiveUsers { users, more, total }))
}

/// `GET /v1/configuration`.
pub(super) async fn configuration(State(app): State<App>) -> Json<Configuration> {
    let key = |key: &control::ConfiguredKey| ConfiguredKey {
        key: key.key.clone(),
        value: key.value.clone(),
        origin: key.origin.clone(),
        is_live: key.is_live,
    };
    Json(Configuration { keys: app.handle.configuration().iter().map(key).collect() })
}

/// `GET /v1/warnings`.
pub(super) async fn warnings(State(app): State<App>) -> Json<Warnings> {
    let warning = |one: control::Warning| LoggedWarning {
        time_unix: one.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        level: if one.is_error { "error" } else { "warn" }.to_owned(),
        text: one.text,
        count: one.count,
    };
    Json(Warnings { warnings: app.log.list().into_iter().map(warning).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{SessionOffload, Volume};

    #[test]
    fn a_route_that_carried_nothing_is_not_told_as_relaying() {
        let with = |packets| {
            let offload = SessionOffload { channels: 2, packets, ..SessionOffload::default() };
            let to_peers = Volume { packets: 9, bytes: 9 };
            let session = Session { offload, channels: 2, to_peers, ..Session::default() };
            kernel_path(&session, "eth0 by tc")
        };
        assert!(with(0).contains("no packet by them yet: sockets relay all"), "{}", with(0));
        assert_eq!(
            with(7),
            "The kernel has routes for 2 of 2 channels (eth0 by tc), and has relayed 7 of 9 packets by them."
        );
    }
}
