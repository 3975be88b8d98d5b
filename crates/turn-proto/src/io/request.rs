//! A request with all that it is judged by, before and after authentication; the methods and
//! attributes that are served.

use alloc::vec::Vec;

use stun_wire::{AttributeType, Message, Method};
use turn_types::{ClientPath, Instant, Now, Transport};

use super::responder::Responder;
use crate::credentials::Grant;
use crate::limits::UNKNOWN_LISTED_MAX;
use crate::policy::discovery::{self, DiscoverySocket};
use crate::policy::{Policy, RealmRules};

/// A request and the policy, time and path that it is judged by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) policy: &'a Policy,
    /// The rules of its realm.
    pub(crate) rules: RealmRules<'a>,
    pub(crate) now: Now,
    /// Earlier than `now` if it has waited for its user.
    pub(crate) arrived: Instant,
    pub(crate) path: &'a ClientPath,
    pub(crate) message: Message<'a>,
}

/// A request after authentication.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Authenticated<'a> {
    pub(crate) request: Request<'a>,
    pub(crate) grant: &'a Grant,
    pub(crate) responder: &'a Responder,
}

/// Knowledge about the source address of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceAddress {
    /// The client receives packets sent there: it has a connection, or a nonce given to this
    /// address.
    Proved,
    /// Possibly forged.
    Unproved,
}

impl SourceAddress {
    /// The knowledge that the transport alone gives.
    pub(crate) const fn of(transport: Transport) -> Self {
        match transport {
            Transport::Udp => Self::Unproved,
            Transport::Tcp | Transport::Tls | Transport::Dtls => Self::Proved,
        }
    }
}

impl<'a> Request<'a> {
    /// The comprehension-required attributes that are not understood.
    pub(crate) fn unknown_attributes(&self) -> impl Iterator<Item = AttributeType> + use<'a> {
        let Request { policy, path, message, .. } = *self;
        message.unknown_required(move |kind| {
            is_understood(policy, kind)
                || discovery::is_understood(kind)
                    && message.method() == Method::BINDING
                    && DiscoverySocket::of(policy, path).is_some()
        })
    }

    /// The value of UNKNOWN-ATTRIBUTES: as many types as an answer has room for.
    pub(crate) fn unknown_listed(&self) -> Vec<AttributeType> {
        self.unknown_attributes().take(UNKNOWN_LISTED_MAX).collect()
    }
}

/// Returns true for the comprehension-required attributes that are understood in every method. One
/// that a method does not use is ignored (RFC 8489 §6.3). 0x0010 and 0x0021, once BANDWIDTH and
/// TIMER-VAL, are not among them (RFC 8656 §18), nor is anything of ICE; ACCESS-TOKEN is where
/// tokens are taken (RFC 7635).
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

/// Returns true for the methods of requests that are served (RFC 8656 §17, RFC 6062 §6.1).
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
