//! Bytes <-> messages: the formats of RFC 8489 (STUN) and RFC 8656 (TURN).
//!
//! This crate accepts whatever is well formed and judges nothing: whether an attribute may stand
//! in a message, whether a user may relay, which error is the answer, is for the caller. It panics
//! on no input, reads no clock, draws no randomness, and copies no payload.
//!
//! In the order a packet meets them:
//! - [`classify`] looks at the first byte of a datagram; [`next_message`] cuts a byte stream.
//! - [`Message::parse`] checks the structure once; everything read later cannot fail to be there.
//! - [`value`] turns attribute values into numbers, addresses and text.
//! - [`IntegrityKey`] and [`Message::verify`] prove the sender; the keys come from
//!   [`long_term_key_md5`], [`long_term_key_sha256`] and [`userhash`].
//! - [`MessageBuilder`] writes the answer into the caller's buffer.
//! - [`channel_data`], [`write_channel_header`] and [`write_data_header`] carry relayed payload.
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
