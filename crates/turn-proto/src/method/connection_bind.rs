//! ConnectionBind (RFC 6062 §5.4): binds a client's connection to a peer's connection. Any worker
//! may receive the request, and authenticates the client. The worker that has the peer's connection
//! checks the client's right to the connection, and responds.

use alloc::boxed::Box;

use stun_wire::{AttributeType, value};
use turn_types::{ConnectionId, Instant, Transport};

use crate::io::{Answer, Authenticated, BindRequest, Refusal, ReplyBuffer, TcpCommand, Verdict};
use crate::store::{Allocations, Outbox, Phase};

/// Passes an authentic ConnectionBind to the worker of the peer's connection. `is_control`: the
/// request arrived on a connection that has an allocation, or waits for one.
pub(crate) fn handle(
    own: &Authenticated<'_>,
    is_control: bool,
    outbox: &mut Outbox,
) -> Result<Verdict, Refusal> {
    let Authenticated { request, grant, responder, .. } = *own;
    let by_stream = match request.path.five_tuple.transport {
        Transport::Tcp | Transport::Tls => true,
        Transport::Udp | Transport::Dtls => false,
    };
    if !by_stream || is_control {
        return Err(Refusal::BadRequest);
    }
    let id = request
        .message
        .first(AttributeType::CONNECTION_ID)
        .and_then(|value| value::connection_id(value).ok())
        .ok_or(Refusal::BadRequest)?;
    outbox.tcp(TcpCommand::Bind(Box::new(BindRequest {
        connection: ConnectionId(id),
        grant: grant.clone(),
        responder: responder.clone(),
    })));
    Ok(Verdict::Hold)
}

/// Responds to a ConnectionBind at the worker of the peer's connection.
pub(crate) fn bind(
    now: Instant,
    allocations: &mut Allocations,
    outbox: &mut Outbox,
    request: &BindRequest,
    reply: &mut ReplyBuffer,
) -> Option<Answer> {
    match join(now, allocations, request) {
        Ok(()) => answer(request, request.responder.success(reply, |_| ())),
        Err(reason) => refuse(outbox, request, reason, reply),
    }
}

/// Refuses a ConnectionBind.
pub(crate) fn refuse(
    outbox: &mut Outbox,
    request: &BindRequest,
    reason: Refusal,
    reply: &mut ReplyBuffer,
) -> Option<Answer> {
    outbox.refused(&request.responder, reason);
    answer(request, request.responder.error(reply, reason, |_| ()))
}

fn answer(request: &BindRequest, verdict: Verdict) -> Option<Answer> {
    verdict.into_answer(request.responder.path, true)
}

fn join(now: Instant, allocations: &mut Allocations, request: &BindRequest) -> Result<(), Refusal> {
    let BindRequest { connection, grant, responder } = request;
    let slot = allocations.of_connection(*connection).ok_or(Refusal::UnknownConnection)?;
    let allocation = allocations.get_mut(slot);
    if !allocation.is_live(now) {
        return Err(Refusal::UnknownConnection);
    }
    let owner = &allocation.grant;
    if !owner.is_same_user(grant) {
        return Err(Refusal::WrongUser);
    }
    // A client of an open relay has no name, and a token does not name its user. Such clients could
    // guess the number of another client's connection. Such a client must have the same token as
    // the allocation, or the address of the allocation's client.
    let is_token = grant.keys.are_of_token();
    let is_named = !is_token && !grant.is_anonymous();
    let same_token = is_token && owner.account == grant.account;
    let same_address =
        allocation.path.five_tuple.client.ip() == responder.path.five_tuple.client.ip();
    if !is_named && !same_token && !same_address {
        return Err(Refusal::UnknownConnection);
    }
    let found = allocation.connections.get_mut(*connection);
    let found = found.filter(|found| found.can_be_bound(now));
    let connection = found.ok_or(Refusal::UnknownConnection)?;
    connection.phase = Phase::Bound;
    connection.deadline = None;
    allocations.arm(slot);
    Ok(())
}
