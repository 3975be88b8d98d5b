//! Requests, in the order of RFC 8489 §6.3: is it one of ours, who asks, do we understand all of it;
//! then the method's own rules, one file per method. Handlers return the refusal as an error; it is
//! written here.

pub(crate) mod allocate;
pub(crate) mod binding;
pub(crate) mod channel_bind;
pub(crate) mod classic;
pub(crate) mod connect;
pub(crate) mod connection_bind;
pub(crate) mod create_permission;
pub(crate) mod discovery;
pub(crate) mod mobile;
pub(crate) mod opening;
pub(crate) mod refresh;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use stun_wire::{AttributeType, Message, Method};
use turn_types::{ClientPath, FiveTuple, Instant, Now, Prefix};

use crate::answer::{Responder, alternate_for, write_alternate};
use crate::auth::{self, AuthStep, Authenticated, Known};
use crate::command::{Command, UserQuery};
use crate::discovery::Corner;
use crate::event::UserAnswer;
use crate::limits::{UNKNOWN_LISTED_MAX, WAITING_REQUEST_MAX};
use crate::notice::{Budget, Notice, Refusal};
use crate::pending::{Lookup, Parked, Waiting};
use crate::policy::Policy;
use crate::response_budget::SourceAddress;
use crate::state::State;
use crate::table::Slot;
use crate::verdict::{DropReason, ReplyBuffer, Verdict};
use mobile::Granted;

/// A request and what it is judged by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) now: Now,
    pub(crate) path: &'a ClientPath,
    pub(crate) message: Message<'a>,
}

impl Request<'_> {
    /// Whether its source address is proved before anything in it is looked at.
    pub(crate) const fn source_address(&self) -> SourceAddress {
        SourceAddress::of(self.path.five_tuple.transport)
    }
}

/// An authenticated request on a 5-tuple that has an allocation of the same user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnRequest<'a> {
    pub(crate) request: Request<'a>,
    pub(crate) slot: Slot,
    pub(crate) who: &'a Authenticated,
    pub(crate) responder: &'a Responder,
}

/// The comprehension-required attributes that we understand everywhere. One that the method has no use
/// for is ignored (RFC 8489 §6.3). 0x0010 and 0x0021, once BANDWIDTH and TIMER-VAL, are not among them
/// (RFC 8656 §18), nor is anything of ICE; ACCESS-TOKEN is where tokens are taken (RFC 7635), and what
/// RFC 5780 adds where it is [served](unknown).
pub(crate) fn is_understood(policy: &Policy, kind: AttributeType) -> bool {
    if kind == AttributeType::ACCESS_TOKEN {
        return policy.auth.tokens.is_some();
    }
    matches!(
        kind,
        AttributeType::MAPPED_ADDRESS
            | AttributeType::USERNAME
            | AttributeType::MESSAGE_INTEGRITY
            | AttributeType::ERROR_CODE
            | AttributeType::UNKNOWN_ATTRIBUTES
            | AttributeType::CHANNEL_NUMBER
            | AttributeType::LIFETIME
            | AttributeType::XOR_PEER_ADDRESS
            | AttributeType::DATA
            | AttributeType::REALM
            | AttributeType::NONCE
            | AttributeType::XOR_RELAYED_ADDRESS
            | AttributeType::REQUESTED_ADDRESS_FAMILY
            | AttributeType::EVEN_PORT
            | AttributeType::REQUESTED_TRANSPORT
            | AttributeType::DONT_FRAGMENT
            | AttributeType::MESSAGE_INTEGRITY_SHA256
            | AttributeType::PASSWORD_ALGORITHM
            | AttributeType::USERHASH
            | AttributeType::XOR_MAPPED_ADDRESS
            | AttributeType::RESERVATION_TOKEN
            | AttributeType::CONNECTION_ID
    )
}

/// Whether a request of this method is anything to us (RFC 8656 §17; RFC 6062 §6.1 where it is served).
pub(crate) fn is_request_method(policy: &Policy, method: Method) -> bool {
    let of_tcp = matches!(method, Method::CONNECT | Method::CONNECTION_BIND);
    if of_tcp {
        return policy.tcp_relaying;
    }
    matches!(
        method,
        Method::BINDING
            | Method::ALLOCATE
            | Method::REFRESH
            | Method::CREATE_PERMISSION
            | Method::CHANNEL_BIND
    )
}

/// Whether a response to a request has been charged already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Charged {
    No,
    Yes,
}

impl State {
    /// A request that has just come in.
    pub(crate) fn handle_request(
        &mut self,
        request: &Request<'_>,
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        let Request { policy, now, path, message } = *request;
        if !is_request_method(policy, message.method()) {
            return Verdict::Drop(DropReason::UnexpectedMethod);
        }
        if message.method() == Method::BINDING {
            return self.answer_binding(request, reply);
        }
        if self.pending.holds(&(path.five_tuple, message.transaction_id())) {
            return Verdict::Drop(DropReason::AlreadyPending);
        }
        // Behind a Refresh by ticket, and judged when that is answered.
        if self.pending.is_moving(&path.five_tuple)
            && !matches!(message.method(), Method::ALLOCATE | Method::CONNECTION_BIND)
            && self.table.of_client(&path.five_tuple).is_none()
        {
            return self.queue_request(request, false);
        }
        let client = path.five_tuple.client;
        let may_verify = self.may_verify(policy.unauthenticated, now.instant, client.ip());
        let known = (self.known(now.instant, &path.five_tuple), may_verify);
        let step = auth::authenticate(policy, now, client, &message, known);
        self.after_authentication(request, step, Charged::No, reply)
    }

    /// Who is known to be on a 5-tuple.
    fn known(&mut self, now: Instant, five_tuple: &FiveTuple) -> Option<Known<'_>> {
        match self.live_slot(now, five_tuple) {
            Some(slot) => self.table.get(slot).credentials.known(),
            None => self.arrivals.get(five_tuple, now)?.credentials.known(),
        }
    }

    /// A request whose user has been looked up.
    pub(crate) fn resume_request(
        &mut self,
        request: &Request<'_>,
        answer: &UserAnswer,
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        let Request { policy, now, path, message } = *request;
        let client = path.five_tuple.client;
        let known = self.known(now.instant, &path.five_tuple);
        let step = auth::authenticate_found(policy, now, client, &message, (known, answer));
        self.after_authentication(request, step, Charged::Yes, reply)
    }

    fn after_authentication(
        &mut self,
        request: &Request<'_>,
        step: AuthStep,
        charged: Charged,
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        let responder = Responder::new(request.path, &request.message);
        match step {
            AuthStep::Authenticated(who) => {
                let responder = responder.authenticated(Arc::clone(&who.user), who.seal.clone());
                if !responder.is_sealed()
                    && let Err(spent) = self.charge(request, request.source_address())
                {
                    return Verdict::Drop(spent);
                }
                match self.authenticated(request, (who, charged), &responder, reply) {
                    Ok(verdict) => verdict,
                    Err(reason) => self.refuse(request, &responder, reason, reply),
                }
            }
            AuthStep::NeedUser { user, known } => {
                // A look-up is charged as the response to it; behind a nonce of ours, see `authenticate`.
                if !known && let Err(spent) = self.charge(request, SourceAddress::Proved) {
                    return Verdict::Drop(spent);
                }
                self.wait_for_user(request, (user, known), &responder, reply)
            }
            AuthStep::Spent => {
                let source = Prefix::customer(request.path.five_tuple.client.ip());
                self.report_spent(request.now.instant, Budget::FailedVerifications, source);
                Verdict::Drop(DropReason::VerificationBudget)
            }
            AuthStep::Refuse { reason, user } => {
                let Request { policy, now, path, message } = *request;
                let failed = auth::failed_verifications(policy, &message, reason);
                let of = (path.five_tuple.client.ip(), failed);
                self.charge_verifications(policy.unauthenticated, now.instant, of);
                // Everything else is judged behind a nonce that was given to this address.
                let before_nonce = matches!(
                    reason,
                    Refusal::NoCredentials | Refusal::IncompleteCredentials | Refusal::ForeignNonce
                );
                let address =
                    if before_nonce { request.source_address() } else { SourceAddress::Proved };
                // An authenticated request is free, and none is charged twice.
                let free = user.is_some() || charged == Charged::Yes;
                if !free && let Err(spent) = self.charge(request, address) {
                    return Verdict::Drop(spent);
                }
                self.challenge(request, &responder.named(user), reason, reply)
            }
        }
    }

    /// The rules that begin once it is known who asks (RFC 8656 §5).
    fn authenticated(
        &mut self,
        request: &Request<'_>,
        (who, charged): (Authenticated, Charged),
        responder: &Responder,
        reply: &mut ReplyBuffer,
    ) -> Result<Verdict, Refusal> {
        if unknown(request).next().is_some() {
            return Err(Refusal::UnknownAttributes);
        }
        if request.message.method() == Method::ALLOCATE {
            return self.allocate(request, who, responder, reply);
        }
        if request.message.method() == Method::CONNECTION_BIND {
            return self.connection_bind(request, who, responder);
        }
        let five_tuple = &request.path.five_tuple;
        let now = request.now.instant;
        let Some(slot) = self.live_slot(now, five_tuple) else {
            if let Some(arrival) = self.arrivals.get(five_tuple, now) {
                if !arrival.credentials.are_of(&who) {
                    return Err(Refusal::WrongUser);
                }
                if arrival.transaction == responder.transaction {
                    return Ok(mobile::write(request.policy, responder, arrival.granted, reply));
                }
                return Ok(self.queue_request(request, charged == Charged::Yes));
            }
            if self.pending.is_moving(five_tuple) {
                return Ok(self.queue_request(request, charged == Charged::Yes));
            }
            return match request.message.method() {
                Method::REFRESH => self.refresh_from_elsewhere(request, who, responder, reply),
                _ => Err(Refusal::NoAllocation),
            };
        };
        if !self.table.get(slot).credentials.are_of(&who) {
            return Err(Refusal::WrongUser);
        }
        let answered = self.is_answered(slot, five_tuple, responder.transaction);
        if let Some((lifetime, ticket)) =
            answered.filter(|_| request.message.method() == Method::REFRESH)
        {
            let granted = Granted { lifetime, ticket: Some(ticket) };
            return Ok(mobile::write(request.policy, responder, granted, reply));
        }
        if self.table.get(slot).expects(five_tuple) {
            self.complete_move(request.policy, now, slot);
        }
        let own = OwnRequest { request: *request, slot, who: &who, responder };
        let verdict = match request.message.method() {
            Method::REFRESH => self.refresh(&own, reply),
            Method::CREATE_PERMISSION => self.create_permission(&own, reply),
            Method::CONNECT => self.connect(&own),
            // The only one left of those that are let in.
            _ => self.channel_bind(&own, reply),
        };
        // A Refresh may have been its end.
        if let Some(slot) = self.table.of_client(five_tuple) {
            self.announce(request.policy, request.now.instant, slot);
        }
        verdict
    }

    /// Lets a request wait until its user is looked up. Its sender is known, or has been charged.
    fn wait_for_user(
        &mut self,
        request: &Request<'_>,
        (user, known): (UserQuery, bool),
        responder: &Responder,
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        let Request { policy, now, path, message } = *request;
        if message.bytes().len() > WAITING_REQUEST_MAX {
            return self.challenge(request, responder, Refusal::BadRequest, reply);
        }
        let by_ticket = mobile::is_by_ticket(policy, &message);
        let parked = Parked { path: *path, request: Box::from(message.bytes()), by_ticket };
        let lookup = Lookup { parked, known };
        if !self.pending.has_room_for(&lookup) {
            let source = Prefix::customer(path.five_tuple.client.ip());
            self.report_spent(now.instant, Budget::UserLookups, source);
            return Verdict::Drop(DropReason::TooManyPending);
        }
        let key = (path.five_tuple, message.transaction_id());
        let pending = self.pending.insert(now.instant, key, Waiting::User(lookup));
        let realm = Arc::clone(&policy.realm);
        self.outbox.command(Command::FindUser { pending, realm, user });
        if message.method() == Method::CONNECTION_BIND { Verdict::Hold } else { Verdict::Wait }
    }

    /// Refuses somebody who has proved who they are, and says so under their key.
    fn refuse(
        &mut self,
        request: &Request<'_>,
        responder: &Responder,
        reason: Refusal,
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        self.tell_refusal(responder, reason);
        let Request { policy, path, .. } = *request;
        responder.error(policy, reply, reason, |builder| {
            if reason == Refusal::UnknownAttributes {
                builder.unknown_attributes(&unknown_listed(request));
            } else if reason == Refusal::DontFragment {
                builder.unknown_attributes(&[AttributeType::DONT_FRAGMENT]);
            } else if reason == Refusal::Redirected
                && let Some(alternate) = alternate_for(policy, path.five_tuple.client.family())
            {
                write_alternate(builder, alternate, path);
            }
        })
    }

    /// Refuses an unauthenticated request, within the budget of its source.
    pub(crate) fn refuse_unauthenticated(
        &mut self,
        request: &Request<'_>,
        responder: &Responder,
        reason: Refusal,
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        if let Err(spent) = self.charge(request, request.source_address()) {
            return Verdict::Drop(spent);
        }
        self.challenge(request, responder, reason, reply)
    }

    /// Refuses without integrity, with what the client needs to try again.
    fn challenge(
        &mut self,
        request: &Request<'_>,
        responder: &Responder,
        reason: Refusal,
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        let Request { policy, now, path, .. } = *request;
        self.tell_refusal(responder, reason);
        responder.error(policy, reply, reason, |builder| {
            if reason == Refusal::UnknownAttributes {
                builder.unknown_attributes(&unknown_listed(request));
            } else {
                auth::challenge(builder, policy, now, path.five_tuple.client, reason);
            }
        })
    }

    /// Takes one unauthenticated response to a request out of its budget.
    pub(crate) fn charge(
        &mut self,
        request: &Request<'_>,
        address: SourceAddress,
    ) -> Result<(), DropReason> {
        let rate = (request.policy.unauthenticated, request.now.instant);
        let of = (&request.path.five_tuple, request.message.method());
        self.charge_response(rate, of, address)
    }

    pub(crate) fn tell_refusal(&mut self, responder: &Responder, reason: Refusal) {
        let Responder { path, method, .. } = *responder;
        let user = responder.user.clone();
        self.outbox.notice(Notice::Refused { path, method, user, reason });
    }
}

/// The comprehension-required attributes of a request that we do not understand.
pub(crate) fn unknown<'a>(request: &Request<'a>) -> impl Iterator<Item = AttributeType> + use<'a> {
    let Request { policy, path, message, .. } = *request;
    message.unknown_required(move |kind| {
        is_understood(policy, kind)
            || discovery::is_understood(kind)
                && message.method() == Method::BINDING
                && Corner::of(policy, path).is_some()
    })
}

/// What UNKNOWN-ATTRIBUTES lists: all of them, as far as an answer has room.
fn unknown_listed(request: &Request<'_>) -> Vec<AttributeType> {
    unknown(request).take(UNKNOWN_LISTED_MAX).collect()
}
