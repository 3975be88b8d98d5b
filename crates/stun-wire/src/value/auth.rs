//! USERHASH and the password algorithms (RFC 8489 §14.4, §14.11, §14.12, §18.5).

use core::fmt;

use crate::error::ValueError;
use crate::header::padded_len;

/// Number of a password algorithm (RFC 8489 §18.5). Unknown numbers are retained unchanged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PasswordAlgorithm(pub u16);

impl PasswordAlgorithm {
    /// MD5, for old clients.
    pub const MD5: Self = Self(0x0001);
    /// SHA-256.
    pub const SHA256: Self = Self(0x0002);

    /// Returns the RFC's name of the algorithm, or `None` for an unknown number.
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

/// Parses USERHASH (RFC 8489 §14.4).
///
/// # Errors
/// The value does not have exactly 32 bytes.
pub fn userhash(value: &[u8]) -> Result<[u8; 32], ValueError> {
    super::exactly(value)
}

/// Parses PASSWORD-ALGORITHM (RFC 8489 §14.12): exactly one entry.
///
/// # Errors
/// - [`ValueError::Length`]: the value is not exactly one entry.
/// - [`ValueError::AlgorithmParameters`]: MD5 or SHA-256 has parameters.
pub fn password_algorithm(value: &[u8]) -> Result<PasswordAlgorithm, ValueError> {
    let (algorithm, rest) = entry(value)?;
    if rest.is_empty() { Ok(algorithm) } else { Err(ValueError::Length) }
}

/// Parses PASSWORD-ALGORITHMS (RFC 8489 §14.11). Returns the entries in order of preference, up to
/// and including the first malformed entry.
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

/// Parses one entry, and returns the remaining bytes. The padding of the last entry may be that of
/// the attribute.
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

/// Encodes an entry without parameters. No registered algorithm has parameters.
pub(crate) fn encode_algorithm(algorithm: PasswordAlgorithm) -> [u8; 4] {
    let [n0, n1] = algorithm.0.to_be_bytes();
    [n0, n1, 0, 0]
}
