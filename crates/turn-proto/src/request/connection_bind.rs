//! ConnectionBind (RFC 6062 §5.4): makes the client's connection one with a peer's. It may come to any
//! worker, and is answered by the one that has the peer's connection: who asks is proved here, whose
//! connection it is there.

use alloc::boxed::Box;
use alloc::sync::Arc;

use stun_wire::{AttributeType, value};
use turn_types::{ClientPath, ConnectionId, Instant, Transport, WorkerId};

use super::Request;
use crate::answer::Responder;
use crate::auth::Authenticated;
use crate::command::TcpCommand;
use crate::connection::Phase;
use crate::notice::Refusal;
use crate::policy::Policy;
use crate::state::State;
use crate::verdict::{Answer, ReplyBuffer, Verdict};

/// An authentic ConnectionBind on its way to the worker that has the connection.
#[derive(Clone, Debug)]
pub struct BindRequest {
    connection: ConnectionId,
    who: Authenticated,
    realm: Arc<str>,
    responder: Responder,
}

impl BindRequest {
    /// The connection that it names; there may be none.
    #[must_use]
    pub const fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// The worker that has the connection, if there is one.
    #[must_use]
    pub const fn owner(&self) -> WorkerId {
        self.connection.worker()
    }

    /// What it came by.
    #[must_use]
    pub const fn path(&self) -> &ClientPath {
        &self.responder.path
    }

    /// The stream that it came by is called so now.
    pub const fn came_by(&mut self, path: ClientPath) {
        self.responder.path = path;
    }
}

impl PartialEq for BindRequest {
    /// Whether it is the same request: the same transaction of the same client.
    fn eq(&self, other: &Self) -> bool {
        let Self { connection, responder, .. } = self;
        *connection == other.connection
            && responder.path == other.responder.path
            && responder.transaction == other.responder.transaction
    }
}

impl Eq for BindRequest {}

impl State {
    /// A ConnectionBind where it arrives.
    pub(crate) fn connection_bind(
        &mut self,
        request: &Request<'_>,
        who: Authenticated,
        responder: &Responder,
    ) -> Result<Verdict, Refusal> {
        let five_tuple = &request.path.five_tuple;
        let by_stream = match five_tuple.transport {
            Transport::Tcp | Transport::Tls => true,
            Transport::Udp | Transport::Dtls => false,
        };
        // What has an allocation, or is to have one, is a control connection.
        let is_control = self.live_slot(request.now.instant, five_tuple).is_some()
            || self.pending.is_opening(five_tuple);
        if !by_stream || is_control {
            return Err(Refusal::BadRequest);
        }
        let id = request
            .message
            .first(AttributeType::CONNECTION_ID)
            .and_then(|value| value::connection_id(value).ok())
            .ok_or(Refusal::BadRequest)?;
        self.outbox.tcp(TcpCommand::Bind(Box::new(BindRequest {
            connection: ConnectionId(id),
            who,
            realm: Arc::clone(&request.policy.realm),
            responder: responder.clone(),
        })));
        Ok(Verdict::Hold)
    }

    /// A ConnectionBind at the worker that has the connection, if any has. When it is answered with
    /// success the two are one.
    pub(crate) fn bind_connection(
        &mut self,
        (policy, now): (&Policy, Instant),
        request: &BindRequest,
        reply: &mut ReplyBuffer,
    ) -> Option<Answer> {
        let verdict = match self.join(now, request) {
            Ok(()) => request.responder.success(policy, reply, |_| ()),
            Err(reason) => self.refuse_bind(policy, request, reason, reply),
        };
        answered(request, verdict)
    }

    /// Refuses a ConnectionBind that cannot be taken to the worker of its connection.
    pub(crate) fn turn_bind_away(
        &mut self,
        policy: &Policy,
        request: &BindRequest,
        reply: &mut ReplyBuffer,
    ) -> Option<Answer> {
        let verdict = self.refuse_bind(policy, request, Refusal::SystemExhausted, reply);
        answered(request, verdict)
    }

    fn refuse_bind(
        &mut self,
        policy: &Policy,
        request: &BindRequest,
        reason: Refusal,
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        self.tell_refusal(&request.responder, reason);
        request.responder.error(policy, reply, reason, |_| ())
    }

    fn join(&mut self, now: Instant, request: &BindRequest) -> Result<(), Refusal> {
        let BindRequest { connection, who, realm, responder } = request;
        let slot = self.table.of_connection(*connection).ok_or(Refusal::UnknownConnection)?;
        let allocation = self.table.get_mut(slot);
        if !allocation.is_live(now) {
            return Err(Refusal::UnknownConnection);
        }
        let owner = &allocation.credentials;
        if !owner.are_of(who) || owner.realm != *realm {
            return Err(Refusal::WrongUser);
        }
        // On an open relay nobody has a name, and a token says none: there, numbers could be guessed by
        // others. Who comes with the very token, or from where the allocation was asked for, is no other.
        let is_token = who.keys.are_of_token();
        let is_named = !is_token && !who.user.is_empty();
        let same_token = is_token && owner.account == who.account;
        let same_home =
            allocation.path.five_tuple.client.ip() == responder.path.five_tuple.client.ip();
        if !is_named && !same_token && !same_home {
            return Err(Refusal::UnknownConnection);
        }
        let found = allocation.connections.get_mut(*connection);
        let found = found.filter(|found| found.can_be_bound(now));
        let connection = found.ok_or(Refusal::UnknownConnection)?;
        connection.phase = Phase::Bound;
        connection.deadline = None;
        self.table.arm(slot);
        Ok(())
    }
}

fn answered(request: &BindRequest, verdict: Verdict) -> Option<Answer> {
    match verdict {
        Verdict::Reply { len, error } => {
            Some(Answer { to: request.responder.path, len, error, held: true })
        }
        Verdict::Wait
        | Verdict::Hold
        | Verdict::Queued
        | Verdict::Drop(_)
        | Verdict::ReplyFrom { .. }
        | Verdict::ToPeer { .. }
        | Verdict::ToClient { .. } => None,
    }
}
