//! Refresh (RFC 8656 §8.2): prolongs an allocation or, with LIFETIME 0, ends it at once. In a dual
//! allocation REQUESTED-ADDRESS-FAMILY names one half; without it both are meant.

use core::time::Duration;

use stun_wire::{AttributeType, value};
use turn_types::{Instant, IpFamily};

use super::OwnRequest;
use super::allocate::{granted, seconds};
use crate::allocation::index_of;
use crate::notice::{EndReason, Refusal};
use crate::state::State;
use crate::verdict::{ReplyBuffer, Verdict};

impl State {
    pub(crate) fn refresh(
        &mut self,
        own: &OwnRequest<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<Verdict, Refusal> {
        let policy = own.request.policy;
        let now = own.request.now.instant;
        let message = &own.request.message;
        let asked = match message.first(AttributeType::LIFETIME) {
            Some(value) => Some(value::lifetime(value).map_err(|_| Refusal::BadRequest)?),
            None => None,
        };
        let family = match message.first(AttributeType::REQUESTED_ADDRESS_FAMILY) {
            Some(value) => {
                let number = value::address_family(value).map_err(|_| Refusal::BadRequest)?;
                // A family that nobody has is one that this allocation does not have.
                let family = IpFamily::from_wire(number).ok_or(Refusal::PeerFamilyMismatch)?;
                let half = self.table.get(own.slot).half(family, now);
                half.ok_or(Refusal::PeerFamilyMismatch)?;
                Some(family)
            }
            None => None,
        };
        let lifetime = if asked == Some(0) {
            self.delete(own, now, family);
            Duration::ZERO
        } else {
            let lifetime = granted(&policy.lifetimes, asked);
            let lifetime = own.who.at_most(lifetime, own.request.now.unix);
            self.table.get_mut(own.slot).credentials.renew(own.who);
            self.prolong(own, now + lifetime, family);
            lifetime
        };
        Ok(own.responder.success(policy, reply, |builder| {
            builder.lifetime(seconds(lifetime));
        }))
    }

    fn delete(&mut self, own: &OwnRequest<'_>, now: Instant, family: Option<IpFamily>) {
        let slot = own.slot;
        let keeps = |family: IpFamily| self.table.get(slot).half(family.other(), now).is_some();
        match family {
            Some(family) if keeps(family) => {
                self.close_half(slot, family);
                self.table.arm(slot);
            }
            Some(_) | None => self.end(slot, now, EndReason::Deleted),
        }
    }

    fn prolong(&mut self, own: &OwnRequest<'_>, expires: Instant, family: Option<IpFamily>) {
        let now = own.request.now.instant;
        let allocation = self.table.get_mut(own.slot);
        for each in IpFamily::ALL {
            let meant = family.is_none_or(|family| family == each);
            if let Some(half) = &mut allocation.halves[index_of(each)]
                && meant
                && now < half.expires
            {
                half.expires = expires;
            }
        }
        self.table.arm(own.slot);
    }
}
