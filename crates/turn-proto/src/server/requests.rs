//! Processing of requests. RFC 8489 §6.3 defines the order: method, authentication, unknown
//! attributes. The rules of each method follow, in a separate file per method. Methods return a
//! refusal as an error, and this module writes the error response.

use alloc::boxed::Box;
use alloc::sync::Arc;

use fair_share::Claimant;
use stun_wire::{AttributeType, Message, Method, TransactionId, UserName, value};
use turn_types::{FiveTuple, Instant, Now, Prefix};

use super::state::State;
use crate::auth::{self, AuthStep, KnownGrant};
use crate::credentials::{Grant, Keys};
use crate::io::{
    Authenticated, Budget, Command, DropReason, Notice, Refusal, RefusedRequest, ReplyBuffer,
    Request, Responder, UserAnswer, UserQuery, Verdict, is_request_method, write_alternate,
};
use crate::limits::{CONFIRM_AGAIN_AFTER, WAITING_REQUEST_MAX};
use crate::method::allocate::share_holder;
use crate::method::{binding, connection_bind, forbidden_peer, refresh};
use crate::mobility::by_ticket::is_by_ticket;
use crate::policy::{Entry, Policy};
use crate::store::{
    Allocations, DeferredRequest, ExpectedClients, Slot, Source, UserLookup, Wait, Waiting,
};

/// Charge state of a request: `Yes` if the budget of unauthenticated responses was already charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Charged {
    No,
    Yes,
}

/// Returns the grant of a 5-tuple's allocation. The allocation is in `slot`, or expected from
/// another worker.
fn known_grant<'a>(
    allocations: &'a Allocations,
    expected: &'a ExpectedClients,
    slot: Option<Slot>,
    five_tuple: &FiveTuple,
    now: Instant,
) -> Option<&'a Grant> {
    let grant = match slot {
        Some(slot) => &allocations.get(slot).grant,
        None => &expected.get(five_tuple, now)?.grant,
    };
    // The keys of an open relay's grant prove nothing.
    (!grant.is_anonymous()).then_some(grant)
}

impl State {
    /// Handles a new request.
    pub(super) fn handle_request(
        &mut self,
        request: &Request<'_>,
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        let Request { policy, rules, now, path, message, .. } = *request;
        if !is_request_method(policy, message.method()) {
            return Verdict::Drop(DropReason::UnexpectedMethod);
        }
        if message.method() == Method::BINDING && !policy.binding_login {
            return binding::handle(request, &mut self.budgets, &mut self.outbox, reply);
        }
        if self.pending.holds(&(path.five_tuple, message.transaction_id())) {
            return Verdict::Drop(DropReason::AlreadyPending);
        }
        // The request follows a Refresh by ticket, and is processed after the response to the
        // Refresh.
        if self.pending.is_moving(&path.five_tuple)
            && !matches!(message.method(), Method::ALLOCATE | Method::CONNECTION_BIND)
            && self.allocations.of_client(&path.five_tuple).is_none()
        {
            return self.moves().queue_request(request, false);
        }
        let client = path.five_tuple.client;
        let source = Source::of(request);
        let slot = self.live_slot(now.instant, &path.five_tuple);
        let Self { allocations, expected, budgets, .. } = self;
        let known = known_grant(allocations, expected, slot, &path.five_tuple, now.instant);
        let is_due = slot.is_some_and(|slot| allocations.get(slot).is_due(now.instant));
        let known = known.map(|grant| KnownGrant { grant, is_due });
        let claimant = match known {
            Some(KnownGrant { grant, .. }) => grant.competing_claimant(policy, client),
            None => Claimant::at(client.0.ip()),
        };
        if !budgets.may_request(source, &claimant) {
            self.report_spent(request, Budget::Requests);
            return Verdict::Drop(DropReason::RequestBudget);
        }
        let may_verify = budgets.may_verify(source);
        let step = auth::authenticate(rules, now, client, &message, known, may_verify);
        if is_due
            && auth::is_for_peers(&message)
            && let AuthStep::Granted(grant, _) = &step
        {
            self.confirm_keys(now.instant, slot, grant);
        }
        self.after_authentication(request, step, Charged::No, reply)
    }

    /// Resumes a request after a user look-up. The second value is true for a [held](Verdict::Hold)
    /// request.
    pub(super) fn user_found(
        &mut self,
        policy: &Policy,
        now: Now,
        deferred: &DeferredRequest,
        answer: &UserAnswer,
        reply: &mut ReplyBuffer,
    ) -> Option<(Verdict, bool)> {
        // The message was parsed before the wait.
        let message = Message::parse(&deferred.bytes).ok()?;
        let held = message.method() == Method::CONNECTION_BIND;
        let (arrived, five_tuple) = (deferred.arrived, &deferred.path.five_tuple);
        // The request named its realm, so no server name is needed.
        let rules = policy.of_request(&Entry { five_tuple, server_name: None, message: &message });
        let request = Request { policy, rules, now, arrived, path: &deferred.path, message };
        let verdict = self.resume_request(&request, answer, reply);
        self.moves().review_queue(five_tuple, now.instant);
        Some((verdict, held))
    }

    /// Handles a request after a user look-up.
    fn resume_request(
        &mut self,
        request: &Request<'_>,
        answer: &UserAnswer,
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        let Request { rules, now, path, message, .. } = *request;
        let client = path.five_tuple.client;
        if let Some(slot) = self.live_slot(now.instant, &path.five_tuple) {
            let known = (&self.allocations.get(slot).grant, answer);
            if auth::is_refuted(rules, now, client, &message, known) {
                self.allocations.refute(request.policy, slot, &mut self.outbox);
                self.allocations.update_routes(request.policy, now.instant, slot, &mut self.outbox);
            }
        }
        let known = self.known(now.instant, &path.five_tuple);
        let step = auth::authenticate_found(rules, now, client, &message, known, answer);
        if matches!((&step, answer), (AuthStep::Granted(..), UserAnswer::Known(_))) {
            let slot = self.live_slot(now.instant, &path.five_tuple);
            self.confirm(now.instant, slot);
        }
        self.after_authentication(request, step, Charged::Yes, reply)
    }

    /// Confirms the keys of an allocation before a request for peers. Keys of a database user are
    /// looked up, and the request does not wait for the result.
    fn confirm_keys(&mut self, now: Instant, slot: Option<Slot>, grant: &Grant) {
        if !grant.is_of_database() {
            return self.confirm(now, slot);
        }
        let Some(slot) = slot else { return };
        if self.allocations.get(slot).confirm_again.is_none() {
            self.allocations.get_mut(slot).confirm_again = Some(now + CONFIRM_AGAIN_AFTER);
            self.allocations.arm(slot);
        }
        self.look_keys_up(now, slot);
    }

    /// Repeats the look-up of an allocation's keys when it is due.
    pub(super) fn confirm_again(&mut self, now: Instant, slot: Slot) {
        let allocation = self.allocations.get_mut(slot);
        if allocation.confirm_again.is_none_or(|at| now < at) {
            return;
        }
        // A renewal may have replaced the keys by those of a secret or a token.
        let is_due = allocation.grant.is_of_database();
        allocation.confirm_again = is_due.then(|| now + CONFIRM_AGAIN_AFTER);
        self.allocations.arm(slot);
        if is_due {
            self.look_keys_up(now, slot);
        }
    }

    /// Looks up the keys of an allocation. Without capacity for the look-up, the next request for
    /// peers or [`Self::confirm_again`] starts another look-up.
    fn look_keys_up(&mut self, now: Instant, slot: Slot) {
        let allocation = self.allocations.get(slot);
        let (five_tuple, grant) = (&allocation.path.five_tuple, &allocation.grant);
        // No client uses this transaction id, which permits one look-up at a time for each 5-tuple.
        let key = (*five_tuple, TransactionId::default());
        let (wait, claimant) = (Wait::KnownUser, grant.claimant(five_tuple.client));
        if self.pending.holds(&key) || self.pending.check(wait, &claimant).is_err() {
            return;
        }
        let taken = self.pending.take_slot(wait, &claimant);
        let pending = self.pending.insert(now, key, taken, Waiting::Keys);
        self.outbox.command(Command::FindUser {
            pending,
            client: five_tuple.client,
            has_allocation: true,
            realm: grant.realm.clone(),
            user: UserQuery::Name(Arc::clone(&grant.user)),
        });
    }

    /// Compares the keys of an allocation with the keys returned by the database.
    pub(super) fn keys_found(
        &mut self,
        policy: &Policy,
        now: Instant,
        five_tuple: &FiveTuple,
        answer: &UserAnswer,
    ) {
        let Some(slot) = self.live_slot(now, five_tuple) else { return };
        let grant = &self.allocations.get(slot).grant;
        match answer {
            UserAnswer::Known(user) if Keys::LongTerm(user.keys) == grant.keys => {
                self.confirm(now, Some(slot));
            }
            // Other keys were confirmed after those of the allocation.
            UserAnswer::LastKnown(user) if Keys::LongTerm(user.keys) == grant.keys => {}
            UserAnswer::Known(_)
            | UserAnswer::LastKnown(_)
            | UserAnswer::Unknown
            | UserAnswer::Unconfirmed
                if grant.is_of_database() =>
            {
                self.allocations.refute(policy, slot, &mut self.outbox);
                self.allocations.update_routes(policy, now, slot, &mut self.outbox);
            }
            UserAnswer::Known(_)
            | UserAnswer::LastKnown(_)
            | UserAnswer::Unknown
            | UserAnswer::Unconfirmed
            | UserAnswer::Overloaded
            | UserAnswer::Unavailable => {}
        }
    }

    /// Records that the keys of an allocation are confirmed.
    fn confirm(&mut self, now: Instant, slot: Option<Slot>) {
        if let Some(slot) = slot {
            let allocation = self.allocations.get_mut(slot);
            (allocation.confirmed, allocation.confirm_again) = (now, None);
        }
    }

    /// Returns the grant of the allocation on a 5-tuple, or of the allocation expected there.
    fn known(&mut self, now: Instant, five_tuple: &FiveTuple) -> Option<&Grant> {
        let slot = self.live_slot(now, five_tuple);
        known_grant(&self.allocations, &self.expected, slot, five_tuple, now)
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
            AuthStep::Granted(grant, integrity) => {
                let responder = responder
                    .authenticated(Arc::clone(&grant.user), integrity, request.rules.software)
                    .of_account(Some(Arc::clone(&grant.account)));
                let source = Source::of(request);
                if responder.has_integrity() {
                    let client = request.path.five_tuple.client;
                    let claimant = grant.competing_claimant(request.policy, client);
                    // The account of a client without an allocation is known only after
                    // authentication.
                    if !self.budgets.may_request(source, &claimant) {
                        self.report_spent(request, Budget::Requests);
                        return Verdict::Drop(DropReason::RequestBudget);
                    }
                    let bytes = request.message.bytes().len();
                    self.budgets.charge_request(source, &claimant, bytes);
                } else if let Err(spent) = self.charge(request, source) {
                    return Verdict::Drop(spent);
                }
                let own = Authenticated { request: *request, grant: &grant, responder: &responder };
                match self.handle_authenticated(&own, charged, reply) {
                    Ok(verdict) => verdict,
                    Err(reason) => self.refuse(&own, reason, reply),
                }
            }
            AuthStep::NeedUser { user, known } => {
                // The look-up is charged like the response. The request has a valid nonce of this
                // server, see `authenticate`.
                if !known && let Err(spent) = self.charge(request, Source::of(request).proved()) {
                    return Verdict::Drop(spent);
                }
                self.wait_for_user(request, user, known, &responder, reply)
            }
            AuthStep::BudgetSpent => {
                self.report_spent(request, Budget::FailedVerifications);
                Verdict::Drop(DropReason::VerificationBudget)
            }
            AuthStep::LookupsOverloaded => self.refuse_look_up(request, &responder, reply),
            AuthStep::Refuse { reason, user } => {
                let source = Source::of(request);
                let failed = auth::failed_verifications(request.rules, &request.message, reason);
                self.budgets.charge_verifications(source, failed);
                // All other refusals follow the check of a nonce that was issued to this address.
                let before_nonce = matches!(
                    reason,
                    Refusal::NoCredentials | Refusal::IncompleteCredentials | Refusal::InvalidNonce
                );
                let source = if before_nonce { source } else { source.proved() };
                // A response to an authenticated request is free, unless the credential is void. No
                // request is charged twice.
                let is_void =
                    matches!(reason, Refusal::CredentialExpired | Refusal::CredentialRevoked);
                let free = user.is_some() && !is_void || charged == Charged::Yes;
                if !free && let Err(spent) = self.charge(request, source) {
                    return Verdict::Drop(spent);
                }
                self.challenge(request, &responder.named(user), reason, reply)
            }
        }
    }

    /// Applies the rules that follow authentication (RFC 8656 §5).
    fn handle_authenticated(
        &mut self,
        own: &Authenticated<'_>,
        charged: Charged,
        reply: &mut ReplyBuffer,
    ) -> Result<Verdict, Refusal> {
        let Authenticated { request, grant, .. } = *own;
        let (policy, now, method) = (request.policy, request.now.instant, request.message.method());
        let five_tuple = &request.path.five_tuple;
        if request.unknown_attributes().next().is_some() {
            return Err(Refusal::UnknownAttributes);
        }
        if method == Method::BINDING {
            return Ok(binding::answer(own, reply));
        }
        if method == Method::ALLOCATE {
            let draining = self.draining;
            return self.allocate().handle(own, draining, reply);
        }
        if method == Method::CONNECTION_BIND {
            let is_control =
                self.live_slot(now, five_tuple).is_some() || self.pending.is_opening(five_tuple);
            return connection_bind::handle(own, is_control, &mut self.outbox);
        }
        let Some(slot) = self.live_slot(now, five_tuple) else {
            let has_waited = charged == Charged::Yes;
            let moving = self.moves().handle_before_arrival(own, has_waited, reply);
            return moving.unwrap_or_else(|| match method {
                Method::REFRESH => self.moves().refresh_from_elsewhere(own, reply),
                _ => Err(Refusal::NoAllocation),
            });
        };
        if !self.allocations.get(slot).grant.is_same_user(grant) {
            return Err(Refusal::WrongUser);
        }
        if method == Method::REFRESH
            && let Some(verdict) = self.moves().answer_again(own, slot, reply)
        {
            return Ok(verdict);
        }
        if self.allocations.get(slot).expects(five_tuple) {
            self.complete_move(policy, now, slot);
        }
        let verdict = self.handle_own(own, slot, reply);
        // A Refresh may have ended the allocation.
        if let Some(slot) = self.allocations.of_client(five_tuple) {
            self.allocations.update_routes(policy, now, slot, &mut self.outbox);
        }
        verdict
    }

    /// Handles a request on an allocation's 5-tuple from the user of the allocation.
    fn handle_own(
        &mut self,
        own: &Authenticated<'_>,
        slot: Slot,
        reply: &mut ReplyBuffer,
    ) -> Result<Verdict, Refusal> {
        let message = &own.request.message;
        match message.method() {
            Method::REFRESH => match message.first(AttributeType::MOBILITY_TICKET) {
                Some(ticket) => self.moves().refresh_by_own_ticket(own, slot, ticket, reply),
                None => {
                    let Self { allocations, outbox, .. } = self;
                    refresh::handle(own, allocations, slot, outbox, reply)
                }
            },
            Method::CREATE_PERMISSION => self.permit().create_permission(own, slot, reply),
            Method::CONNECT => self.connect().handle(own, slot),
            // ChannelBind is the only remaining method.
            _ => self.permit().channel_bind(own, slot, reply),
        }
    }

    /// Starts the look-up of a request's user, for which the request waits. The sender is known or
    /// has been charged.
    fn wait_for_user(
        &mut self,
        request: &Request<'_>,
        user: UserQuery,
        known: bool,
        responder: &Responder,
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        let Request { policy, now, path, message, .. } = *request;
        if message.bytes().len() > WAITING_REQUEST_MAX {
            return self.challenge(request, responder, Refusal::BadRequest, reply);
        }
        let by_ticket = is_by_ticket(policy, &message);
        let (arrived, bytes) = (request.arrived, Box::from(message.bytes()));
        let deferred = DeferredRequest { path: *path, arrived, bytes, by_ticket };
        let lookup = UserLookup { request: deferred, known };
        let client = path.five_tuple.client;
        let live = self.live_slot(now.instant, &path.five_tuple);
        let Self { allocations, expected, .. } = self;
        let grant = known_grant(allocations, expected, live, &path.five_tuple, now.instant);
        let (wait, claimant) = match grant.filter(|_| known) {
            Some(grant) => (Wait::KnownUser, grant.claimant(client)),
            None => (Wait::User, Claimant::at(client.ip())),
        };
        if !self.pending.may_look_up(&path.five_tuple)
            || self.pending.check(wait, &claimant).is_err()
        {
            return self.refuse_look_up(request, responder, reply);
        }
        let key = (path.five_tuple, message.transaction_id());
        let slot = self.pending.take_slot(wait, &claimant);
        let pending = self.pending.insert(now.instant, key, slot, Waiting::User(lookup));
        let realm = request.rules.name.clone();
        let has_allocation = known;
        self.outbox.command(Command::FindUser { pending, client, has_allocation, realm, user });
        if message.method() == Method::CONNECTION_BIND { Verdict::Hold } else { Verdict::Wait }
    }

    /// Refuses a request whose user cannot be looked up now. A client over UDP gets no response,
    /// and repeats the request. A client over a connection gets an error, because such clients
    /// would wait for ever.
    fn refuse_look_up(
        &mut self,
        request: &Request<'_>,
        responder: &Responder,
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        self.report_spent(request, Budget::UserLookups);
        if !request.path.five_tuple.transport.is_datagram() {
            return self.challenge(request, responder, Refusal::UserLookupsOverloaded, reply);
        }
        self.outbox.refused(responder, Refusal::UserLookupsOverloaded);
        Verdict::Drop(DropReason::TooManyPending)
    }

    /// Refuses an authenticated request.
    fn refuse(
        &mut self,
        own: &Authenticated<'_>,
        reason: Refusal,
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        let Authenticated { request, responder, .. } = *own;
        let Request { path, .. } = request;
        self.allocations.count_refusal(&path.five_tuple, reason);
        let peer = (reason == Refusal::PeerForbidden).then(|| forbidden_peer::find(own));
        let peer = peer.flatten();
        let rules = (request.policy, request.rules);
        let customer = Prefix::customer(path.five_tuple.client.ip());
        let share = share_holder(&self.registry, rules, own.grant, customer, reason);
        let refused = RefusedRequest { peer, share, ..responder.refused(reason) };
        self.outbox.notice(Notice::Refused(refused));
        responder.error(reply, reason, |builder| {
            if reason == Refusal::UnknownAttributes {
                builder.unknown_attributes(&request.unknown_listed());
            } else if reason == Refusal::DontFragment {
                builder.unknown_attributes(&[AttributeType::DONT_FRAGMENT]);
            } else if reason == Refusal::Redirected
                && let Some(alternate) = request.rules.alternates.for_client(&path.five_tuple)
            {
                write_alternate(builder, alternate);
            }
        })
    }

    /// Refuses a request without MESSAGE-INTEGRITY, with the attributes that the client needs for a
    /// second attempt.
    fn challenge(
        &mut self,
        request: &Request<'_>,
        responder: &Responder,
        reason: Refusal,
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        let Request { rules, now, path, message, .. } = *request;
        let claimed = message.first(AttributeType::USERNAME);
        let claimed = claimed.and_then(|name| value::username(name).ok());
        let claimed = claimed.filter(|_| responder.user.is_none());
        let claimed = claimed.map(|name| Arc::from(UserName::form_of(name)));
        let mut refused = responder.refused(reason);
        if refused.account.is_none() {
            let name = refused.user.as_ref().or(claimed.as_ref());
            let account = name.map(|name| auth::account_of(rules.auth, name, now.unix));
            refused.account = account.map(Arc::from);
        }
        self.allocations.count_refusal(&path.five_tuple, reason);
        self.outbox.notice(Notice::Refused(RefusedRequest { claimed, ..refused }));
        responder.error(reply, reason, |builder| {
            auth::challenge(builder, rules, now, path.five_tuple.client, reason);
        })
    }

    /// Charges one unauthenticated response to the budget of the source.
    fn charge(&mut self, request: &Request<'_>, source: Source) -> Result<(), DropReason> {
        self.budgets.charge_response(source, request.message.method(), &mut self.outbox)
    }

    fn report_spent(&mut self, request: &Request<'_>, budget: Budget) {
        let customer = Prefix::customer(request.path.five_tuple.client.ip());
        let now = request.now.instant;
        self.budgets.report_spent(now, budget, customer, &mut self.outbox);
    }
}
