//! Mobility tickets (RFC 8016 §3), by which a client that has moved names its allocation. Opaque to
//! the client: encrypted and authenticated, by the synthetic-IV construction of RFC 5297 with
//! HMAC-SHA256 as its pseudo-random function. It needs no nonce, which keeps a ticket short, and it
//! is text: coturn's client takes it for a string, and has room for 32 characters.
//!
//! ```text
//! tag    = HMAC(key, "tag"  | body)[..13]
//! ticket = base64(tag | body XOR HMAC(key, "mask" | tag)[..11])
//! ```
//!
//! The content differs from ticket to ticket, so that no two are alike. The key follows from that
//! of the nonces, which comes from the operating system's randomness: a transfer of that key
//! transfers the tickets with it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use state_format::{Malformed, Reader, Value, Writer};
use subtle::ConstantTimeEq as _;
use turn_types::AllocationId;
use zeroize::Zeroizing;

use crate::policy::NonceKey;

/// An allocation's id and the number of the ticket.
const BODY_LEN: usize = 8 + 3;
/// 104 bits, as a nonce has: guessing is hopeless.
const TAG_LEN: usize = 13;
const PLAIN_LEN: usize = TAG_LEN + BODY_LEN;

/// Characters of a ticket.
const TICKET_LEN: usize = PLAIN_LEN / 3 * 4;

const _: () =
    assert!(PLAIN_LEN.is_multiple_of(3), "no bits are left over: no ticket has two spellings");

/// Tickets of one allocation are counted modulo this: the last one is all that counts.
const SERIALS: u32 = 1 << 24;

/// Domains of the HMACs, so that none can be taken for another, or for that of a nonce, which
/// begins with the letters of the nonce cookie.
const TAG: &[u8] = b"turnpike mobility ticket: tag";
const MASK: &[u8] = b"turnpike mobility ticket: mask";

/// A ticket as clients have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket([u8; TICKET_LEN]);

/// The content of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TicketBody {
    /// Which allocation it is of.
    pub(crate) allocation: AllocationId,
    /// Sequence number within that allocation, modulo [`SERIALS`].
    pub(crate) serial: u32,
}

impl TicketBody {
    /// The content of the ticket behind this one.
    pub(crate) const fn next(self) -> Self {
        Self { serial: (self.serial + 1) % SERIALS, ..self }
    }
}

impl Value for Ticket {
    fn write(&self, out: &mut Writer) {
        out.put(&self.0);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        input.array().map(Self)
    }
}

impl Ticket {
    pub(crate) const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The ticket that says this.
    pub(crate) fn seal(key: &NonceKey, body: TicketBody) -> Self {
        let mut plain = [0; BODY_LEN];
        plain[..8].copy_from_slice(&body.allocation.0.to_be_bytes());
        plain[8..].copy_from_slice(&body.serial.to_be_bytes()[1..]);
        let tag: [u8; TAG_LEN] = prf(key, TAG, &plain);
        let mut sealed = [0; PLAIN_LEN];
        sealed[..TAG_LEN].copy_from_slice(&tag);
        sealed[TAG_LEN..].copy_from_slice(&masked(key, &tag, plain));
        let mut ticket = [0; TICKET_LEN];
        let written = BASE64_STANDARD_NO_PAD.encode_slice(sealed, &mut ticket);
        debug_assert_eq!(written.ok(), Some(TICKET_LEN));
        Self(ticket)
    }

    /// The content of a ticket; `None` if it is none of ours.
    pub(crate) fn open(key: &NonceKey, ticket: &[u8]) -> Option<TicketBody> {
        let ticket: &[u8; TICKET_LEN] = ticket.try_into().ok()?;
        let mut sealed = [0; PLAIN_LEN];
        BASE64_STANDARD_NO_PAD.decode_slice(ticket, &mut sealed).ok()?;
        let (tag, body) = sealed.split_first_chunk::<TAG_LEN>()?;
        let plain = masked(key, tag, body.try_into().ok()?);
        let authentic: bool = prf::<TAG_LEN>(key, TAG, &plain).ct_eq(tag).into();
        let (allocation, serial) = plain.split_first_chunk::<8>()?;
        let [s0, s1, s2] = serial.try_into().ok()?;
        let body = TicketBody {
            allocation: AllocationId(u64::from_be_bytes(*allocation)),
            serial: u32::from_be_bytes([0, s0, s1, s2]),
        };
        authentic.then_some(body)
    }
}

/// A body made unreadable, or readable again.
fn masked(key: &NonceKey, tag: &[u8; TAG_LEN], mut body: [u8; BODY_LEN]) -> [u8; BODY_LEN] {
    for (byte, mask) in body.iter_mut().zip(prf::<BODY_LEN>(key, MASK, tag)) {
        *byte ^= mask;
    }
    body
}

/// The first bytes of an HMAC-SHA256; `purpose` and `data` are each of one length for one purpose.
fn prf<const LEN: usize>(key: &NonceKey, purpose: &[u8], data: &[u8]) -> [u8; LEN] {
    let mut block = Zeroizing::new([0; 64]);
    block[..32].copy_from_slice(key.expose());
    let mut mac = <Hmac<Sha256>>::new((&*block).into());
    mac.update(purpose);
    mac.update(data);
    let mut out = [0; LEN];
    out.copy_from_slice(&mac.finalize().into_bytes()[..LEN]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use turn_types::Secret;

    const BODY: TicketBody = TicketBody { allocation: AllocationId(0x0102_0304), serial: 7 };

    #[test]
    fn opens_as_it_was_sealed_and_under_no_other_key() {
        let key = Secret::new([2; 32]);
        let ticket = Ticket::seal(&key, BODY);
        assert_eq!(Ticket::open(&key, ticket.as_bytes()), Some(BODY));
        assert_eq!(Ticket::open(&Secret::new([3; 32]), ticket.as_bytes()), None);
        let next = Ticket::seal(&key, BODY.next());
        assert!(ticket.0.windows(4).all(|bytes| !next.0.windows(4).any(|same| same == bytes)));
    }

    #[test]
    fn shows_nothing_of_what_it_says() {
        let ticket = Ticket::seal(&Secret::new([2; 32]), BODY);
        let bytes = BASE64_STANDARD_NO_PAD.decode(ticket.as_bytes()).unwrap();
        assert!(!bytes.windows(4).any(|bytes| bytes == [1, 2, 3, 4]));
    }

    #[test]
    fn no_bit_of_it_can_be_changed() {
        let key = Secret::new([2; 32]);
        let ticket = Ticket::seal(&key, BODY);
        for bit in 0..8 * TICKET_LEN {
            let mut altered = ticket.0;
            altered[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Ticket::open(&key, &altered), None, "bit {bit}");
        }
        for len in 0..TICKET_LEN {
            assert_eq!(Ticket::open(&key, &ticket.0[..len]), None, "length {len}");
        }
    }
}
