//! RFC 7635: an access token in place of the password.

use stun_wire::{
    AttributeType, Class, IntegrityKey, IntegrityKind, Message, MessageBuilder, Method,
};
use turn_client::{AccessToken, AllocateOptions, Client, ClientConfig, Event};
use turn_types::Secret;

use super::support::*;

#[test]
fn a_token_is_shown_and_its_key_seals() {
    let token = AccessToken {
        value: (*b"an opaque token").into(),
        mac_key: Secret::new((*b"a session key").into()),
    };
    let mut client = Client::new(ClientConfig { token: Some(token), ..config() });
    client.allocate(at(0.0), AllocateOptions::default()).unwrap();
    let request = sent(&mut client);
    assert!(Message::parse(&request).unwrap().first(AttributeType::ACCESS_TOKEN).is_none());
    client.handle_datagram(at(0.0), &Challenge::OLD.answer(&request));

    let key = IntegrityKey::new(b"a session key");
    let request = sent(&mut client);
    let message = Message::parse(&request).unwrap();
    assert_eq!(message.first(AttributeType::ACCESS_TOKEN), Some(&b"an opaque token"[..]));
    assert_eq!(message.first(AttributeType::USERNAME), Some(&b"alice"[..]));
    assert!(message.verify(&key));

    let mut out = [0; 500];
    let id = message.transaction_id();
    let mut builder = MessageBuilder::new(&mut out, Class::Success, Method::ALLOCATE, id);
    builder.xor_address(AttributeType::XOR_RELAYED_ADDRESS, addr("198.51.100.1:50000"));
    builder.xor_address(AttributeType::XOR_MAPPED_ADDRESS, addr("203.0.113.5:6000"));
    builder.lifetime(600);
    let len = builder.integrity(IntegrityKind::Sha1, &key).finish().unwrap();
    client.handle_datagram(at(0.0), &out[..len]);
    assert!(matches!(events(&mut client)[..], [Event::Allocated(_)]));

    client.permit(at(1.0), addr("192.0.2.50:0").ip()).unwrap();
    let request = sent(&mut client);
    let message = Message::parse(&request).unwrap();
    assert!(message.first(AttributeType::ACCESS_TOKEN).is_none() && message.verify(&key));
}
