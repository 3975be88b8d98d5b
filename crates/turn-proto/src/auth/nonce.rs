//! Nonces that need no memory (RFC 8489 §§9.2, 16; RFC 7616 §5).
//!
//! A nonce is the cookie that names the security features, the time it was made, the client's port,
//! and an HMAC over that, the client's address and the realm. So a nonce given to one client is of
//! no use to another, nor in another realm, it cannot be made up or made younger, and its features
//! cannot be argued away. The port is in it for clients that come from another port with it: a
//! connection that ConnectionBind is for (RFC 6062) has a port of its own.
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

/// Label of keys that are made of a shared secret.
const SHARED: &[u8] = b"nonces of several servers";

/// The key of nonces that servers with the same secret accept from each other.
#[must_use]
pub fn shared_nonce_key(secret: &[u8]) -> NonceKey {
    let Ok(mut mac) = <Hmac<Sha256>>::new_from_slice(secret) else {
        unreachable!("HMAC takes keys of any length")
    };
    mac.update(SHARED);
    NonceKey::new(mac.finalize().into_bytes().into())
}

/// Bytes of the time, in seconds modulo 2^32.
const TIME_LEN: usize = 4;
/// Bytes of the port.
const PORT_LEN: usize = 2;
/// Bytes of both.
const HEAD_LEN: usize = TIME_LEN + PORT_LEN;
/// Bytes of the HMAC: 88 bits, so that guessing is hopeless and a challenge stays small.
const TAG_LEN: usize = 11;
/// Characters of time, port and HMAC in base64 without padding.
const BODY_LEN: usize = ((HEAD_LEN + TAG_LEN) * 4).div_ceil(3);
/// Characters of a nonce.
const NONCE_LEN: usize = NONCE_COOKIE_LEN + BODY_LEN;

const _: () = assert!(NONCE_LEN == 36);

/// A nonce in ASCII.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nonce([u8; NONCE_LEN]);

impl Nonce {
    pub(crate) const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// State of a nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NonceState {
    /// Ours, given to this client with these features, not too old.
    Fresh(SecurityFeatures),
    /// Ours, given to this client with these features, too old.
    Stale(SecurityFeatures),
    /// Never given to this client.
    Invalid,
}

/// From which ports of its client's address a nonce is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ports {
    /// That to which it was given (RFC 8489 §9.2.4).
    Own,
    /// Any.
    Any,
}

/// The issuer of a nonce.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issuer<'a> {
    pub(crate) key: &'a NonceKey,
    /// The name of the realm that it is for.
    pub(crate) realm: &'a str,
}

/// A nonce for `client`.
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

/// Judges the nonce in a request of `client`. Nonces are valid for `lifetime`.
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
            // One from the future was made before the clock was set back: its age is unknown.
            let age = seconds(now).wrapping_sub(time);
            if u64::from(age) <= lifetime.as_secs() {
                NonceState::Fresh(features)
            } else {
                NonceState::Stale(features)
            }
        },
    )
}

/// The time and port of an authentic nonce, and the features it names.
fn read(issuer: Issuer<'_>, client: IpAddr, nonce: &[u8]) -> Option<(u32, u16, SecurityFeatures)> {
    let nonce: &[u8; NONCE_LEN] = nonce.try_into().ok()?;
    let (cookie, encoded) = nonce.split_first_chunk::<NONCE_COOKIE_LEN>()?;
    let mut body = [0; HEAD_LEN + TAG_LEN];
    // Refuses bits behind the last byte, so that no nonce has two spellings.
    BASE64_STANDARD_NO_PAD.decode_slice(encoded, &mut body).ok()?;
    let (front, tag) = body.split_first_chunk::<HEAD_LEN>()?;
    let authentic: bool = hmac(issuer, client, cookie, front).ct_eq(tag).into();
    let [a, b, c, d, port @ ..] = *front;
    let features = SecurityFeatures::of_nonce(core::str::from_utf8(nonce).ok()?)?;
    let time = u32::from_be_bytes([a, b, c, d]);
    authentic.then_some((time, u16::from_be_bytes(port), features))
}

/// The tag that binds a nonce to its features, its time and port, its client, and its realm.
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
    // HMAC fills its key up to a block with zeros itself (RFC 2104 §2); a whole block cannot fail.
    let mut block = Zeroizing::new([0; 64]);
    block[..32].copy_from_slice(issuer.key.expose());
    let mut mac = <Hmac<Sha256>>::new((&*block).into());
    // All but the last are of fixed length, so that no two inputs are the same bytes.
    for part in [cookie, front, &ip.octets(), issuer.realm.as_bytes()] {
        mac.update(part);
    }
    let mut tag = [0; TAG_LEN];
    tag.copy_from_slice(&mac.finalize().into_bytes()[..TAG_LEN]);
    tag
}

/// Seconds modulo 2^32: ages are differences, and no nonce lives for 136 years.
#[expect(clippy::cast_possible_truncation, reason = "the modulus is meant")]
const fn seconds(time: UnixSeconds) -> u32 {
    time.0 as u32
}

#[cfg(test)]
mod tests;
