//! Mobility tickets (RFC 8016 §3): what lets a client that has moved name its allocation. Opaque to the
//! client: encrypted and authenticated (AES-256-GCM) under a key that all workers have.
//!
//! The key follows from that of the nonces, which comes from the operating system's randomness: whoever
//! hands that key over hands the tickets over with it.

use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{Aes256Gcm, KeyInit as _};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use turn_types::AllocationId;
use zeroize::Zeroizing;

use crate::policy::NonceKey;
use crate::random::Random;

const NONCE_LEN: usize = 12;
/// An allocation's id and the number of the ticket.
const BODY_LEN: usize = 8 + 4;
const TAG_LEN: usize = 16;

/// Bytes of a ticket.
pub(crate) const TICKET_LEN: usize = NONCE_LEN + BODY_LEN + TAG_LEN;

/// What the key and every ticket are for, so that neither can be taken for something else.
const PURPOSE: &[u8] = b"turnpike mobility ticket";

/// A ticket as clients have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket([u8; TICKET_LEN]);

/// What a ticket says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TicketBody {
    /// Which allocation it is of.
    pub(crate) allocation: AllocationId,
    /// The how-manieth of that allocation.
    pub(crate) serial: u32,
}

impl Ticket {
    pub(crate) const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A ticket that says this. Random 96-bit nonces are good for 2^32 tickets under one key, which is
    /// as many as a busy server makes in years (NIST SP 800-38D §8.3).
    pub(crate) fn seal(key: &NonceKey, random: &mut Random, body: TicketBody) -> Self {
        let mut plain = [0; BODY_LEN];
        plain[..8].copy_from_slice(&body.allocation.0.to_be_bytes());
        plain[8..].copy_from_slice(&body.serial.to_be_bytes());
        let mut ticket = [0; TICKET_LEN];
        let (nonce, rest) = ticket.split_at_mut(NONCE_LEN);
        nonce.copy_from_slice(&random.transaction().0);
        let mut fixed = [0; NONCE_LEN];
        fixed.copy_from_slice(nonce);
        let sealed = cipher(key).encrypt(&fixed.into(), Payload { msg: &plain, aad: PURPOSE });
        // It fails only for more than 2^36 bytes; a ticket of zeros would open nothing.
        if let Ok(sealed) = sealed {
            rest.copy_from_slice(&sealed);
        }
        Self(ticket)
    }

    /// What a ticket says; `None` if it is none of ours.
    pub(crate) fn open(key: &NonceKey, ticket: &[u8]) -> Option<TicketBody> {
        let ticket: &[u8; TICKET_LEN] = ticket.try_into().ok()?;
        let (nonce, sealed) = ticket.split_first_chunk::<NONCE_LEN>()?;
        let plain =
            cipher(key).decrypt(nonce.into(), Payload { msg: sealed, aad: PURPOSE }).ok()?;
        let (allocation, serial) = plain.split_first_chunk::<8>()?;
        Some(TicketBody {
            allocation: AllocationId(u64::from_be_bytes(*allocation)),
            serial: u32::from_be_bytes(serial.try_into().ok()?),
        })
    }
}

fn cipher(key: &NonceKey) -> Aes256Gcm {
    let mut block = Zeroizing::new([0; 64]);
    block[..32].copy_from_slice(key.expose());
    let mut mac = <Hmac<Sha256>>::new((&*block).into());
    mac.update(PURPOSE);
    Aes256Gcm::new(&mac.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use turn_types::Secret;

    const BODY: TicketBody = TicketBody { allocation: AllocationId(0x0102_0304), serial: 7 };

    #[test]
    fn opens_as_it_was_sealed_and_under_no_other_key() {
        let mut random = Random::new([1; 32]);
        let key = Secret::new([2; 32]);
        let ticket = Ticket::seal(&key, &mut random, BODY);
        assert_eq!(Ticket::open(&key, ticket.as_bytes()), Some(BODY));
        assert_eq!(Ticket::open(&Secret::new([3; 32]), ticket.as_bytes()), None);
        assert_ne!(Ticket::seal(&key, &mut random, BODY), ticket, "two are never alike");
    }

    #[test]
    fn shows_nothing_of_what_it_says() {
        let ticket = Ticket::seal(&Secret::new([2; 32]), &mut Random::new([1; 32]), BODY);
        assert!(!ticket.as_bytes().windows(4).any(|bytes| bytes == [1, 2, 3, 4]));
    }

    #[test]
    fn no_bit_of_it_can_be_changed() {
        let key = Secret::new([2; 32]);
        let ticket = Ticket::seal(&key, &mut Random::new([1; 32]), BODY);
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
