//! USERHASH and the password algorithms (RFC 8489 §14.4, §14.11, §14.12, §18.5).

use core::fmt;

use crate::error::ValueError;
use crate::header::padded_len;

/// A password algorithm's number (RFC 8489 §18.5); unknown ones are kept as they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PasswordAlgorithm(pub u16);

impl PasswordAlgorithm {
    /// MD5, for old clients.
    pub const MD5: Self = Self(0x0001);
    /// SHA-256.
    pub const SHA256: Self = Self(0x0002);

    /// The RFC's name of it, if it has one.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::MD5 => Some("MD5"),
            Self::SHA256 => Some("SHA-256"),
            _ => None,
        }
    }
}

impl fmt::Debug for PasswordAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "PasswordAlgorithm(0x{:04X})", self.0),
        }
    }
}

/// USERHASH (RFC 8489 §14.4).
///
/// # Errors
/// Not exactly 32 bytes.
pub fn userhash(value: &[u8]) -> Result<[u8; 32], ValueError> {
    super::exactly(value)
}

/// PASSWORD-ALGORITHM (RFC 8489 §14.12): exactly one entry.
///
/// # Errors
/// [`ValueError::Length`], or [`ValueError::AlgorithmParameters`] if MD5 or SHA-256 has parameters.
pub fn password_algorithm(value: &[u8]) -> Result<PasswordAlgorithm, ValueError> {
    let (algorithm, rest) = entry(value)?;
    if rest.is_empty() { Ok(algorithm) } else { Err(ValueError::Length) }
}

/// PASSWORD-ALGORITHMS (RFC 8489 §14.11): the entries in order of preference, up to and including
/// the first that is malformed.
pub fn password_algorithms(
    value: &[u8],
) -> impl Iterator<Item = Result<PasswordAlgorithm, ValueError>> + '_ {
    let mut rest = value;
    core::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        Some(match entry(rest) {
            Ok((algorithm, behind)) => {
                rest = behind;
                Ok(algorithm)
            }
            Err(error) => {
                rest = &[];
                Err(error)
            }
        })
    })
}

/// One entry, and the rest behind it. The padding of the last one may be that of the attribute.
fn entry(value: &[u8]) -> Result<(PasswordAlgorithm, &[u8]), ValueError> {
    let Some((&[n0, n1, l0, l1], rest)) = value.split_first_chunk::<4>() else {
        return Err(ValueError::Length);
    };
    let algorithm = PasswordAlgorithm(u16::from_be_bytes([n0, n1]));
    let len = usize::from(u16::from_be_bytes([l0, l1]));
    if len > rest.len() {
        return Err(ValueError::Length);
    }
    if len != 0 && algorithm.name().is_some() {
        return Err(ValueError::AlgorithmParameters);
    }
    Ok((algorithm, rest.get(padded_len(len)..).unwrap_or_default()))
}

/// An entry without parameters, which is all that exist.
pub(crate) fn encode_algorithm(algorithm: PasswordAlgorithm) -> [u8; 4] {
    let [n0, n1] = algorithm.0.to_be_bytes();
    [n0, n1, 0, 0]
}
