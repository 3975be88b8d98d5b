//! ChannelData: the four-byte header before relayed data (RFC 8656 §12.4).

use core::fmt;

use crate::error::ParseError;

/// Length in bytes of the header before the data: channel number and length.
pub const CHANNEL_HEADER_LEN: usize = 4;

/// Channel number in 0x4000..=0x4FFF (RFC 8656 §12). For clients of RFC 5766 §11, numbers up to
/// 0x7FFF are valid ([`Self::new_rfc5766`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelNumber(u16);

impl ChannelNumber {
    /// Smallest channel number, 0x4000.
    pub const MIN: Self = Self(0x4000);
    /// Largest channel number of RFC 8656, 0x4FFF.
    pub const MAX: Self = Self(0x4FFF);

    /// Creates a channel number, or returns `None` outside 0x4000..=0x4FFF.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        match number {
            0x4000..=0x4FFF => Some(Self(number)),
            _ => None,
        }
    }

    /// Creates a channel number of RFC 5766 §11, or returns `None` outside 0x4000..=0x7FFF.
    #[must_use]
    pub const fn new_rfc5766(number: u16) -> Option<Self> {
        match number {
            0x4000..=0x7FFF => Some(Self(number)),
            _ => None,
        }
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Debug for ChannelNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:04X}", self.0)
    }
}

/// ChannelData message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChannelData<'a> {
    /// Number of the channel, which may be unbound.
    pub number: u16,
    /// Data without padding, possibly empty.
    pub data: &'a [u8],
}

/// Parses a datagram as ChannelData. Bytes after the data are ignored as padding (RFC 8656 §12.5:
/// optional over UDP). A message of a stream can therefore be parsed in the same way.
///
/// # Errors
/// - [`ParseError::NotChannelData`]: the first byte is not 64..=79.
/// - [`ParseError::TooShort`]: the header is incomplete.
/// - [`ParseError::LengthMismatch`]: there is less data than the length field indicates.
#[inline]
pub fn channel_data(datagram: &[u8]) -> Result<ChannelData<'_>, ParseError> {
    read(datagram, ChannelNumber::new)
}

/// Parses a datagram as [`channel_data`], with the wider range of RFC 5766.
///
/// # Errors
/// Fails for the reasons of [`channel_data`], with 64..=127 for the first byte.
#[inline]
pub fn channel_data_rfc5766(datagram: &[u8]) -> Result<ChannelData<'_>, ParseError> {
    read(datagram, ChannelNumber::new_rfc5766)
}

#[inline]
fn read(
    datagram: &[u8],
    exists: impl FnOnce(u16) -> Option<ChannelNumber>,
) -> Result<ChannelData<'_>, ParseError> {
    let Some((&[n0, n1, l0, l1], rest)) = datagram.split_first_chunk::<CHANNEL_HEADER_LEN>() else {
        return Err(ParseError::TooShort);
    };
    let number = u16::from_be_bytes([n0, n1]);
    if exists(number).is_none() {
        return Err(ParseError::NotChannelData);
    }
    let len = usize::from(u16::from_be_bytes([l0, l1]));
    let data = rest.get(..len).ok_or(ParseError::LengthMismatch)?;
    Ok(ChannelData { number, data })
}

/// Writes the header of a ChannelData message with `len` bytes of data. On a stream, zeros follow
/// the data up to a multiple of four. `len` does not include these zeros (RFC 8656 §12.5).
#[inline]
pub fn write_channel_header(out: &mut [u8; CHANNEL_HEADER_LEN], number: ChannelNumber, len: u16) {
    let ([n0, n1], [l0, l1]) = (number.0.to_be_bytes(), len.to_be_bytes());
    *out = [n0, n1, l0, l1];
}
