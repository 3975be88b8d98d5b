//! Allocate (RFC 8656 §7.2). The checks run in the order of the RFC. A request that passes them
//! waits for its relay sockets (see [`super::opening`]); nothing is promised before they are open.
//!
//! The RFC's steps 10 (quota) and 11 (redirection) may stand anywhere; here they are last, but
//! before a reservation is redeemed, so that a refusal does not cost the client its token.

use alloc::sync::Arc;
use core::time::Duration;

use stun_wire::{AttributeType, Message, MessageBuilder, reason_phrase, value};
use turn_types::{ClientPath, IpFamily, Prefix, RelayProtocol, Transport};

use super::Request;
use super::opening::Opening;
use crate::allocation::Allocation;
use crate::answer::{Responder, alternate_for};
use crate::auth::Authenticated;
use crate::notice::Refusal;
use crate::peer_rules::is_tunnel;
use crate::policy::{Lifetimes, Policy};
use crate::ports::PortRequirement;
use crate::registry::{self, Account, AllocationQuota, Reservation};
use crate::state::State;
use crate::table::Slot;
use crate::verdict::{ReplyBuffer, Verdict};

/// REQUESTED-TRANSPORT: UDP (RFC 8656 §7.1).
const UDP: u8 = 17;

/// REQUESTED-TRANSPORT: TCP (RFC 6062 §4.1).
const TCP: u8 = 6;

/// What a well-formed Allocate asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) protocol: RelayProtocol,
    pub(crate) relayed: Relayed,
    pub(crate) lifetime: Option<u32>,
    /// A ticket for moving (RFC 8016 §3.1).
    pub(crate) ticket: bool,
}

/// Which relayed addresses it asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Relayed {
    /// The one that was reserved.
    Reserved([u8; 8]),
    /// One of this family.
    One(IpFamily, PortRequirement),
    /// One of each family, or either.
    Both(PortRequirement),
}

impl State {
    pub(crate) fn allocate(
        &mut self,
        request: &Request<'_>,
        who: Authenticated,
        responder: &Responder,
        reply: &mut ReplyBuffer,
    ) -> Result<Verdict, Refusal> {
        let Request { policy, now, path, message } = *request;
        if let Some(slot) = self.live_slot(now.instant, &path.five_tuple) {
            return self.allocate_again(request, slot, responder, reply);
        }
        if self.pending.is_opening(&path.five_tuple)
            || self.pending.is_moving(&path.five_tuple)
            || self.arrivals.get(&path.five_tuple, now.instant).is_some()
        {
            return Err(Refusal::AllocationExists);
        }
        if is_tunnel(path.five_tuple.client.ip()) {
            return Err(Refusal::TunnelClient);
        }
        let wanted = Wanted::read(policy, path, &message)?;
        // Only under integrity (RFC 8489 §14.8): an open relay redirects nobody.
        if responder.is_sealed() && alternate_for(policy, path.five_tuple.client.family()).is_some()
        {
            return Err(Refusal::Redirected);
        }
        if self.draining {
            return Err(Refusal::Draining);
        }
        if self.pending.is_full() {
            return Err(Refusal::SystemExhausted);
        }
        let per_account = who.allocations_max.unwrap_or(policy.quotas.allocations_per_user);
        let total = policy.quotas.allocations_total;
        let account = Account { realm: Arc::clone(&policy.realm), name: Arc::clone(&who.account) };
        let per_customer = policy.quotas.allocations_per_customer;
        let quota = AllocationQuota { per_account, per_customer, total };
        let customer = Prefix::customer(path.five_tuple.client.ip());
        let quota = registry::take_quota(&self.registry, (account, customer), quota)?;
        // Connections with peers end in the client's own connection, which cannot be taken elsewhere.
        let may_move = policy.mobility && wanted.protocol == RelayProtocol::Udp;
        if wanted.ticket && !(may_move && responder.is_sealed()) {
            return Err(Refusal::MobilityForbidden);
        }
        let lifetime = who.at_most(granted(&policy.lifetimes, wanted.lifetime), now.unix);
        let lifetime = (lifetime, wanted.ticket);
        let mut opening = Opening::new(responder.clone(), who, lifetime, (wanted.protocol, quota));
        match wanted.relayed {
            Relayed::Reserved(token) => {
                let reservation = self.redeem(request, &token)?;
                opening.wants_reserved(policy, self, reservation)?;
            }
            Relayed::One(family, wish) => opening.wants(policy, self, family, wish)?,
            Relayed::Both(wish) => opening.wants_both(policy, self, wish)?,
        }
        self.open(now.instant, opening);
        Ok(Verdict::Wait)
    }

    /// An Allocate on a 5-tuple that has an allocation: either the one that made it, come again, and
    /// answered again (RFC 8489 §6.3.1), or a mistake.
    fn allocate_again(
        &mut self,
        request: &Request<'_>,
        slot: Slot,
        responder: &Responder,
        reply: &mut ReplyBuffer,
    ) -> Result<Verdict, Refusal> {
        let allocation = self.table.get(slot);
        let same_transaction = allocation.transaction == responder.transaction;
        if !same_transaction || Some(&allocation.credentials.user) != responder.user.as_ref() {
            return Err(Refusal::AllocationExists);
        }
        let now = request.now.instant;
        let left = allocation.expires().unwrap_or(now).saturating_since(now);
        Ok(responder.success(request.policy, reply, |builder| {
            write_allocation(builder, allocation, left);
        }))
    }

    fn redeem(&mut self, request: &Request<'_>, token: &[u8; 8]) -> Result<Reservation, Refusal> {
        let now = request.now.instant;
        registry::redeem(&self.registry, *token, now).ok_or(Refusal::BadReservationToken)
    }
}

impl Wanted {
    /// Steps 3 to 9 of RFC 8656 §7.2, in that order.
    fn read(policy: &Policy, path: &ClientPath, message: &Message<'_>) -> Result<Self, Refusal> {
        let transport = message
            .first(AttributeType::REQUESTED_TRANSPORT)
            .and_then(|value| value::requested_transport(value).ok())
            .ok_or(Refusal::BadRequest)?;
        let protocol = match transport {
            UDP => RelayProtocol::Udp,
            TCP if policy.tcp_relaying => RelayProtocol::Tcp,
            _ => return Err(Refusal::UnsupportedTransport),
        };
        if protocol == RelayProtocol::Tcp && !may_relay_tcp(path, message) {
            return Err(Refusal::BadRequest);
        }
        let requested = family_number(message, AttributeType::REQUESTED_ADDRESS_FAMILY);
        let additional =
            family_number(message, AttributeType::ADDITIONAL_ADDRESS_FAMILY).or_else(|| {
                let kind = AttributeType::DRAFT_ADDITIONAL_ADDRESS_FAMILY;
                policy.rfc5766_clients.then(|| family_number(message, kind)).flatten()
            });
        // DF of a packet that comes over IPv4 cannot be read, so it cannot be carried over to IPv6
        // (RFC 8656 §3.7).
        let wants_v6 = [&requested, &additional].iter().any(|family| matches!(family, Some(Ok(2))));
        let over_v4 = path.five_tuple.client.family() == IpFamily::V4;
        if message.first(AttributeType::DONT_FRAGMENT).is_some() && wants_v6 && over_v4 {
            return Err(Refusal::DontFragment);
        }
        let ticket = message.first(AttributeType::MOBILITY_TICKET);
        if ticket.is_some_and(|ticket| !ticket.is_empty()) {
            return Err(Refusal::BadRequest);
        }
        let ticket = ticket.is_some();
        let even_port = message.first(AttributeType::EVEN_PORT);
        let lifetime = match message.first(AttributeType::LIFETIME) {
            Some(value) => Some(value::lifetime(value).map_err(|_| Refusal::BadRequest)?),
            None => None,
        };
        if let Some(token) = message.first(AttributeType::RESERVATION_TOKEN) {
            if even_port.is_some() || requested.is_some() || additional.is_some() {
                return Err(Refusal::BadRequest);
            }
            let token = value::reservation_token(token).map_err(|_| Refusal::BadRequest)?;
            return Ok(Self { protocol, relayed: Relayed::Reserved(token), lifetime, ticket });
        }
        if requested.is_some() && additional.is_some() {
            return Err(Refusal::BadRequest);
        }
        let family = served_family(policy, requested, additional.is_some())?;
        let wish = match even_port.map(value::even_port) {
            None => PortRequirement::Any,
            Some(Ok(false)) => PortRequirement::Even,
            Some(Ok(true)) if additional.is_none() => PortRequirement::EvenWithNext,
            Some(Ok(true) | Err(_)) => return Err(Refusal::BadRequest),
        };
        let relayed = match additional {
            None => Relayed::One(family, wish),
            Some(Ok(2)) => Relayed::Both(wish),
            Some(Ok(_) | Err(_)) => return Err(Refusal::BadRequest),
        };
        Ok(Self { protocol, relayed, lifetime, ticket })
    }
}

/// Whether TCP can be relayed for a request: over a connection, and without what is said of datagrams
/// and their ports (RFC 6062 §5.1).
fn may_relay_tcp(path: &ClientPath, message: &Message<'_>) -> bool {
    const OF_DATAGRAMS: [AttributeType; 3] =
        [AttributeType::DONT_FRAGMENT, AttributeType::EVEN_PORT, AttributeType::RESERVATION_TOKEN];
    let by_stream = match path.five_tuple.transport {
        Transport::Tcp | Transport::Tls => true,
        Transport::Udp | Transport::Dtls => false,
    };
    by_stream && OF_DATAGRAMS.iter().all(|kind| message.first(*kind).is_none())
}

/// An address family as it stands in the message; `Some(Err)` is malformed.
fn family_number(message: &Message<'_>, kind: AttributeType) -> Option<Result<u8, Refusal>> {
    let value = message.first(kind)?;
    Some(value::address_family(value).map_err(|_| Refusal::BadRequest))
}

/// Step 7: the family asked for, IPv4 when none is, if it is served. A dual request is judged
/// family by family later, for one of both may do.
fn served_family(
    policy: &Policy,
    requested: Option<Result<u8, Refusal>>,
    dual: bool,
) -> Result<IpFamily, Refusal> {
    let family = match requested.transpose()? {
        Some(number) => IpFamily::from_wire(number).ok_or(Refusal::FamilyUnsupported)?,
        None => IpFamily::V4,
    };
    let served = dual || policy.relay_of(family).next().is_some();
    if served { Ok(family) } else { Err(Refusal::FamilyUnsupported) }
}

/// The lifetime for what a client asks, in seconds: max(default, min(asked, maximum))
/// (RFC 8656 §7.2). Nothing asked is the default.
pub(crate) fn granted(lifetimes: &Lifetimes, asked: Option<u32>) -> Duration {
    let asked = asked.map_or(lifetimes.allocation_default, |secs| Duration::from_secs(secs.into()));
    asked.min(lifetimes.allocation_max).max(lifetimes.allocation_default)
}

/// LIFETIME for a duration: whole seconds, a part of one counting as one.
pub(crate) fn seconds(lifetime: Duration) -> u32 {
    let up = lifetime.as_secs() + u64::from(lifetime.subsec_nanos() > 0);
    u32::try_from(up).unwrap_or(u32::MAX)
}

/// What a success response to Allocate carries (RFC 8656 §7.2).
pub(crate) fn write_allocation(
    builder: &mut MessageBuilder<'_>,
    allocation: &Allocation,
    lifetime: Duration,
) {
    for (half, relayed) in allocation.halves.iter().zip(&allocation.relayed) {
        if let (Some(_), Some(relayed)) = (half, relayed) {
            builder.xor_address(AttributeType::XOR_RELAYED_ADDRESS, relayed.0);
        }
    }
    builder.lifetime(seconds(lifetime));
    let client = allocation.path.five_tuple.client;
    builder.xor_address(AttributeType::XOR_MAPPED_ADDRESS, client.0);
    if let Some(token) = allocation.token {
        builder.reservation_token(token);
    }
    if let Some(mobility) = &allocation.mobility {
        builder.mobility_ticket(mobility.ticket.as_bytes());
    }
    if let Some((family, reason)) = allocation.address_error {
        let code = reason.code();
        builder.address_error_code(family.wire(), code, reason_phrase(code));
    }
}
