//! The authorizer: somebody outside who is asked about each Allocate of an authenticated client
//! that passed every check, and may narrow its limits. No port is claimed before.

use alloc::boxed::Box;
use alloc::sync::Arc;

use turn_types::{Instant, Now, PendingId};

use super::allocate::{Allocate, share_holder, take_quota};
use crate::auth;
use crate::io::{
    Applicant, Authorization, Command, Notice, Refusal, RefusedRequest, ReplyBuffer, Responder,
    Verdict,
};
use crate::policy::{GrantLimits, Policy, WhenSilent};
use crate::store::{PendingAllocation, Wait, Waiting};

impl Allocate<'_> {
    /// Asks about an Allocate, which waits for the answer. It holds its place in the quotas
    /// meanwhile, so that no user has more questions open than allocations.
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

    /// Handles the answer. Returns the verdict of the Allocate unless it goes on to wait for its
    /// relay sockets.
    pub(crate) fn authorized(
        &mut self,
        policy: &Policy,
        now: Now,
        pending: PendingId,
        answer: &Authorization,
        reply: &mut ReplyBuffer,
    ) -> Option<(Responder, Verdict)> {
        let allocation = self.pending.take_authorization(pending)?;
        let responder = allocation.responder.clone();
        let (grant, customer) = (allocation.grant.clone(), allocation.quota.customer());
        let reason = self.go_on(policy, now, allocation, answer).err()?;
        let rules = policy.of(&grant.realm);
        let share = share_holder(self.registry, (policy, rules), &grant, customer, reason);
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
            // Not subject to the policy: a client with many requests would be served otherwise.
            Authorization::Overloaded => return Err(Refusal::AuthorizerOverloaded),
            Authorization::Unavailable => match rules.auth.authorizer {
                Some(WhenSilent::Refuse) => return Err(Refusal::AuthorizerUnavailable),
                // Turned off by a reload meanwhile.
                Some(WhenSilent::Serve) | None => {}
            },
        }
        // During the question a reload may have revoked the credential, or removed its secret or
        // key.
        let grant = &allocation.grant;
        if grant.is_revoked(rules.revoked) || !auth::is_still_accepted(rules, grant) {
            return Err(Refusal::CredentialRevoked);
        }
        self.claim_ports(policy, now.instant, allocation)
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
        let customer = quota.customer();
        // It must not count beside itself.
        drop(quota);
        let quota = take_quota(self.registry, policy, rules, &grant, customer)?;
        Ok(PendingAllocation { grant, quota, lifetime, ..allocation })
    }
}
