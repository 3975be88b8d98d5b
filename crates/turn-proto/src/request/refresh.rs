//! Refresh (RFC 8656 §8.2): prolongs an allocation or, with LIFETIME 0, ends it at once. In a dual
//! allocation REQUESTED-ADDRESS-FAMILY names one half; without it both are meant. With a mobility ticket
//! see [`super::mobile`].

use core::time::Duration;

use stun_wire::{AttributeType, Message, value};
use turn_types::{Instant, IpFamily, Now};

use super::OwnRequest;
use super::allocate::{granted, seconds};
use crate::allocation::index_of;
use crate::auth::Authenticated;
use crate::notice::{EndReason, Refusal};
use crate::policy::Policy;
use crate::state::State;
use crate::table::Slot;
use crate::verdict::{ReplyBuffer, Verdict};

/// What a well-formed Refresh asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// LIFETIME; 0 is the end.
    lifetime: Option<u32>,
    /// The half that is meant, if not all of it.
    family: Option<IpFamily>,
}

impl Wish {
    pub(crate) fn read(message: &Message<'_>) -> Result<Self, Refusal> {
        let lifetime = match message.first(AttributeType::LIFETIME) {
            Some(value) => Some(value::lifetime(value).map_err(|_| Refusal::BadRequest)?),
            None => None,
        };
        let family = match message.first(AttributeType::REQUESTED_ADDRESS_FAMILY) {
            Some(value) => {
                let number = value::address_family(value).map_err(|_| Refusal::BadRequest)?;
                // A family that nobody has is one that this allocation does not have.
                Some(IpFamily::from_wire(number).ok_or(Refusal::PeerFamilyMismatch)?)
            }
            None => None,
        };
        Ok(Self { lifetime, family })
    }
}

impl State {
    pub(crate) fn refresh(
        &mut self,
        own: &OwnRequest<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<Verdict, Refusal> {
        let message = &own.request.message;
        if let Some(ticket) = message.first(AttributeType::MOBILITY_TICKET) {
            return self.refresh_by_own_ticket(own, ticket, reply);
        }
        let wish = Wish::read(message)?;
        let (policy, now) = (own.request.policy, own.request.now);
        let lifetime = self.refresh_allocation(policy, now, own.slot, (own.who, wish))?;
        Ok(own.responder.success(policy, reply, |builder| {
            builder.lifetime(seconds(lifetime));
        }))
    }

    /// Prolongs an allocation or a half of it, or ends it: the lifetime that it has from now on.
    pub(crate) fn refresh_allocation(
        &mut self,
        policy: &Policy,
        now: Now,
        slot: Slot,
        (who, wish): (&Authenticated, Wish),
    ) -> Result<Duration, Refusal> {
        if let Some(family) = wish.family {
            let half = self.table.get(slot).half(family, now.instant);
            half.ok_or(Refusal::PeerFamilyMismatch)?;
        }
        if wish.lifetime == Some(0) {
            self.delete(slot, now.instant, wish.family);
            return Ok(Duration::ZERO);
        }
        let lifetime = who.at_most(granted(&policy.lifetimes, wish.lifetime), now.unix);
        self.table.get_mut(slot).credentials.renew(who);
        self.prolong(slot, now.instant, lifetime, wish.family);
        Ok(lifetime)
    }

    fn delete(&mut self, slot: Slot, now: Instant, family: Option<IpFamily>) {
        let keeps = |family: IpFamily| self.table.get(slot).half(family.other(), now).is_some();
        match family {
            Some(family) if keeps(family) => {
                self.close_half(slot, family);
                self.table.arm(slot);
            }
            Some(_) | None => self.end(slot, now, EndReason::Deleted),
        }
    }

    fn prolong(&mut self, slot: Slot, now: Instant, lifetime: Duration, family: Option<IpFamily>) {
        let allocation = self.table.get_mut(slot);
        for each in IpFamily::ALL {
            let meant = family.is_none_or(|family| family == each);
            if let Some(half) = &mut allocation.halves[index_of(each)]
                && meant
                && now < half.expires
            {
                half.expires = now + lifetime;
            }
        }
        self.table.arm(slot);
    }
}
