//! `GET /v1/sessions` and `DELETE /v1/sessions/{id}`.

mod order;
mod selection;

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use tokio::task::spawn_blocking;
use turn_types::AllocationId;

use self::selection::{Listing, Row, SelectedPage};
use crate::holder::Holder;
use crate::limits::PEERS_MAX;
use crate::peer::Peer;
use crate::problem::Problem;
use crate::roll::Gathered;
use crate::routes::App;
use crate::types::{Ended, Session, SessionPeers, Sessions};

#[derive(Debug, Default, Deserialize)]
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

pub(super) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Holder>,
    Extension(peer): Extension<Peer>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(which) = which.map_err(|rejection| {
        let hint = "the parameters are user, realm, client (an IP address), filter, sort, rates and peers (true or \
                    false), limit and after";
        Problem::bad_request(rejection.body_text(), hint)
    })?;
    let with_peers = which.peers;
    let listing = Listing::parse(which, &caller)?;
    let gathered = gathered(&app, &listing, &peer).await?;
    let SelectedPage { mut rows, total, mut more } = listing.page(&gathered).await;
    let mut peers = Vec::new();
    if with_peers {
        peers = peers_of(&app, &rows).await?;
        more |= peers.len() < rows.len();
        rows.truncate(peers.len());
    }
    let next = rows.last().filter(|_| more).map(|row| row.place.to_string());
    let now = (app.clock)();
    let mut peers = peers.into_iter();
    let sessions = rows
        .iter()
        .map(|row| {
            let peers = peers.next().flatten();
            Session { rates: row.rates, peers, ..Session::of(row.session, now) }
        })
        .collect();
    encoded(Sessions { sessions, more, total, next }).await
}

/// The answer. Its text of half a megabyte is made on another thread than all requests are served.
async fn encoded(sessions: Sessions) -> Result<Response, Problem> {
    let encoding = spawn_blocking(move || serde_json::to_vec(&sessions));
    match encoding.await {
        Ok(Ok(text)) => Ok(([(CONTENT_TYPE, "application/json")], text).into_response()),
        // A type of this program that cannot be encoded, or the end of the process.
        Ok(Err(_)) | Err(_) => Err(Problem::stopping()),
    }
}

/// The sessions to select from. Over the network they are up to a second old: many queries cost
/// the workers the same as one. Queries at the control socket receive the current sessions.
async fn gathered(app: &App, listing: &Listing, peer: &Peer) -> Result<Arc<Gathered>, Problem> {
    let workers = &app.handle.workers;
    let gathered = match peer {
        _ if listing.has_rates() => app.roll.take_with_rates(workers).await,
        Peer::Tcp { .. } => app.roll.take(workers).await,
        Peer::Unix(_) => {
            let all = workers.all_sessions(listing.of_user()).await;
            all.map(|sessions| Arc::new(Gathered::fresh(sessions)))
        }
    };
    gathered.map_err(Problem::of_workers)
}

/// Peers of the first sessions, as many as an answer has room for; `None` of one that has ended
/// meanwhile.
async fn peers_of(app: &App, rows: &[Row<'_>]) -> Result<Vec<Option<SessionPeers>>, Problem> {
    let (mut all, mut number) = (Vec::new(), 0);
    for row in rows {
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
