//! Passwords in coturn's storage format: salted hashes of administrators, and AES for the MySQL
//! option.

use std::fs;
use std::path::Path;

use atomic_file::Access;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use linux_net::random_bytes;
use openssl::sha::Sha256;
use openssl::symm::{Cipher, decrypt, encrypt};

/// Returns `$5$`, the salt, and the SHA-256 of salt and password, both in hexadecimal.
pub(super) fn hashed(password: &str) -> String {
    hashed_with(random_bytes(), password)
}

fn hashed_with(salt: [u8; 8], password: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(&salt);
    hash.update(password.as_bytes());
    format!("$5${}${}", hex(&salt), hex(&hash.finish()))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a new key of 16 bytes. Replaces an existing file, as coturn does.
pub(super) fn make_key(path: &Path) -> std::io::Result<()> {
    const SIGNS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    let random: [u8; 16] = random_bytes();
    let key = random.map(|byte| SIGNS[usize::from(byte & 63)]);
    atomic_file::replace(path, &key, Access::PRIVATE)
}

/// Reads a key, which is the first 16 bytes of the file.
///
/// # Errors
/// The file cannot be read, or is shorter.
pub(super) fn key(path: &Path) -> Result<[u8; 16], String> {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let key = bytes.first_chunk().copied();
    key.ok_or_else(|| format!("{}: the key has 16 bytes, and the file fewer", path.display()))
}

/// Encrypts a password in coturn's form: AES-128 in counter mode with an initial counter of zero,
/// in base64.
pub(super) fn encrypted(key: &[u8; 16], password: &str) -> Result<String, String> {
    let bytes = encrypt(Cipher::aes_128_ctr(), key, Some(&[0; 16]), password.as_bytes());
    Ok(BASE64_STANDARD.encode(bytes.map_err(|error| error.to_string())?))
}

/// Decrypts a password that [`encrypted`] has encrypted.
pub(super) fn decrypted(key: &[u8; 16], text: &str) -> Result<String, String> {
    let bytes = BASE64_STANDARD.decode(text.trim()).map_err(|_| "it is not base64".to_owned())?;
    let bytes = decrypt(Cipher::aes_128_ctr(), key, Some(&[0; 16]), &bytes);
    let bytes = bytes.map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Expected values are from coturn's turnadmin 4.6.1.
    #[test]
    fn forms_are_those_of_coturn() {
        let salt = 0xf652_f090_03a8_b123_u64.to_be_bytes();
        assert_eq!(
            hashed_with(salt, "magi"),
            "$5$f652f09003a8b123$9ff25d5a8ad888c96dd02f8cb63d0a4384ebb77881ed234d2b0c5c1dc4349974"
        );
        let key = *b"qv4igP5kCiXYycAH";
        assert_eq!(encrypted(&key, "secretpw").unwrap(), "YFxsJmlr254=");
        assert_eq!(decrypted(&key, "YFxsJmlr254=").unwrap(), "secretpw");
    }
}
