//! ChannelData, the four-byte frame around relayed data (RFC 8656 §12.4).

use core::fmt;

use crate::error::ParseError;

/// Bytes in front of the data: channel number and length.
pub const CHANNEL_HEADER_LEN: usize = 4;

/// A channel number: one that exists is in 0x4000..=0x4FFF (RFC 8656 §12), or up to 0x7FFF where
/// the clients of RFC 5766 §11 are served ([`Self::new_rfc5766`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelNumber(u16);

impl ChannelNumber {
    /// The smallest, 0x4000.
    pub const MIN: Self = Self(0x4000);
    /// The largest, 0x4FFF.
    pub const MAX: Self = Self(0x4FFF);

    /// The channel with this number, if there is one.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        match number {
            0x4000..=0x4FFF => Some(Self(number)),
            _ => None,
        }
    }

    /// The channel with this number, if RFC 5766 §11 has one: 0x4000..=0x7FFF.
    #[must_use]
    pub const fn new_rfc5766(number: u16) -> Option<Self> {
        match number {
            0x4000..=0x7FFF => Some(Self(number)),
            _ => None,
        }
    }

    /// The number.
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

/// A ChannelData message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChannelData<'a> {
    /// The channel; whether it is bound is not known here.
    pub number: u16,
    /// The data without padding, perhaps empty.
    pub data: &'a [u8],
}

/// Reads a datagram as ChannelData. Bytes behind the data are padding and ignored (RFC 8656 §12.5:
/// optional over UDP), so a piece of a stream can be read the same way.
///
/// # Errors
/// [`ParseError::NotChannelData`] if the first byte is not 64..=79, [`ParseError::TooShort`]
/// without a whole header, [`ParseError::LengthMismatch`] if there is less data than the length
/// says.
#[inline]
pub fn channel_data(datagram: &[u8]) -> Result<ChannelData<'_>, ParseError> {
    read(datagram, ChannelNumber::new)
}

/// The same for the wider range of RFC 5766.
///
/// # Errors
/// As [`channel_data`], with 64..=127 for the first byte.
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

/// Writes the header of a ChannelData message with `len` bytes of data. On a stream the data is
/// followed by zeros up to a multiple of four, which `len` does not count (RFC 8656 §12.5).
#[inline]
pub fn write_channel_header(out: &mut [u8; CHANNEL_HEADER_LEN], number: ChannelNumber, len: u16) {
    let ([n0, n1], [l0, l1]) = (number.0.to_be_bytes(), len.to_be_bytes());
    *out = [n0, n1, l0, l1];
}
