//! Attributes of Allocate (RFC 8656 §7.1, RFC 6062 §4.1, RFC 8016 §3.1), all read in this module.
//!
//! To add an attribute, read it in this module. If the attribute is comprehension-required, list
//! the attribute in [`is_understood`](crate::io::request::is_understood). A field of
//! [`AllocationAttributes`] is stored with the allocation, and is part of the allocation's snapshot
//! and record. A new field needs a new version of `store/snapshot.rs`. `admin/src/types/session.rs`
//! shows the record.

use state_format::fields;
use stun_wire::{AttributeType, Message, value};
use turn_types::{ClientPath, IpFamily, RelayProtocol, Transport};

use super::refusal::Refusal;
use crate::policy::{DefaultFamily, Policy, PortRequirement};

/// REQUESTED-TRANSPORT for UDP (RFC 8656 §7.1).
const UDP: u8 = 17;

/// REQUESTED-TRANSPORT for TCP (RFC 6062 §4.1).
const TCP: u8 = 6;

/// Attributes of an Allocate that are stored for the life of the allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocationAttributes {
    /// REQUESTED-TRANSPORT: the relayed protocol.
    pub protocol: RelayProtocol,
}

fields!(AllocationAttributes { 1 => protocol });

/// Attributes of a well-formed Allocate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocateRequest {
    /// Attributes stored with the allocation.
    pub(crate) kept: AllocationAttributes,
    /// REQUESTED-ADDRESS-FAMILY, ADDITIONAL-ADDRESS-FAMILY, EVEN-PORT and RESERVATION-TOKEN.
    pub(crate) relayed: RequestedAddresses,
    /// LIFETIME in seconds.
    pub(crate) lifetime: Option<u32>,
    /// True for an empty MOBILITY-TICKET: the client wants to move (RFC 8016 §3.1).
    pub(crate) mobile: bool,
}

/// Relayed addresses requested by an Allocate.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestedAddresses {
    /// Reserved address of this RESERVATION-TOKEN.
    Reserved([u8; 8]),
    /// Address of this family.
    One(IpFamily, PortRequirement),
    /// Address of each family. An address of either family is sufficient.
    Both(PortRequirement),
}

impl AllocateRequest {
    /// Reads an Allocate by steps 3 to 9 of RFC 8656 §7.2, in the RFC's order.
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
        // The DF bit of a packet received over IPv4 cannot be read, and therefore not translated to
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

/// Returns true if TCP can be relayed for a request (RFC 6062 §5.1). The request must arrive over
/// TCP or TLS, without attributes for datagrams and their ports.
fn may_relay_tcp(path: &ClientPath, message: &Message<'_>) -> bool {
    const OF_DATAGRAMS: [AttributeType; 3] =
        [AttributeType::DONT_FRAGMENT, AttributeType::EVEN_PORT, AttributeType::RESERVATION_TOKEN];
    let by_stream = match path.five_tuple.transport {
        Transport::Tcp | Transport::Tls => true,
        Transport::Udp | Transport::Dtls => false,
    };
    by_stream && OF_DATAGRAMS.iter().all(|kind| message.first(*kind).is_none())
}

/// Returns the address family number as sent. `Some(Err)`: the attribute is malformed.
fn family_number(message: &Message<'_>, kind: AttributeType) -> Option<Result<u8, Refusal>> {
    let value = message.first(kind)?;
    Some(value::address_family(value).map_err(|_| Refusal::BadRequest))
}

/// Performs step 7 of RFC 8656 §7.2: returns the requested or default family, if the policy serves
/// this family. Families of a dual request are checked later, because an address of one family is
/// enough.
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

/// Returns the reason why no allocation can have an address of a family.
pub(crate) fn without_relay_of(policy: &Policy, family: IpFamily) -> Refusal {
    if policy.awaits_family(family) {
        Refusal::RelayAddressAbsent
    } else {
        Refusal::FamilyUnsupported
    }
}
