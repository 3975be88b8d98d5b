//! A granted allocation.

use core::net::SocketAddr;
use core::time::Duration;

use stun_wire::{AttributeType, Message, value};
use turn_types::{ClientAddr, IpFamily, RelayedAddr};

/// An allocation as the server described it in its answer (RFC 8656 §7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Relayed addresses: IPv4, IPv6. At least one is there.
    pub relayed: [Option<RelayedAddr>; 2],
    /// The client's address as the server sees it (XOR-MAPPED-ADDRESS).
    pub mapped: ClientAddr,
    /// Time to expiry unless refreshed.
    pub lifetime: Duration,
    /// Token of the reserved next port.
    pub reservation_token: Option<[u8; 8]>,
    /// The requested family that was not granted, and the error code.
    pub missing: Option<(IpFamily, u16)>,
}

impl Allocation {
    /// The relayed address of this family.
    #[must_use]
    pub const fn relayed_of(&self, family: IpFamily) -> Option<RelayedAddr> {
        self.relayed[family as usize]
    }

    /// Reads a success response; `None` when something that must be there is not.
    pub(crate) fn read(message: &Message<'_>) -> Option<Self> {
        let id = message.transaction_id();
        let xor = |value| value::xor_address(value, id).ok();
        let mut relayed: [Option<RelayedAddr>; 2] = [None; 2];
        for attribute in message.attributes() {
            if attribute.kind == AttributeType::XOR_RELAYED_ADDRESS {
                let address = xor(attribute.value)?;
                let place = &mut relayed[IpFamily::of(address.ip()) as usize];
                // The first of its family counts (RFC 8489 §14).
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
