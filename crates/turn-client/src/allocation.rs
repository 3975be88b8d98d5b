//! Allocation granted to a client.

use core::net::SocketAddr;
use core::time::Duration;

use stun_wire::{AttributeType, Message, value};
use turn_types::{ClientAddr, IpFamily, RelayedAddr};

/// Allocation as described in the server's response (RFC 8656 §7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Relayed addresses: IPv4, IPv6. At least one is present.
    pub relayed: [Option<RelayedAddr>; 2],
    /// Address of the client, as received by the server (XOR-MAPPED-ADDRESS).
    pub mapped: ClientAddr,
    /// Time to expiry without a refresh.
    pub lifetime: Duration,
    /// Token of the reserved next port.
    pub reservation_token: Option<[u8; 8]>,
    /// Requested family that was not granted, and the error code.
    pub missing: Option<(IpFamily, u16)>,
}

impl Allocation {
    /// Returns the relayed address of this family.
    #[must_use]
    pub const fn relayed_of(&self, family: IpFamily) -> Option<RelayedAddr> {
        self.relayed[family as usize]
    }

    /// Parses a success response. Returns `None` if a required attribute is missing or malformed.
    pub(crate) fn read(message: &Message<'_>) -> Option<Self> {
        let id = message.transaction_id();
        let xor = |value| value::xor_address(value, id).ok();
        let mut relayed: [Option<RelayedAddr>; 2] = [None; 2];
        for attribute in message.attributes() {
            if attribute.kind == AttributeType::XOR_RELAYED_ADDRESS {
                let address = xor(attribute.value)?;
                let place = &mut relayed[IpFamily::of(address.ip()) as usize];
                // The first address of a family has precedence (RFC 8489 §14).
                place.get_or_insert(RelayedAddr(address));
            }
        }
        let mapped: SocketAddr = xor(message.first(AttributeType::XOR_MAPPED_ADDRESS)?)?;
        let lifetime = value::lifetime(message.first(AttributeType::LIFETIME)?).ok()?;
        let token = message.first(AttributeType::RESERVATION_TOKEN);
        let missing = message.first(AttributeType::ADDRESS_ERROR_CODE);
        relayed.iter().any(Option::is_some).then_some(Self {
            relayed,
            mapped: ClientAddr(mapped),
            lifetime: Duration::from_secs(u64::from(lifetime)),
            reservation_token: token.and_then(|value| value::reservation_token(value).ok()),
            missing: missing
                .and_then(|value| value::address_error_code(value).ok())
                .and_then(|(family, code, _)| Some((IpFamily::from_wire(family)?, code))),
        })
    }
}
