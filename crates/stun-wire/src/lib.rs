//! Conversion between bytes and messages: the formats of RFC 8489 (STUN) and RFC 8656 (TURN).
//!
//! This crate accepts every well-formed message. The caller decides which attributes a message may
//! contain, whether a user may relay, and which error to return. No input causes a panic. The crate
//! reads no clock, draws no randomness, and copies no payload.
//!
//! Packet processing, step by step:
//! - [`classify`] checks the first byte of a datagram; [`next_message`] splits a byte stream.
//! - [`Message::parse`] checks the structure once. Later accesses cannot fail for structural
//!   reasons.
//! - [`value`] converts attribute values to numbers, addresses and text.
//! - [`IntegrityKey`] and [`Message::verify`] authenticate the sender. The keys are derived by
//!   [`long_term_key_md5`], [`long_term_key_sha256`] and [`userhash`].
//! - [`MessageBuilder`] writes the response into the caller's buffer.
//! - [`channel_data`], [`write_channel_header`] and [`write_data_header`] process relayed payload.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod attribute;
mod builder;
mod channel;
mod classic;
mod credentials;
mod data_header;
mod error;
mod error_code;
mod fingerprint;
mod header;
mod integrity;
mod message;
mod nonce;
mod opaque_string;
mod packet;
mod stream;
mod user_name;
pub mod value;

pub use attribute::{ATTRIBUTES_MAX, Attribute, AttributeType, Attributes};
pub use builder::{MessageBuilder, SealedBuilder};
pub use channel::{
    CHANNEL_HEADER_LEN, ChannelData, ChannelNumber, channel_data, channel_data_rfc5766,
    write_channel_header,
};
pub use classic::ClassicMessage;
pub use credentials::{
    LongTermKeys, long_term_key_md5, long_term_key_md5_unprepared, long_term_key_sha256,
    time_limited_password, userhash,
};
pub use data_header::{DATA_HEADER_LEN_MAX, write_data_header};
pub use error::{ParseError, ValueError};
pub use error_code::reason_phrase;
pub use header::{
    Class, HEADER_LEN, MAGIC_COOKIE, MESSAGE_LEN_MAX, Method, TransactionId, padded_len,
};
pub use integrity::{IntegrityKey, IntegrityKind};
pub use message::{Integrity, Message, UNKNOWN_REQUIRED_MAX};
pub use nonce::{NONCE_COOKIE_LEN, SecurityFeatures};
pub use opaque_string::{PrecisError, opaque_string};
pub use packet::{PacketKind, classify, classify_rfc5766};
pub use stream::{Cut, next_message, next_message_rfc5766};
pub use user_name::{UserName, UserNameError};
pub use value::{AccessToken, AccessTokenBlock, ChangeRequest, Icmp, PasswordAlgorithm};
