//! Values of attributes: a parser for each, and the encoders for
//! [`MessageBuilder`](crate::MessageBuilder).
//!
//! A parser rejects only unreadable values. Bits that receivers must ignore according to the RFC
//! are ignored, and numbers without a meaning are returned unchanged.

pub(crate) mod address;
pub(crate) mod auth;
pub(crate) mod discovery;
pub(crate) mod error_code;
mod text;
mod token;
pub(crate) mod turn;

pub use address::{address, xor_address};
pub use auth::{PasswordAlgorithm, password_algorithm, password_algorithms, userhash};
pub use discovery::{ChangeRequest, cache_timeout, change_request, response_port};
pub use error_code::{address_error_code, error_code, unknown_attributes};
pub use text::{
    TEXT_LEN_MAX, alternate_domain, nonce, realm, software, third_party_authorization, username,
};
pub use token::{AccessToken, AccessTokenBlock, access_token, access_token_block};
pub use turn::*;

use crate::error::ValueError;

/// Converts a value of exactly `N` bytes.
fn exactly<const N: usize>(value: &[u8]) -> Result<[u8; N], ValueError> {
    value.try_into().map_err(|_| ValueError::Length)
}
