//! Writer for messages in the caller's buffer (RFC 8489 §5, §14). The types enforce the order:
//! first attributes, then integrity, then FINGERPRINT.

use core::net::SocketAddr;

use crate::attribute::{ATTRIBUTE_HEADER_LEN, AttributeType};
use crate::channel::ChannelNumber;
use crate::fingerprint::{FINGERPRINT_LEN, fingerprint};
use crate::header::{
    Class, HEADER_LEN, MAGIC_COOKIE, Method, TransactionId, join_type, padded_len,
};
use crate::integrity::{IntegrityKey, IntegrityKind, SHA1_LEN, SHA256_LEN};
use crate::value::{self, AccessToken, ChangeRequest, Icmp, PasswordAlgorithm};

/// Message under construction.
///
/// A value too long for the buffer, or for the 16-bit length fields, makes the message unusable.
/// `finish` and similar functions then return `None`.
#[derive(Debug)]
#[must_use = "a message without its end has a wrong length field"]
pub struct MessageBuilder<'b> {
    out: &'b mut [u8],
    /// Number of bytes written; `None` after a value that did not fit.
    len: Option<usize>,
    id: TransactionId,
}

/// Message with an integrity attribute. Only FINGERPRINT may follow.
#[derive(Debug)]
#[must_use = "a message without its end has a wrong length field"]
pub struct SealedBuilder<'b>(MessageBuilder<'b>);

impl<'b> MessageBuilder<'b> {
    /// Starts a message in `out`.
    pub fn new(out: &'b mut [u8], class: Class, method: Method, id: TransactionId) -> Self {
        let mut cookie_and_id = [0; 16];
        let (cookie, rest) = cookie_and_id.split_at_mut(4);
        cookie.copy_from_slice(&MAGIC_COOKIE.to_be_bytes());
        rest.copy_from_slice(&id.0);
        Self::with_header(out, class, method, cookie_and_id)
    }

    /// Starts a response to a message of RFC 3489: no cookie, and all 16 bytes of the request's
    /// transaction id. Such a response must not contain XOR-MAPPED-ADDRESS or FINGERPRINT.
    pub fn new_classic(out: &'b mut [u8], class: Class, method: Method, id: [u8; 16]) -> Self {
        Self::with_header(out, class, method, id)
    }

    fn with_header(out: &'b mut [u8], class: Class, method: Method, id: [u8; 16]) -> Self {
        let len = out.first_chunk_mut::<HEADER_LEN>().map(|header| {
            header[..2].copy_from_slice(&join_type(class, method).to_be_bytes());
            header[2..4].copy_from_slice(&[0, 0]);
            header[4..].copy_from_slice(&id);
            HEADER_LEN
        });
        let mut transaction_id = TransactionId::default();
        transaction_id.0.copy_from_slice(&id[4..]);
        Self { out, len, id: transaction_id }
    }

    /// Appends an attribute with this value, 0..=65535 bytes, padded with zeros.
    pub fn attribute(&mut self, kind: AttributeType, value: &[u8]) -> &mut Self {
        self.parts(kind, &[value])
    }

    /// Appends an attribute whose value consists of these parts, one after the other.
    fn parts(&mut self, kind: AttributeType, parts: &[&[u8]]) -> &mut Self {
        self.len = self.len.and_then(|at| write_attribute(self.out, at, kind, parts));
        self
    }

    /// Appends an address, obfuscated as in XOR-MAPPED-ADDRESS (RFC 8489 §14.2).
    pub fn xor_address(&mut self, kind: AttributeType, addr: SocketAddr) -> &mut Self {
        let (value, len) = value::address::encode_xor(addr, self.id);
        self.attribute(kind, &value[..len])
    }

    /// Appends an address without obfuscation, as in MAPPED-ADDRESS (RFC 8489 §14.1).
    pub fn address(&mut self, kind: AttributeType, addr: SocketAddr) -> &mut Self {
        let (value, len) = value::address::encode(addr);
        self.attribute(kind, &value[..len])
    }

    /// Appends a 32-bit number, such as PRIORITY or CACHE-TIMEOUT.
    pub fn number_u32(&mut self, kind: AttributeType, number: u32) -> &mut Self {
        self.attribute(kind, &number.to_be_bytes())
    }

    /// Appends a number in the first of four bytes, as in REQUESTED-TRANSPORT and the address
    /// families.
    pub fn number_u8(&mut self, kind: AttributeType, number: u8) -> &mut Self {
        self.attribute(kind, &[number, 0, 0, 0])
    }

    /// Appends text, such as USERNAME, REALM, NONCE or SOFTWARE.
    pub fn text(&mut self, kind: AttributeType, text: &str) -> &mut Self {
        self.attribute(kind, text.as_bytes())
    }

    /// Appends USERNAME (RFC 8489 §14.3): fewer than 509 bytes.
    pub fn username(&mut self, username: &str) -> &mut Self {
        self.text(AttributeType::USERNAME, username)
    }

    /// Appends USERHASH (RFC 8489 §14.4).
    pub fn userhash(&mut self, userhash: &[u8; 32]) -> &mut Self {
        self.attribute(AttributeType::USERHASH, userhash)
    }

    /// Appends REALM (RFC 8489 §14.9): fewer than 128 characters.
    pub fn realm(&mut self, realm: &str) -> &mut Self {
        self.text(AttributeType::REALM, realm)
    }

    /// Appends NONCE (RFC 8489 §14.10): fewer than 128 characters.
    pub fn nonce(&mut self, nonce: &str) -> &mut Self {
        self.text(AttributeType::NONCE, nonce)
    }

    /// Appends SOFTWARE (RFC 8489 §14.14): fewer than 128 characters.
    pub fn software(&mut self, software: &str) -> &mut Self {
        self.text(AttributeType::SOFTWARE, software)
    }

    /// Appends ALTERNATE-DOMAIN (RFC 8489 §14.16): at most 255 ASCII characters.
    pub fn alternate_domain(&mut self, domain: &str) -> &mut Self {
        self.text(AttributeType::ALTERNATE_DOMAIN, domain)
    }

    /// Appends ERROR-CODE (RFC 8489 §14.8). A `code` outside 300..=699 makes the message unusable.
    /// [`reason_phrase`](crate::reason_phrase) returns the registered phrase.
    pub fn error_code(&mut self, code: u16, reason: &str) -> &mut Self {
        match value::error_code::encode(0, code) {
            Some(head) => self.parts(AttributeType::ERROR_CODE, &[&head, reason.as_bytes()]),
            None => self.fail(),
        }
    }

    /// Appends ADDRESS-ERROR-CODE (RFC 8656 §18.12): `family` 1 or 2, `code` in 300..=699.
    pub fn address_error_code(&mut self, family: u8, code: u16, reason: &str) -> &mut Self {
        match value::error_code::encode(family, code) {
            Some(head) => {
                self.parts(AttributeType::ADDRESS_ERROR_CODE, &[&head, reason.as_bytes()])
            }
            None => self.fail(),
        }
    }

    /// Appends UNKNOWN-ATTRIBUTES (RFC 8489 §14.13) with these types. No type is repeated as
    /// padding.
    pub fn unknown_attributes(&mut self, kinds: &[AttributeType]) -> &mut Self {
        self.words(AttributeType::UNKNOWN_ATTRIBUTES, kinds.iter().map(|kind| kind.0.to_be_bytes()))
    }

    /// Appends PASSWORD-ALGORITHMS (RFC 8489 §14.11), in order of preference.
    pub fn password_algorithms(&mut self, algorithms: &[PasswordAlgorithm]) -> &mut Self {
        let entries = algorithms.iter().map(|algorithm| value::auth::encode_algorithm(*algorithm));
        self.words(AttributeType::PASSWORD_ALGORITHMS, entries)
    }

    /// Appends PASSWORD-ALGORITHM (RFC 8489 §14.12).
    pub fn password_algorithm(&mut self, algorithm: PasswordAlgorithm) -> &mut Self {
        let value = value::auth::encode_algorithm(algorithm);
        self.attribute(AttributeType::PASSWORD_ALGORITHM, &value)
    }

    /// Appends LIFETIME in seconds (RFC 8656 §18.2).
    pub fn lifetime(&mut self, secs: u32) -> &mut Self {
        self.number_u32(AttributeType::LIFETIME, secs)
    }

    /// Appends REQUESTED-TRANSPORT: an IP protocol number, 17 for UDP (RFC 8656 §18.8).
    pub fn requested_transport(&mut self, protocol: u8) -> &mut Self {
        self.number_u8(AttributeType::REQUESTED_TRANSPORT, protocol)
    }

    /// Appends REQUESTED-ADDRESS-FAMILY: 1 for IPv4, 2 for IPv6 (RFC 8656 §18.6).
    pub fn requested_address_family(&mut self, family: u8) -> &mut Self {
        self.number_u8(AttributeType::REQUESTED_ADDRESS_FAMILY, family)
    }

    /// Appends ADDITIONAL-ADDRESS-FAMILY: only 2 is valid (RFC 8656 §18.11).
    pub fn additional_address_family(&mut self, family: u8) -> &mut Self {
        self.number_u8(AttributeType::ADDITIONAL_ADDRESS_FAMILY, family)
    }

    /// Appends EVEN-PORT, with or without reserving the next port (RFC 8656 §18.7).
    pub fn even_port(&mut self, reserve_next: bool) -> &mut Self {
        self.attribute(AttributeType::EVEN_PORT, &[if reserve_next { 0x80 } else { 0 }])
    }

    /// Appends DONT-FRAGMENT (RFC 8656 §18.9).
    pub fn dont_fragment(&mut self) -> &mut Self {
        self.attribute(AttributeType::DONT_FRAGMENT, &[])
    }

    /// Appends RESERVATION-TOKEN (RFC 8656 §18.10).
    pub fn reservation_token(&mut self, token: [u8; 8]) -> &mut Self {
        self.attribute(AttributeType::RESERVATION_TOKEN, &token)
    }

    /// Appends CHANNEL-NUMBER (RFC 8656 §18.1).
    pub fn channel_number(&mut self, number: ChannelNumber) -> &mut Self {
        let [n0, n1] = number.get().to_be_bytes();
        self.attribute(AttributeType::CHANNEL_NUMBER, &[n0, n1, 0, 0])
    }

    /// Appends DATA (RFC 8656 §18.4). [`write_data_header`](crate::write_data_header) avoids the
    /// copy of the payload.
    pub fn data(&mut self, payload: &[u8]) -> &mut Self {
        self.attribute(AttributeType::DATA, payload)
    }

    /// Appends ICMP (RFC 8656 §18.13).
    pub fn icmp(&mut self, icmp: Icmp) -> &mut Self {
        self.attribute(AttributeType::ICMP, &value::turn::encode_icmp(icmp))
    }

    /// Appends CONNECTION-ID (RFC 6062 §6.2.1).
    pub fn connection_id(&mut self, id: u32) -> &mut Self {
        self.number_u32(AttributeType::CONNECTION_ID, id)
    }

    /// Appends MOBILITY-TICKET (RFC 8016 §4). An empty ticket requests a ticket.
    pub fn mobility_ticket(&mut self, ticket: &[u8]) -> &mut Self {
        self.attribute(AttributeType::MOBILITY_TICKET, ticket)
    }

    /// Appends THIRD-PARTY-AUTHORIZATION: the name of this server for the authorization server (RFC
    /// 7635 §6.1).
    pub fn third_party_authorization(&mut self, server_name: &str) -> &mut Self {
        self.text(AttributeType::THIRD_PARTY_AUTHORIZATION, server_name)
    }

    /// Appends ACCESS-TOKEN (RFC 7635 §6.2).
    pub fn access_token(&mut self, token: AccessToken<'_>) -> &mut Self {
        let Ok(nonce_len) = u16::try_from(token.nonce.len()) else {
            return self.fail();
        };
        let parts = [&nonce_len.to_be_bytes()[..], token.nonce, token.encrypted];
        self.parts(AttributeType::ACCESS_TOKEN, &parts)
    }

    /// Appends CHANGE-REQUEST (RFC 5780 §7.2).
    pub fn change_request(&mut self, change: ChangeRequest) -> &mut Self {
        self.attribute(AttributeType::CHANGE_REQUEST, &value::discovery::encode_change(change))
    }

    /// Appends RESPONSE-PORT (RFC 5780 §7.5): the port and two bytes of padding.
    pub fn response_port(&mut self, port: u16) -> &mut Self {
        let [p0, p1] = port.to_be_bytes();
        self.attribute(AttributeType::RESPONSE_PORT, &[p0, p1, 0, 0])
    }

    /// Finishes the message with PADDING (RFC 5780 §7.6) of `padding` zero bytes, a multiple of
    /// four. Only the attribute's header is written, and the caller sends the zeros afterwards.
    /// Returns the length in bytes of the written part.
    #[must_use]
    pub fn finish_before_padding(mut self, padding: u16) -> Option<usize> {
        debug_assert!(padding.is_multiple_of(4), "no other length ends a message");
        self.attribute(AttributeType::PADDING, &[]);
        let len = self.len?;
        self.out.get_mut(len - 2..len)?.copy_from_slice(&padding.to_be_bytes());
        self.set_length(len + usize::from(padding))?;
        Some(len)
    }

    /// Finishes the message without integrity and without FINGERPRINT. Returns the length in bytes.
    #[must_use]
    pub fn finish(mut self) -> Option<usize> {
        let len = self.len?;
        self.set_length(len)?;
        Some(len)
    }

    /// Appends MESSAGE-INTEGRITY or MESSAGE-INTEGRITY-SHA256.
    pub fn integrity(mut self, kind: IntegrityKind, key: &IntegrityKey) -> SealedBuilder<'b> {
        match kind {
            IntegrityKind::Sha1 => self.seal_sha1(key),
            IntegrityKind::Sha256 => self.seal_sha256(key),
        }
        SealedBuilder(self)
    }

    /// Finishes the message with FINGERPRINT and without integrity. Returns the length in bytes.
    #[must_use]
    pub fn fingerprint(mut self) -> Option<usize> {
        let at = self.len?;
        self.set_length(at + ATTRIBUTE_HEADER_LEN + FINGERPRINT_LEN)?;
        let crc = fingerprint(self.out.get(..at)?);
        self.attribute(AttributeType::FINGERPRINT, &crc);
        self.len
    }

    fn seal_sha1(&mut self, key: &IntegrityKey) {
        if let Some(covered) = self.covered(SHA1_LEN) {
            let mac = key.hmac_sha1(&[covered]);
            self.attribute(AttributeType::MESSAGE_INTEGRITY, &mac);
        }
    }

    fn seal_sha256(&mut self, key: &IntegrityKey) {
        if let Some(covered) = self.covered(SHA256_LEN) {
            let mac = key.hmac_sha256(&[covered]);
            self.attribute(AttributeType::MESSAGE_INTEGRITY_SHA256, &mac);
        }
    }

    /// Returns the bytes covered by an integrity attribute of this length. The length field already
    /// includes the attribute (RFC 8489 §14.5).
    fn covered(&mut self, value_len: usize) -> Option<&[u8]> {
        let at = self.len?;
        if self.set_length(at + ATTRIBUTE_HEADER_LEN + value_len).is_none() {
            self.len = None;
        }
        self.out.get(..self.len?)
    }

    /// Sets the length field for a message of `total` bytes.
    fn set_length(&mut self, total: usize) -> Option<()> {
        let len = u16::try_from(total.checked_sub(HEADER_LEN)?).ok()?;
        self.out.get_mut(2..4)?.copy_from_slice(&len.to_be_bytes());
        Some(())
    }

    /// Appends an attribute with a list of entries of equal size.
    fn words<const N: usize>(
        &mut self,
        kind: AttributeType,
        entries: impl ExactSizeIterator<Item = [u8; N]>,
    ) -> &mut Self {
        self.len = self.len.and_then(|at| {
            let value_len = entries.len().checked_mul(N)?;
            let value = begin_attribute(self.out, at, kind, value_len)?;
            for (place, entry) in value.chunks_exact_mut(N).zip(entries) {
                place.copy_from_slice(&entry);
            }
            Some(at + ATTRIBUTE_HEADER_LEN + padded_len(value_len))
        });
        self
    }

    fn fail(&mut self) -> &mut Self {
        self.len = None;
        self
    }
}

impl SealedBuilder<'_> {
    /// Finishes the message without FINGERPRINT. Returns the length in bytes.
    #[must_use]
    pub fn finish(self) -> Option<usize> {
        self.0.finish()
    }

    /// Finishes the message with FINGERPRINT. Returns the length in bytes.
    #[must_use]
    pub fn fingerprint(self) -> Option<usize> {
        self.0.fingerprint()
    }
}

/// Writes an attribute at `at`, and returns the position after the attribute.
fn write_attribute(
    out: &mut [u8],
    at: usize,
    kind: AttributeType,
    parts: &[&[u8]],
) -> Option<usize> {
    let value_len = parts.iter().map(|part| part.len()).sum();
    let mut rest = begin_attribute(out, at, kind, value_len)?;
    for part in parts {
        let (place, behind) = rest.split_at_mut_checked(part.len())?;
        place.copy_from_slice(part);
        rest = behind;
    }
    Some(at + ATTRIBUTE_HEADER_LEN + padded_len(value_len))
}

/// Writes type, length and padding, and returns the slice for the value.
fn begin_attribute(
    out: &mut [u8],
    at: usize,
    kind: AttributeType,
    value_len: usize,
) -> Option<&mut [u8]> {
    let len = u16::try_from(value_len).ok()?;
    let (head, rest) = out.get_mut(at..)?.split_first_chunk_mut::<ATTRIBUTE_HEADER_LEN>()?;
    let ([k0, k1], [l0, l1]) = (kind.0.to_be_bytes(), len.to_be_bytes());
    *head = [k0, k1, l0, l1];
    let (value, padding) = rest.get_mut(..padded_len(value_len))?.split_at_mut(value_len);
    padding.fill(0);
    Some(value)
}
