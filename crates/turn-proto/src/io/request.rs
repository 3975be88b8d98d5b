//! Requests with the applicable rules, before and after authentication. Methods and attributes that
//! are served.

use alloc::vec::Vec;

use stun_wire::{AttributeType, Message, Method};
use turn_types::{ClientPath, Instant, Now, Transport};

use super::responder::Responder;
use crate::credentials::Grant;
use crate::limits::UNKNOWN_LISTED_MAX;
use crate::policy::discovery::{self, DiscoverySocket};
use crate::policy::{Policy, RealmRules};

/// Request with the applicable policy, time and path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) policy: &'a Policy,
    /// Rules of the request's realm.
    pub(crate) rules: RealmRules<'a>,
    pub(crate) now: Now,
    /// Time of arrival. Earlier than `now` for a request that has waited for its user.
    pub(crate) arrived: Instant,
    pub(crate) path: &'a ClientPath,
    pub(crate) message: Message<'a>,
}

/// Request after authentication.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Authenticated<'a> {
    pub(crate) request: Request<'a>,
    pub(crate) grant: &'a Grant,
    pub(crate) responder: &'a Responder,
}

/// Verification state of a request's source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceAddress {
    /// The client receives packets sent to this address, proved by a connection or by a nonce
    /// issued to the address.
    Proved,
    /// The address is possibly forged.
    Unproved,
}

impl SourceAddress {
    /// Returns the state that follows from the transport only.
    pub(crate) const fn of(transport: Transport) -> Self {
        match transport {
            Transport::Udp => Self::Unproved,
            Transport::Tcp | Transport::Tls | Transport::Dtls => Self::Proved,
        }
    }
}

impl<'a> Request<'a> {
    /// Returns the comprehension-required attributes that are not understood.
    pub(crate) fn unknown_attributes(&self) -> impl Iterator<Item = AttributeType> + use<'a> {
        let Request { policy, path, message, .. } = *self;
        message.unknown_required(move |kind| {
            is_understood(policy, kind)
                || discovery::is_understood(kind)
                    && message.method() == Method::BINDING
                    && DiscoverySocket::of(policy, path).is_some()
        })
    }

    /// Returns the value of UNKNOWN-ATTRIBUTES, limited to the types that fit a response.
    pub(crate) fn unknown_listed(&self) -> Vec<AttributeType> {
        self.unknown_attributes().take(UNKNOWN_LISTED_MAX).collect()
    }
}

/// Returns true for the comprehension-required attributes that are understood in every method.
/// Attributes that a method does not use are ignored (RFC 8489 §6.3). 0x0010 and 0x0021, formerly
/// BANDWIDTH and TIMER-VAL, are not understood (RFC 8656 §18). Attributes of ICE are not understood
/// either. ACCESS-TOKEN is understood where tokens are accepted (RFC 7635).
pub(crate) fn is_understood(policy: &Policy, kind: AttributeType) -> bool {
    if kind == AttributeType::ACCESS_TOKEN {
        return policy.takes_tokens();
    }
    matches!(
        kind,
        AttributeType::MAPPED_ADDRESS
            | AttributeType::USERNAME
            | AttributeType::MESSAGE_INTEGRITY
            | AttributeType::ERROR_CODE
            | AttributeType::UNKNOWN_ATTRIBUTES
            | AttributeType::CHANNEL_NUMBER
            | AttributeType::LIFETIME
            | AttributeType::XOR_PEER_ADDRESS
            | AttributeType::DATA
            | AttributeType::REALM
            | AttributeType::NONCE
            | AttributeType::XOR_RELAYED_ADDRESS
            | AttributeType::REQUESTED_ADDRESS_FAMILY
            | AttributeType::EVEN_PORT
            | AttributeType::REQUESTED_TRANSPORT
            | AttributeType::DONT_FRAGMENT
            | AttributeType::MESSAGE_INTEGRITY_SHA256
            | AttributeType::PASSWORD_ALGORITHM
            | AttributeType::USERHASH
            | AttributeType::XOR_MAPPED_ADDRESS
            | AttributeType::RESERVATION_TOKEN
            | AttributeType::CONNECTION_ID
    )
}

/// Returns true for the request methods that are served (RFC 8656 §17, RFC 6062 §6.1).
pub(crate) fn is_request_method(policy: &Policy, method: Method) -> bool {
    match method {
        Method::BINDING => policy.binding,
        _ if policy.stun_only => false,
        Method::CONNECT | Method::CONNECTION_BIND => policy.tcp_relaying,
        Method::ALLOCATE | Method::REFRESH | Method::CREATE_PERMISSION | Method::CHANNEL_BIND => {
            true
        }
        _ => false,
    }
}
