//! Stateless nonces (RFC 8489 §§9.2, 16; RFC 7616 §5).
//!
//! A nonce contains the cookie with the security features, the time of issue, the client's port,
//! and an HMAC. The HMAC covers these fields, the client's address and the realm. A nonce is
//! therefore invalid for other clients and realms, and cannot be forged. The time and the features
//! cannot be altered. The port is a readable field for clients that may use the nonce from another
//! port. ConnectionBind (RFC 6062) arrives on a separate connection with another port.
//!
//! ```text
//! obMatJos2 gAAA ....................... = 36 characters
//! fixed     24   base64 of 4 bytes of unix time, the port, and 11 bytes of HMAC-SHA256
//!           feature bits
//! ```

use core::net::IpAddr;
use core::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use stun_wire::{NONCE_COOKIE_LEN, SecurityFeatures};
use subtle::ConstantTimeEq as _;
use turn_types::{ClientAddr, UnixSeconds};
use zeroize::Zeroizing;

use crate::policy::NonceKey;

/// Label for keys derived from a shared secret.
const SHARED: &[u8] = b"nonces of several servers";

/// Returns the nonce key for servers with the same secret. These servers accept nonces from each
/// other.
#[must_use]
pub fn shared_nonce_key(secret: &[u8]) -> NonceKey {
    let Ok(mut mac) = <Hmac<Sha256>>::new_from_slice(secret) else {
        unreachable!("HMAC takes keys of any length")
    };
    mac.update(SHARED);
    NonceKey::new(mac.finalize().into_bytes().into())
}

/// Length of the time in bytes, in seconds modulo 2^32.
const TIME_LEN: usize = 4;
/// Length of the port in bytes.
const PORT_LEN: usize = 2;
/// Length of time and port in bytes.
const HEAD_LEN: usize = TIME_LEN + PORT_LEN;
/// Length of the HMAC in bytes. 88 bits make guessing hopeless, and keep a challenge small.
const TAG_LEN: usize = 11;
/// Length of time, port and HMAC in characters of base64 without padding.
const BODY_LEN: usize = ((HEAD_LEN + TAG_LEN) * 4).div_ceil(3);
/// Length of a nonce in characters.
const NONCE_LEN: usize = NONCE_COOKIE_LEN + BODY_LEN;

const _: () = assert!(NONCE_LEN == 36);

/// Nonce in ASCII.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nonce([u8; NONCE_LEN]);

impl Nonce {
    pub(crate) const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Validity of a nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NonceState {
    /// The nonce was issued to this client with these features, and is not too old.
    Fresh(SecurityFeatures),
    /// The nonce was issued to this client with these features, and is too old.
    Stale(SecurityFeatures),
    /// The nonce was never issued to this client.
    Invalid,
}

/// Ports of the client's address from which a nonce is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ports {
    /// Only the port to which the nonce was issued (RFC 8489 §9.2.4).
    Own,
    /// Any port.
    Any,
}

/// Issuer of a nonce.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issuer<'a> {
    pub(crate) key: &'a NonceKey,
    /// Name of the realm in which the nonce is valid.
    pub(crate) realm: &'a str,
}

/// Issues a nonce for `client`.
pub(crate) fn mint(
    issuer: Issuer<'_>,
    now: UnixSeconds,
    client: ClientAddr,
    features: SecurityFeatures,
) -> Nonce {
    let cookie = features.cookie();
    let mut body = [0; HEAD_LEN + TAG_LEN];
    let (front, tag) = body.split_at_mut(HEAD_LEN);
    front[..TIME_LEN].copy_from_slice(&seconds(now).to_be_bytes());
    front[TIME_LEN..].copy_from_slice(&client.port().to_be_bytes());
    tag.copy_from_slice(&hmac(issuer, client.ip(), &cookie, front));
    let mut nonce = [0; NONCE_LEN];
    let (head, rest) = nonce.split_at_mut(NONCE_COOKIE_LEN);
    head.copy_from_slice(&cookie);
    let written = BASE64_STANDARD_NO_PAD.encode_slice(body, rest);
    debug_assert_eq!(written.ok(), Some(BODY_LEN));
    Nonce(nonce)
}

/// Validates the nonce in a request of `client`. Nonces are valid for `lifetime`.
pub(crate) fn judge(
    issuer: Issuer<'_>,
    now: UnixSeconds,
    lifetime: Duration,
    client: ClientAddr,
    ports: Ports,
    nonce: &[u8],
) -> NonceState {
    let of_client = |&(_, port, _): &(u32, u16, SecurityFeatures)| match ports {
        Ports::Own => port == client.port(),
        Ports::Any => true,
    };
    read(issuer, client.ip(), nonce).filter(of_client).map_or(
        NonceState::Invalid,
        |(time, _, features)| {
            // A nonce from the future was issued before the clock was set back, so the age is
            // unknown.
            let age = seconds(now).wrapping_sub(time);
            if u64::from(age) <= lifetime.as_secs() {
                NonceState::Fresh(features)
            } else {
                NonceState::Stale(features)
            }
        },
    )
}

/// Returns the time, port and features of an authentic nonce.
fn read(issuer: Issuer<'_>, client: IpAddr, nonce: &[u8]) -> Option<(u32, u16, SecurityFeatures)> {
    let nonce: &[u8; NONCE_LEN] = nonce.try_into().ok()?;
    let (cookie, encoded) = nonce.split_first_chunk::<NONCE_COOKIE_LEN>()?;
    let mut body = [0; HEAD_LEN + TAG_LEN];
    // Unused bits after the last byte must be zero, so no nonce has two spellings.
    BASE64_STANDARD_NO_PAD.decode_slice(encoded, &mut body).ok()?;
    let (front, tag) = body.split_first_chunk::<HEAD_LEN>()?;
    let authentic: bool = hmac(issuer, client, cookie, front).ct_eq(tag).into();
    let [a, b, c, d, port @ ..] = *front;
    let features = SecurityFeatures::of_nonce(core::str::from_utf8(nonce).ok()?)?;
    let time = u32::from_be_bytes([a, b, c, d]);
    authentic.then_some((time, u16::from_be_bytes(port), features))
}

/// Returns the tag that binds a nonce to features, time, port, client address and realm.
fn hmac(
    issuer: Issuer<'_>,
    client: IpAddr,
    cookie: &[u8; NONCE_COOKIE_LEN],
    front: &[u8],
) -> [u8; TAG_LEN] {
    let ip = match client {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    // HMAC pads its key with zeros to a block (RFC 2104 §2). A key of block length cannot fail.
    let mut block = Zeroizing::new([0; 64]);
    block[..32].copy_from_slice(issuer.key.expose());
    let mut mac = <Hmac<Sha256>>::new((&*block).into());
    // All fields except the last have fixed lengths, so different inputs have different bytes.
    for part in [cookie, front, &ip.octets(), issuer.realm.as_bytes()] {
        mac.update(part);
    }
    let mut tag = [0; TAG_LEN];
    tag.copy_from_slice(&mac.finalize().into_bytes()[..TAG_LEN]);
    tag
}

/// Returns seconds modulo 2^32. Ages are differences, and no nonce lives for 136 years.
#[expect(clippy::cast_possible_truncation, reason = "the modulus is meant")]
const fn seconds(time: UnixSeconds) -> u32 {
    time.0 as u32
}

#[cfg(test)]
mod tests;
