//! The attributes of Allocate (RFC 8656 §7.1, RFC 6062 §4.1, RFC 8016 §3.1), read in one place. An
//! attribute that is added is read here, and is listed in
//! [`is_understood`](crate::io::request::is_understood) if it is comprehension-required. As a field
//! of [`AllocationAttributes`] it is kept with the allocation, is part of its snapshot
//! (`store/snapshot.rs` gets another version) and of its record, which `admin/src/types/session.rs`
//! shows.

use state_format::fields;
use stun_wire::{AttributeType, Message, value};
use turn_types::{ClientPath, IpFamily, RelayProtocol, Transport};

use super::refusal::Refusal;
use crate::policy::{DefaultFamily, Policy, PortRequirement};

/// REQUESTED-TRANSPORT: UDP (RFC 8656 §7.1).
const UDP: u8 = 17;

/// REQUESTED-TRANSPORT: TCP (RFC 6062 §4.1).
const TCP: u8 = 6;

/// The attributes of an Allocate that hold as long as its allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocationAttributes {
    /// REQUESTED-TRANSPORT: the protocol that is relayed.
    pub protocol: RelayProtocol,
}

fields!(AllocationAttributes { 1 => protocol });

/// The attributes of a well-formed Allocate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocateRequest {
    /// The attributes that the allocation keeps.
    pub(crate) kept: AllocationAttributes,
    /// REQUESTED-ADDRESS-FAMILY, ADDITIONAL-ADDRESS-FAMILY, EVEN-PORT and RESERVATION-TOKEN.
    pub(crate) relayed: RequestedAddresses,
    /// LIFETIME in seconds.
    pub(crate) lifetime: Option<u32>,
    /// An empty MOBILITY-TICKET: the client wants to move (RFC 8016 §3.1).
    pub(crate) mobile: bool,
}

/// The relayed addresses that are requested.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestedAddresses {
    /// The reserved one of this token.
    Reserved([u8; 8]),
    /// One of this family.
    One(IpFamily, PortRequirement),
    /// One of each family, or either.
    Both(PortRequirement),
}

impl AllocateRequest {
    /// Steps 3 to 9 of RFC 8656 §7.2, in that order.
    pub(crate) fn read(
        policy: &Policy,
        path: &ClientPath,
        message: &Message<'_>,
    ) -> Result<Self, Refusal> {
        let transport = message
            .first(AttributeType::REQUESTED_TRANSPORT)
            .and_then(|value| value::requested_transport(value).ok())
            .ok_or(Refusal::BadRequest)?;
        let protocol = match transport {
            UDP if policy.udp_relaying => RelayProtocol::Udp,
            TCP if policy.tcp_relaying => RelayProtocol::Tcp,
            _ => return Err(Refusal::UnsupportedTransport),
        };
        let kept = AllocationAttributes { protocol };
        if protocol == RelayProtocol::Tcp && !may_relay_tcp(path, message) {
            return Err(Refusal::BadRequest);
        }
        let requested = family_number(message, AttributeType::REQUESTED_ADDRESS_FAMILY);
        let additional =
            family_number(message, AttributeType::ADDITIONAL_ADDRESS_FAMILY).or_else(|| {
                let kind = AttributeType::DRAFT_ADDITIONAL_ADDRESS_FAMILY;
                policy.rfc5766_clients.then(|| family_number(message, kind)).flatten()
            });
        // DF of a packet that comes over IPv4 cannot be read, so that it cannot be translated to
        // IPv6 (RFC 8656 §3.7).
        let wants_v6 = [&requested, &additional].iter().any(|family| matches!(family, Some(Ok(2))));
        let over_v4 = path.five_tuple.client.family() == IpFamily::V4;
        if message.first(AttributeType::DONT_FRAGMENT).is_some() && wants_v6 && over_v4 {
            return Err(Refusal::DontFragment);
        }
        let ticket = message.first(AttributeType::MOBILITY_TICKET);
        if ticket.is_some_and(|ticket| !ticket.is_empty()) {
            return Err(Refusal::BadRequest);
        }
        let mobile = ticket.is_some();
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
            let relayed = RequestedAddresses::Reserved(token);
            return Ok(Self { kept, relayed, lifetime, mobile });
        }
        if requested.is_some() && additional.is_some() {
            return Err(Refusal::BadRequest);
        }
        let client = path.five_tuple.client.family();
        let family = served_family(policy, client, requested, additional.is_some())?;
        let requirement = match even_port.map(value::even_port) {
            None => PortRequirement::Any,
            Some(Ok(false)) => PortRequirement::Even,
            Some(Ok(true)) if additional.is_none() => PortRequirement::EvenWithNext,
            Some(Ok(true) | Err(_)) => return Err(Refusal::BadRequest),
        };
        let relayed = match additional {
            None => RequestedAddresses::One(family, requirement),
            Some(Ok(2)) => RequestedAddresses::Both(requirement),
            Some(Ok(_) | Err(_)) => return Err(Refusal::BadRequest),
        };
        Ok(Self { kept, relayed, lifetime, mobile })
    }
}

/// Returns true if TCP can be relayed for a request: over a connection, and without the attributes
/// of datagrams and their ports (RFC 6062 §5.1).
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

/// Step 7: the requested family, the default without one, if it is served. A dual request is judged
/// family by family later, for one of both is enough.
fn served_family(
    policy: &Policy,
    client: IpFamily,
    requested: Option<Result<u8, Refusal>>,
    dual: bool,
) -> Result<IpFamily, Refusal> {
    let family = match requested.transpose()? {
        Some(number) => IpFamily::from_wire(number).ok_or(Refusal::FamilyUnsupported)?,
        None => match policy.default_family {
            DefaultFamily::V4 => IpFamily::V4,
            DefaultFamily::V6 => IpFamily::V6,
            DefaultFamily::Client => client,
        },
    };
    let served = dual || policy.relays_family(family);
    if served { Ok(family) } else { Err(without_relay_of(policy, family)) }
}

/// The reason for which no allocation can have an address of a family.
pub(crate) fn without_relay_of(policy: &Policy, family: IpFamily) -> Refusal {
    if policy.awaits_family(family) {
        Refusal::RelayAddressAbsent
    } else {
        Refusal::FamilyUnsupported
    }
}
