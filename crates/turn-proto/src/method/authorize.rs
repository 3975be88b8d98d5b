//! Authorizer: an external service that decides about each Allocate of an authenticated client, and
//! may narrow the limits. The Allocate has passed all other checks. No port is claimed before the
//! decision.
//!
//! The decision may take seconds, in which the credential may expire or be revoked. After the
//! consent the policy judges the credential again. A user of the database is looked up again.

use alloc::boxed::Box;
use alloc::sync::Arc;

use turn_types::{Instant, Now, PendingId};

use super::allocate::{Allocate, share_holder, take_quota};
use crate::auth;
use crate::credentials::{Grant, Keys};
use crate::io::{
    Applicant, Authorization, Command, Notice, Refusal, RefusedRequest, ReplyBuffer, Responder,
    UserAnswer, UserQuery, Verdict,
};
use crate::policy::{GrantLimits, Policy, WhenSilent};
use crate::store::{PendingAllocation, Wait, Waiting};

impl Allocate<'_> {
    /// Queries the authorizer about an Allocate, which waits for the decision. The Allocate holds
    /// its quota slots during the wait. No user can therefore have more open queries than
    /// allocations.
    pub(super) fn ask_authorizer(
        &mut self,
        now: Instant,
        allocation: PendingAllocation,
    ) -> Result<(), Refusal> {
        let claimant = allocation.grant.claimant(allocation.responder.path.five_tuple.client);
        self.pending
            .check(Wait::Authorizer, &claimant)
            .map_err(|_| Refusal::AuthorizerOverloaded)?;
        let slot = self.pending.take_slot(Wait::Authorizer, &claimant);
        let five_tuple = allocation.responder.path.five_tuple;
        let applicant = Box::new(Applicant {
            realm: allocation.grant.realm.clone(),
            user: Arc::clone(&allocation.grant.user),
            account: Arc::clone(&allocation.grant.account),
            transport: five_tuple.transport,
            client: five_tuple.client,
        });
        let key = (five_tuple, allocation.responder.transaction);
        let waiting = Waiting::Authorizer(Box::new(allocation));
        let pending = self.pending.insert(now, key, slot, waiting);
        self.outbox.command(Command::Authorize { pending, applicant });
        Ok(())
    }

    /// Handles the authorizer's decision. Returns the verdict of a refused Allocate. `None`: the
    /// Allocate continues to wait, for its relay sockets or the second look-up of its user.
    pub(crate) fn authorized(
        &mut self,
        policy: &Policy,
        now: Now,
        pending: PendingId,
        answer: &Authorization,
        reply: &mut ReplyBuffer,
    ) -> Option<(Responder, Verdict)> {
        let allocation = self.pending.take_authorization(pending)?;
        self.continue_with(policy, allocation, reply, |allocate, allocation| {
            allocate.go_on(policy, now, allocation, answer)
        })
    }

    /// Handles the look-up of the user after the authorizer's consent. Returns the verdict of a
    /// refused Allocate. Otherwise the Allocate waits for its relay sockets.
    pub(crate) fn user_confirmed(
        &mut self,
        policy: &Policy,
        now: Now,
        pending: PendingId,
        answer: &UserAnswer,
        reply: &mut ReplyBuffer,
    ) -> Option<(Responder, Verdict)> {
        let allocation = self.pending.take_confirmation(pending)?;
        self.continue_with(policy, allocation, reply, |allocate, allocation| {
            confirm(&allocation.grant, answer)?;
            check_credential(policy, now, &allocation.grant)?;
            allocate.claim_ports(policy, now.instant, allocation)
        })
    }

    /// Continues a waiting Allocate by one step. Returns the verdict if the step refuses the
    /// Allocate.
    fn continue_with(
        &mut self,
        policy: &Policy,
        allocation: PendingAllocation,
        reply: &mut ReplyBuffer,
        step: impl FnOnce(&mut Self, PendingAllocation) -> Result<(), Refusal>,
    ) -> Option<(Responder, Verdict)> {
        let responder = allocation.responder.clone();
        let (grant, customer) = (allocation.grant.clone(), allocation.quota.customer());
        let reason = step(self, allocation).err()?;
        let rules = (policy, policy.of(&grant.realm));
        let share = share_holder(self.registry, rules, &grant, customer, reason);
        self.outbox.notice(Notice::Refused(RefusedRequest { share, ..responder.refused(reason) }));
        let verdict = responder.error(reply, reason, |_| ());
        Some((responder, verdict))
    }

    fn go_on(
        &mut self,
        policy: &Policy,
        now: Now,
        mut allocation: PendingAllocation,
        answer: &Authorization,
    ) -> Result<(), Refusal> {
        let rules = policy.of(&allocation.grant.realm);
        match answer {
            Authorization::Granted(limits) => {
                allocation = self.narrow(policy, now, allocation, limits)?;
            }
            Authorization::Denied => return Err(Refusal::NotAuthorized),
            // The policy for a silent authorizer does not apply. Otherwise clients could avoid the
            // authorizer by sending many requests.
            Authorization::Overloaded => return Err(Refusal::AuthorizerOverloaded),
            Authorization::Unusable => return Err(Refusal::AuthorizerUnavailable),
            Authorization::Unavailable => match rules.auth.authorizer {
                Some(WhenSilent::Refuse) => return Err(Refusal::AuthorizerUnavailable),
                // A reload has disabled the authorizer during the wait.
                Some(WhenSilent::Serve) | None => {}
            },
        }
        check_credential(policy, now, &allocation.grant)?;
        if allocation.grant.is_of_database() && !rules.auth.open {
            self.look_up_again(now.instant, allocation);
            return Ok(());
        }
        self.claim_ports(policy, now.instant, allocation)
    }

    /// Looks up the user of an Allocate again. The Allocate has just released a slot, so a slot is
    /// free.
    fn look_up_again(&mut self, now: Instant, allocation: PendingAllocation) {
        let Responder { path, transaction, .. } = allocation.responder;
        let client = path.five_tuple.client;
        let (realm, user) = (allocation.grant.realm.clone(), Arc::clone(&allocation.grant.user));
        let claimant = allocation.grant.claimant(client);
        let slot = self.pending.take_slot(Wait::Authorizer, &claimant);
        let waiting = Waiting::Confirmation(Box::new(allocation), now);
        let pending = self.pending.insert(now, (path.five_tuple, transaction), slot, waiting);
        // The client has proved its keys. Look-ups for unauthenticated sources do not delay this
        // look-up.
        let (has_allocation, user) = (true, UserQuery::Name(user));
        self.outbox.command(Command::FindUser { pending, client, has_allocation, realm, user });
    }

    fn narrow(
        &self,
        policy: &Policy,
        now: Now,
        allocation: PendingAllocation,
        limits: &GrantLimits,
    ) -> Result<PendingAllocation, Refusal> {
        if limits.is_empty() {
            return Ok(allocation);
        }
        let PendingAllocation { mut grant, quota, lifetime, .. } = allocation;
        grant.limit(limits);
        let lifetime = grant.at_most(lifetime, now.unix);
        let rules = policy.of(&grant.realm);
        // Release the old slots first, or the allocation would count twice.
        drop(quota);
        let five_tuple = &allocation.responder.path.five_tuple;
        let quota = take_quota(self.registry, (policy, rules), &grant, five_tuple)?;
        Ok(PendingAllocation { grant, quota, lifetime, ..allocation })
    }
}

/// Judges a credential by the current policy and time. A reload may have revoked the credential, or
/// removed its secret or key.
fn check_credential(policy: &Policy, now: Now, grant: &Grant) -> Result<(), Refusal> {
    let rules = policy.of(&grant.realm);
    if !rules.auth.open && grant.expires.is_some_and(|expires| now.unix >= expires) {
        return Err(Refusal::CredentialExpired);
    }
    if grant.is_revoked(rules.revoked) || !auth::is_still_accepted(rules, grant) {
        return Err(Refusal::CredentialRevoked);
    }
    Ok(())
}

/// Compares the keys of a grant with the user's current keys. An outage of the database refuses
/// only users changed by an operator, because the keys were right before the authorizer's decision.
fn confirm(grant: &Grant, answer: &UserAnswer) -> Result<(), Refusal> {
    match answer {
        UserAnswer::Known(user) | UserAnswer::LastKnown(user) => {
            let is_same = Keys::LongTerm(user.keys) == grant.keys;
            is_same.then_some(()).ok_or(Refusal::WrongPassword)
        }
        UserAnswer::Unknown => Err(Refusal::UnknownUser),
        UserAnswer::Overloaded => Err(Refusal::UserLookupsOverloaded),
        UserAnswer::Unavailable => Ok(()),
        UserAnswer::Unconfirmed => Err(Refusal::UserDatabaseUnavailable),
    }
}
