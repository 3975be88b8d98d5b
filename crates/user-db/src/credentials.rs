//! Generation of user names and passwords.

use turn_types::Secret;

/// Symbols of generated credentials: lower-case letters and digits, without the easily confused i,
/// l, 0 and 1. All symbols are safe in URLs, shells and INI files, and unambiguous over the
/// telephone. With 32 symbols, five random bits select one without bias.
const ALPHABET: &[u8; 32] = b"abcdefghjkmnopqrstuvwxyz23456789";

/// Number of symbols in a password: 130 bits, above the 128 that cannot be brute-forced.
const PASSWORD_SYMBOLS: usize = 26;

/// Number of symbols in a name: 50 bits, enough to avoid duplicate names.
const NAME_SYMBOLS: usize = 10;

/// Name and password from the operating system's randomness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Name: `user-` and ten symbols.
    pub name: String,
    /// Password: 26 symbols with 130 random bits.
    pub password: Secret<String>,
}

impl Credentials {
    /// Generates a name and a password.
    ///
    /// # Errors
    /// The operating system cannot provide randomness. Most other functions would fail then, too.
    pub fn generate() -> Result<Self, getrandom::Error> {
        Ok(Self {
            name: format!("user-{}", symbols::<NAME_SYMBOLS>()?),
            password: Secret::new(symbols::<PASSWORD_SYMBOLS>()?),
        })
    }
}

fn symbols<const COUNT: usize>() -> Result<String, getrandom::Error> {
    let mut random = [0; COUNT];
    getrandom::fill(&mut random)?;
    Ok(random.iter().map(|byte| char::from(ALPHABET[usize::from(byte & 31)])).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_alphabet_is_unambiguous_and_needs_no_quoting() {
        let distinct: BTreeSet<u8> = ALPHABET.iter().copied().collect();
        assert_eq!(distinct.len(), 32);
        assert!(
            ALPHABET.iter().all(|symbol| symbol.is_ascii_lowercase() || symbol.is_ascii_digit())
        );
        assert!(b"il01".iter().all(|doubtful| !distinct.contains(doubtful)));
    }

    #[test]
    fn credentials_are_long_and_differ() {
        let (one, other) = (Credentials::generate().unwrap(), Credentials::generate().unwrap());
        assert_eq!(one.password.expose().len(), 26);
        assert_ne!(one.password, other.password);
        assert_ne!(one.name, other.name);
        assert!(one.name.starts_with("user-"));
        assert!(!format!("{one:?}").contains(one.password.expose()), "Debug shows no password");
    }
}
