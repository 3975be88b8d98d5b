//! Wire format of records, and of the handshake message fragments in them (RFC 6347 §§4.1, 4.2.2).

/// Length of a record's header in bytes.
pub(super) const RECORD_HEADER: usize = 13;

/// Length in bytes of the header of a handshake fragment.
pub(super) const HANDSHAKE_HEADER: usize = 12;

/// Content types (RFC 5246 §6.2.1).
pub(super) const CHANGE_CIPHER_SPEC: u8 = 20;
pub(super) const ALERT: u8 = 21;
pub(super) const HANDSHAKE: u8 = 22;
pub(super) const APPLICATION_DATA: u8 = 23;

/// Types of handshake messages (RFC 5246 §7.4).
pub(super) const CLIENT_HELLO: u8 = 1;
pub(super) const FINISHED: u8 = 20;

/// Versions of DTLS. Records before the negotiation carry the older version, which all clients
/// accept (RFC 6347 §4.2.1).
pub(super) const DTLS_1_0: u16 = 0xFEFF;
pub(super) const DTLS_1_2: u16 = 0xFEFD;

/// Level of a fatal alert (RFC 5246 §7.2).
pub(super) const FATAL: u8 = 2;

/// Offset of the epoch in a record's header. The sequence number follows the epoch.
const EPOCH_AT: usize = 3;

/// Parsed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) content: u8,
    pub(super) version: u16,
    pub(super) epoch: u16,
    /// Number of the record in its epoch, of 48 bits.
    pub(super) number: u64,
    pub(super) body: &'a [u8],
}

/// Fragment of a handshake message, or the complete message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    pub(super) kind: u8,
    /// Declared length of the complete message in bytes.
    pub(super) len: usize,
    /// Number of the message.
    pub(super) message: u16,
    /// Offset of the fragment in the message.
    pub(super) at: usize,
    pub(super) body: &'a [u8],
}

/// Returns true if the first byte of a datagram is in the range of DTLS (RFC 7983 §7).
#[must_use]
pub const fn is_dtls(datagram: &[u8]) -> bool {
    matches!(datagram, [20..=63, ..])
}

/// Returns true if a datagram starts with an unencrypted ClientHello, of a new or an established
/// session.
#[must_use]
pub fn begins_handshake(datagram: &[u8]) -> bool {
    let epoch = datagram.get(EPOCH_AT..EPOCH_AT + 2);
    datagram.first() == Some(&HANDSHAKE)
        && epoch == Some(&[0, 0])
        && datagram.get(RECORD_HEADER) == Some(&CLIENT_HELLO)
}

/// Splits off the first record of a datagram, and returns the remaining bytes.
pub(super) fn take_record(datagram: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let (header, rest) = datagram.split_first_chunk::<RECORD_HEADER>()?;
    let [content, major, minor, epoch @ .., _, _, _, _, _, _, _, _] = *header;
    let [.., n0, n1, n2, n3, n4, n5, len0, len1] = *header;
    let (body, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([len0, len1])))?;
    // Accepts all versions of DTLS: the handshake negotiates the version.
    (major == 0xFE).then_some((
        Record {
            content,
            version: u16::from_be_bytes([major, minor]),
            epoch: u16::from_be_bytes(epoch),
            number: u64::from_be_bytes([0, 0, n0, n1, n2, n3, n4, n5]),
            body,
        },
        rest,
    ))
}

/// Splits off the first handshake fragment of a record's body, and returns the remaining bytes.
pub(super) fn take_piece(body: &[u8]) -> Option<(Piece<'_>, &[u8])> {
    let (header, rest) = body.split_first_chunk::<HANDSHAKE_HEADER>()?;
    let [kind, l0, l1, l2, m0, m1, a0, a1, a2, p0, p1, p2] = *header;
    let (body, rest) = rest.split_at_checked(number([p0, p1, p2]))?;
    let message = u16::from_be_bytes([m0, m1]);
    Some((Piece { kind, len: number([l0, l1, l2]), message, at: number([a0, a1, a2]), body }, rest))
}

const fn number([high, middle, low]: [u8; 3]) -> usize {
    u32::from_be_bytes([0, high, middle, low]) as usize
}

/// Returns true if a datagram contains a ChangeCipherSpec.
pub(super) fn changes_keys(mut datagram: &[u8]) -> bool {
    while let Some((record, rest)) = take_record(datagram) {
        if record.content == CHANGE_CIPHER_SPEC {
            return true;
        }
        datagram = rest;
    }
    false
}

/// Adds `by` to the numbers of the records of epoch 0 in an outgoing datagram.
pub(super) fn renumber(mut datagram: &mut [u8], by: u64) {
    while let Some((record, rest)) = take_record(datagram) {
        let (epoch, number, rest) = (record.epoch, record.number, rest.len());
        if epoch == 0 {
            let number = number.wrapping_add(by).to_be_bytes();
            datagram[EPOCH_AT + 2..EPOCH_AT + 8].copy_from_slice(&number[2..]);
        }
        let at = datagram.len() - rest;
        datagram = &mut datagram[at..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: [u8; 31] = [
        22, 0xFE, 0xFD, 0, 0, 0, 0, 0, 0, 0, 7, 0, 3, 1, 2, 3, // epoch 0, number 7
        23, 0xFE, 0xFD, 0, 1, 0, 0, 0, 0, 0, 7, 0, 2, 8, 9, // epoch 1, number 7
    ];

    #[test]
    fn records_are_read_one_by_one() {
        let (first, rest) = take_record(&TWO).unwrap();
        let expected =
            Record { content: HANDSHAKE, version: DTLS_1_2, epoch: 0, number: 7, body: &[1, 2, 3] };
        assert_eq!(first, expected);
        let (second, rest) = take_record(rest).unwrap();
        assert_eq!((second.content, second.epoch, second.body), (23, 1, &[8, 9][..]));
        assert!(rest.is_empty());
        assert_eq!(take_record(&TWO[..15]), None, "cut off");
    }

    #[test]
    fn only_records_of_epoch_0_are_given_other_numbers() {
        let mut two = TWO;
        renumber(&mut two, 300);
        assert_eq!(two[5..11], [0, 0, 0, 0, 1, 0x33]);
        assert_eq!(two[16..], TWO[16..]);
    }

    #[test]
    fn the_first_byte_distinguishes_dtls_stun_and_channel_data() {
        for byte in 0..=255 {
            assert_eq!(is_dtls(&[byte]), (20..=63).contains(&byte), "{byte}");
        }
        assert!(!is_dtls(&[]));
        assert!(begins_handshake(&TWO) && !begins_handshake(&TWO[16..]));
        assert!(!begins_handshake(&TWO[..13]));
        // Type of the record, both bytes of the epoch, type of the message.
        for at in [0, 3, 4, RECORD_HEADER] {
            let mut other = TWO;
            other[at] += 1;
            assert!(!begins_handshake(&other), "byte {at}");
        }
    }
}
