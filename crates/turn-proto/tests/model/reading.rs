//! Reading answers.

use std::net::SocketAddr;

use stun_wire::{AttributeType, Class, Message, value};
use turn_types::IpFamily;

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    Error(u16),
}

pub(crate) fn outcome(reply: &[u8]) -> Outcome {
    let message = Message::parse(reply).unwrap();
    match message.class() {
        Class::Success => Outcome::Success,
        Class::Error | Class::Request | Class::Indication => {
            let code = message.first(AttributeType::ERROR_CODE).unwrap();
            Outcome::Error(value::error_code(code).unwrap().0)
        }
    }
}

pub(crate) fn lifetime_of(reply: &[u8]) -> u32 {
    let message = Message::parse(reply).unwrap();
    value::lifetime(message.first(AttributeType::LIFETIME).unwrap()).unwrap()
}

pub(crate) fn relayed_of(reply: &[u8]) -> [Option<SocketAddr>; 2] {
    let message = Message::parse(reply).unwrap();
    let mut relayed = [None; 2];
    for attribute in message.attributes() {
        if attribute.kind == AttributeType::XOR_RELAYED_ADDRESS {
            let addr = value::xor_address(attribute.value, message.transaction_id()).unwrap();
            relayed[IpFamily::of(addr.ip()) as usize] = Some(addr);
        }
    }
    relayed
}
