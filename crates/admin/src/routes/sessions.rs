//! `GET /v1/sessions` and `DELETE /v1/sessions/{id}`: asks the workers, within their deadline.

mod order;

use std::net::IpAddr;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::{Extension, Json};
use control::SessionFilter;
use serde::Deserialize;
use turn_proto::UserName;
use turn_types::AllocationId;

use self::order::{Cursor, Order};
use crate::holder::Holder;
use crate::limits::{
    FILTER_BYTES_MAX, PEERS_MAX, SESSIONS_DEFAULT, SESSIONS_MAX, SESSIONS_WITH_PEERS_MAX,
};
use crate::problem::Problem;
use crate::routes::App;
use crate::types::{Ended, Session, SessionPeers, SessionRates, Sessions};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// Name as authenticated, or account.
    user: Option<String>,
    /// Name of the realm.
    realm: Option<String>,
    /// Address of the client, of any port.
    client: Option<IpAddr>,
    /// A part of the id, a name or an address.
    filter: Option<String>,
    sort: Option<String>,
    /// Adds rates, whatever the order.
    #[serde(default)]
    rates: bool,
    /// Adds peers; an answer has fewer sessions then.
    #[serde(default)]
    peers: bool,
    limit: Option<usize>,
    after: Option<String>,
}

impl Which {
    /// The sessions of the named user.
    fn of_user(&self) -> SessionFilter {
        let form = |name| UserName::form_of(name).into_owned();
        SessionFilter { user: self.user.as_deref().map(form), ..SessionFilter::default() }
    }
}

/// A session of which the query selects its page.
struct Row {
    session: control::Session,
    rates: Option<SessionRates>,
}

pub(super) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Holder>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Sessions>, Problem> {
    let Query(mut which) = which.map_err(|rejection| {
        let hint = "the parameters are user, realm, client (an IP address), filter, sort, rates and peers (true or \
                    false), limit and after";
        Problem::bad_request(rejection.body_text(), hint)
    })?;
    which.realm = caller.realm_of(which.realm)?;
    let limit = which.limit.unwrap_or(SESSIONS_DEFAULT);
    if !(1..=SESSIONS_MAX).contains(&limit) {
        let error = format!("limit is {limit}, and must be from 1 to {SESSIONS_MAX}");
        return Err(Problem::bad_request(error, "ask for the next page with after"));
    }
    let order = Order::parse(which.sort.as_deref().unwrap_or_default())?;
    let after = which.after.as_deref().map(|after| order.cursor(after)).transpose()?;
    if which.filter.as_ref().is_some_and(|filter| filter.len() > FILTER_BYTES_MAX) {
        let error = format!("filter has more than {FILTER_BYTES_MAX} bytes");
        return Err(Problem::bad_request(error, "write a part of a name or an address"));
    }
    let mut rows = rows(&app, &which, order).await?;
    rows.retain(|row| selects(&which, &row.session));
    let total = rows.len() as u64;
    let mut keyed: Vec<(Cursor, Row)> = rows
        .into_iter()
        .map(|row| (order.place(&row.session, row.rates.as_ref()), row))
        .filter(|(place, _)| after.as_ref().is_none_or(|after| place > after))
        .collect();
    let limit = if which.peers { limit.min(SESSIONS_WITH_PEERS_MAX) } else { limit };
    let mut more = keyed.len() > limit;
    if more {
        keyed.select_nth_unstable_by(limit, |(one, _), (other, _)| one.cmp(other));
        keyed.truncate(limit);
    }
    keyed.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let mut peers = Vec::new();
    if which.peers {
        peers = peers_of(&app, &keyed).await?;
        more |= peers.len() < keyed.len();
        keyed.truncate(peers.len());
    }
    let next = keyed.last().filter(|_| more).map(|(place, _)| place.to_string());
    let now = (app.clock)();
    let mut peers = peers.into_iter();
    let sessions = keyed
        .iter()
        .map(|(_, row)| {
            let peers = peers.next().flatten();
            Session { rates: row.rates, peers, ..Session::of(&row.session, now) }
        })
        .collect();
    Ok(Json(Sessions { sessions, more, total, next }))
}

/// Peers of the first sessions, as many as an answer has room for; `None` of one that has ended
/// meanwhile.
async fn peers_of(
    app: &App,
    keyed: &[(Cursor, Row)],
) -> Result<Vec<Option<SessionPeers>>, Problem> {
    let (mut all, mut number) = (Vec::new(), 0);
    for (_, row) in keyed {
        let found = app.handle.workers.session(row.session.record.id).await;
        let found = found.map_err(Problem::of_workers)?;
        let peers = found.map(|(_, peers)| SessionPeers::of(&peers, (app.clock)()));
        number += peers.as_ref().map_or(0, SessionPeers::len);
        all.push(peers);
        if number >= PEERS_MAX {
            break;
        }
    }
    Ok(all)
}

/// All sessions that the workers select. With rates they are up to a second old.
async fn rows(app: &App, which: &Which, order: Order) -> Result<Vec<Row>, Problem> {
    let workers = &app.handle.workers;
    if which.rates || order.is_by_rate() {
        let gathered = app.roll.take(workers).await.map_err(Problem::of_workers)?;
        let of_user = which.of_user();
        let row = |session: &control::Session| Row {
            session: session.clone(),
            rates: gathered.rates(session.record.id),
        };
        let of_user = gathered.sessions.iter().filter(|one| of_user.takes(&one.record));
        return Ok(of_user.map(row).collect());
    }
    let filter = which.of_user();
    let all = workers.all_sessions(&filter).await.map_err(Problem::of_workers)?;
    Ok(all.into_iter().map(|session| Row { session, rates: None }).collect())
}

fn selects(which: &Which, session: &control::Session) -> bool {
    let record = &session.record;
    if which.realm.as_ref().is_some_and(|realm| *record.realm != **realm) {
        return false;
    }
    if which.client.is_some_and(|ip| record.five_tuple.client.ip() != ip) {
        return false;
    }
    let Some(filter) = which.filter.as_deref().filter(|filter| !filter.is_empty()) else {
        return true;
    };
    // A part of a name has the form of a name.
    let part = UserName::form_of(filter).to_lowercase();
    let has = |text: String| text.to_lowercase().contains(&part);
    has(record.user.to_string())
        || record.is_by_token && has(record.account.to_string())
        || has(record.id.to_string())
        || has(record.five_tuple.client.to_string())
        || has(record.five_tuple.transport.label().to_owned())
        || record.relayed.iter().flatten().any(|relayed| has(relayed.to_string()))
}

pub(super) async fn end(
    State(app): State<App>,
    Extension(caller): Extension<Holder>,
    Path(id): Path<String>,
) -> Result<Json<Ended>, Problem> {
    let allocation = allocation_id(&id)?;
    if is_of(&app, &caller, allocation).await?
        && app.handle.workers.end_session(allocation).await.map_err(Problem::of_workers)?
    {
        app.roll.forget().await;
        return Ok(Json(Ended { id: allocation.to_string() }));
    }
    Err(Problem::not_found(
        format!("there is no live session {allocation}"),
        "it may have ended already; `turnpike sessions` lists the live ones",
    ))
}

/// Returns whether a session is of the caller's realm. One of another realm is told as one that is
/// not there: ids count up.
async fn is_of(app: &App, caller: &Holder, id: AllocationId) -> Result<bool, Problem> {
    if caller.realm.is_none() {
        return Ok(true);
    }
    let found = app.handle.workers.session(id).await.map_err(Problem::of_workers)?;
    Ok(found.is_some_and(|(session, _)| caller.is_of(&session.record.realm)))
}

/// Reads the id of a session.
pub(super) fn allocation_id(id: &str) -> Result<AllocationId, Problem> {
    AllocationId::parse(id).ok_or_else(|| {
        Problem::bad_request(
            format!("\"{id}\" is not the id of a session"),
            "an id is 16 hexadecimal digits, as `turnpike sessions` shows it",
        )
    })
}
