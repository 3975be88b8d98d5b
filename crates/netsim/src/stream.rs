//! Reliable byte streams over datagrams that arrive in any order: a model of TCP on a network that
//! delays. Both ends are values, and segments are the payloads of ordinary packets.

use std::collections::BTreeMap;

/// Bytes of a segment's header: connection, position in the stream, end flag.
const HEADER: usize = 9;

/// One end of a connection: its sent and received state.
#[derive(Debug, Default)]
pub struct Stream {
    /// Distinguishes this connection from earlier ones between the same addresses.
    connection: u32,
    sent: u32,
    heard: u32,
    /// Segments received out of order.
    early: BTreeMap<u32, Vec<u8>>,
    /// Position of the end of the remote's bytes.
    end: Option<u32>,
}

/// Result of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// The bytes that are next, in order.
    pub bytes: Vec<u8>,
    /// There are no more.
    pub ended: bool,
}

impl Stream {
    /// An end of a connection; both have the same number.
    #[must_use]
    pub fn new(connection: u32) -> Self {
        Self { connection, ..Self::default() }
    }

    /// Which connection a segment belongs to; `None`: it is none.
    #[must_use]
    pub fn connection_of(segment: &[u8]) -> Option<u32> {
        let (number, _) = segment.split_first_chunk::<4>()?;
        (segment.len() >= HEADER).then(|| u32::from_be_bytes(*number))
    }

    /// Cuts bytes into segments of `len` at most, which is 1 or more.
    pub fn send(&mut self, bytes: &[u8], len: usize) -> Vec<Vec<u8>> {
        bytes.chunks(len.max(1)).map(|piece| self.segment(piece, false)).collect()
    }

    /// The segment that ends the stream.
    pub fn end(&mut self) -> Vec<u8> {
        self.segment(&[], true)
    }

    fn segment(&mut self, bytes: &[u8], ends: bool) -> Vec<u8> {
        let mut segment = self.connection.to_be_bytes().to_vec();
        segment.extend(self.sent.to_be_bytes());
        segment.push(u8::from(ends));
        segment.extend(bytes);
        self.sent = self.sent.wrapping_add(bytes.len() as u32);
        segment
    }

    /// Takes a segment of this connection.
    pub fn receive(&mut self, segment: &[u8]) -> Heard {
        let Some((header, bytes)) = segment.split_first_chunk::<HEADER>() else {
            return Heard::default();
        };
        let at = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        if header[8] != 0 {
            self.end = Some(at);
        } else {
            self.early.insert(at, bytes.to_vec());
        }
        let mut heard = Heard::default();
        while let Some(next) = self.early.remove(&self.heard) {
            self.heard += next.len() as u32;
            heard.bytes.extend(next);
        }
        heard.ended = self.end.take_if(|end| *end == self.heard).is_some();
        heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_order_however_segments_come() {
        let (mut one, mut other) = (Stream::new(7), Stream::new(7));
        let mut segments = one.send(b"turn", 1);
        segments.push(one.end());
        let heard: Vec<Heard> =
            [4, 2, 0, 3, 1].map(|index| other.receive(&segments[index])).to_vec();
        let bytes = |bytes: &[u8], ended| Heard { bytes: bytes.to_vec(), ended };
        assert_eq!(
            heard,
            [
                bytes(b"", false),
                bytes(b"", false),
                bytes(b"t", false),
                bytes(b"", false),
                bytes(b"urn", true)
            ]
        );
        assert_eq!(Stream::connection_of(&segments[0]), Some(7));
        assert_eq!(Stream::connection_of(b"short"), None);
    }
}
