//! Header of a run's packets: 24 bytes at the start of the payload, big-endian.
//!
//! ```text
//!  0  "TpB"     3 bytes: magic
//!  3  kind      0: a packet of a run; others: control messages between the load and its peer
//!  4  run       the run: packets of others are not counted
//!  8  flow      the number of its flow, from 0
//! 12  sequence  the number of the packet within its flow and run, from 0
//! 16  sent      when it was handed to the kernel: nanoseconds of CLOCK_MONOTONIC of the sender
//! 24  filler    zeros
//! ```

/// Bytes that every packet has.
pub const HEADER: usize = 24;

/// The first three bytes.
pub const MAGIC: [u8; 3] = *b"TpB";

/// The fourth byte of a packet of a run.
pub const DATA: u8 = 0;

/// The header of a packet of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which run it belongs to.
    pub run: u32,
    /// The number of its flow.
    pub flow: u32,
    /// Its number within the flow and the run.
    pub sequence: u32,
    /// Send time, in nanoseconds of the sender's monotonic clock.
    pub sent: u64,
}

impl Header {
    /// The bytes, as the start of a payload.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..3].copy_from_slice(&MAGIC);
        bytes[3] = DATA;
        bytes[4..8].copy_from_slice(&self.run.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.flow.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[16..].copy_from_slice(&self.sent.to_be_bytes());
        bytes
    }

    /// The header of a payload; `None` when it is not of a run.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let header = payload.first_chunk::<HEADER>()?;
        if header[..3] != MAGIC || header[3] != DATA {
            return None;
        }
        let word = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let sent = u64::from(word(16)) << 32 | u64::from(word(20));
        Some(Self { run: word(4), flow: word(8), sequence: word(12), sent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = Header { run: 7, flow: 0x0102_0304, sequence: 9, sent: 0x1122_3344_5566_7788 };
        let mut payload = header.encode().to_vec();
        assert_eq!(payload[..8], *b"TpB\0\0\0\0\x07");
        payload.extend([0; 100]);
        assert_eq!(Header::decode(&payload), Some(header));
    }

    #[test]
    fn other_payloads_have_no_header() {
        let mut payload = Header { run: 1, flow: 1, sequence: 1, sent: 1 }.encode();
        assert_eq!(Header::decode(&payload[..23]), None);
        payload[3] = 1;
        assert_eq!(Header::decode(&payload), None);
        payload[3] = DATA;
        payload[0] = 0;
        assert_eq!(Header::decode(&payload), None);
    }
}
