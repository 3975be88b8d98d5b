//! RFC 8489 §9.2, §14.4, §18.5.1: derivation of keys from names and passwords, and the cookie in a
//! nonce.

use stun_wire::{
    LongTermKeys, PrecisError, SecurityFeatures, long_term_key_md5, long_term_key_sha256,
    opaque_string, time_limited_password, userhash,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// 8489-9.2.2-01: the example of the RFC.
#[test]
fn md5_key_of_the_rfc() {
    let key = long_term_key_md5("user", "realm", "pass").unwrap();
    assert_eq!(hex(&key), "8493fbc53ba582fb4c044c456bdc40eb");
}

/// 8489-9.2.2-02: the same text under SHA-256 (digest computed with another implementation).
#[test]
fn sha256_key() {
    let key = long_term_key_sha256("user", "realm", "pass").unwrap();
    assert_eq!(hex(&key), "07e934117abd40836e7c6329b54731b2b2d2a5f9a71f544922d75e0730d8251b");
}

/// 8489-9.2.2-01: surrounding quotes, trailing NULs.
#[test]
fn quotes_and_trailing_nuls_are_removed() {
    let plain = long_term_key_md5("user", "realm", "pass");
    for (username, realm, password) in [
        ("\"user\"", "realm", "pass"),
        ("user\0\0", "realm", "pass"),
        ("user", "\"realm\"", "pass"),
        ("user", "\"realm\"\0", "pass"),
        ("user", "realm", "pass\0\0\0"),
    ] {
        assert_eq!(long_term_key_md5(username, realm, password), plain, "{username:?} {realm:?}");
    }
    // Quotes belong to a password, and inside a name to the name.
    assert_ne!(long_term_key_md5("user", "realm", "\"pass\""), plain);
    assert_ne!(long_term_key_md5("us\"er", "realm", "pass"), plain);
    assert_ne!(long_term_key_md5("\"user", "realm", "pass"), plain);
}

/// 8489-9.2.2-01: OpaqueString on realm and password, not on the username.
#[test]
fn opaque_string_is_applied_to_realm_and_password() {
    let composed = long_term_key_md5("user", "r\u{E9}alm", "p\u{E4}ss").unwrap();
    let decomposed = long_term_key_md5("user", "re\u{301}alm", "pa\u{308}ss").unwrap();
    assert_eq!(composed, decomposed);
    let username = |name| long_term_key_md5(name, "realm", "pass").unwrap();
    assert_ne!(username("us\u{E9}r"), username("use\u{301}r"));
}

/// 8489-14.4-01: OpaqueString on both.
#[test]
fn userhash_is_of_opaque_strings() {
    assert_eq!(userhash("us\u{E9}r", "realm"), userhash("use\u{301}r", "realm"));
    assert_ne!(userhash("user", "realm"), userhash("User", "realm"));
    assert_eq!(userhash("", "realm"), Err(PrecisError::Empty));
    assert_eq!(userhash("user", ""), Err(PrecisError::Empty));
}

/// RFC 8265 §4.2.
#[test]
fn opaque_string_profile() {
    for (given, expected) in [
        ("correct horse battery staple", Ok("correct horse battery staple")),
        // The examples of RFC 8265 §4.3.
        ("Correct Horse Battery Staple", Ok("Correct Horse Battery Staple")),
        ("\u{3C0}\u{DF}\u{E5}", Ok("\u{3C0}\u{DF}\u{E5}")),
        ("Jack of \u{2666}s", Ok("Jack of \u{2666}s")),
        ("foo\u{1680}bar", Ok("foo bar")),
        ("", Err(PrecisError::Empty)),
        ("my cat is a \tby", Err(PrecisError::Forbidden)),
        // Not NFKC: a compatibility character is unchanged, and a decomposed one is composed.
        ("\u{2168}", Ok("\u{2168}")),
        ("e\u{301}", Ok("\u{E9}")),
        ("nul\0inside", Err(PrecisError::Forbidden)),
        ("\u{7F}", Err(PrecisError::Forbidden)),
    ] {
        let got = opaque_string(given);
        assert_eq!(got.as_deref().map_err(|error| *error), expected, "{given:?}");
    }
}

#[test]
fn no_key_from_a_forbidden_password() {
    assert_eq!(long_term_key_md5("user", "realm", ""), Err(PrecisError::Empty));
    assert_eq!(long_term_key_sha256("user", "realm", "\u{1}"), Err(PrecisError::Forbidden));
    assert!(LongTermKeys::new("user", "", "pass").is_err());
}

#[test]
fn both_keys_at_once_and_unseen() {
    let keys = LongTermKeys::new("user", "realm", "pass").unwrap();
    assert_eq!(Ok(keys.md5), long_term_key_md5("user", "realm", "pass"));
    assert_eq!(Ok(keys.sha256), long_term_key_sha256("user", "realm", "pass"));
    assert_eq!(format!("{keys:?}"), "LongTermKeys(<secret>)");
}

/// Digest computed with another implementation.
#[test]
fn password_of_a_time_limited_credential() {
    let password = time_limited_password(b"north", "1433895918:user");
    assert_eq!(password, "/gk4t5tUc08OpM3NjrVjHSFVNmY=");
}

/// 8489-9.2-02, 8489-9.2-03: bit 0 is the most significant.
#[test]
fn nonce_cookie() {
    for (password_algorithms, username_anonymity, cookie) in [
        (false, false, b"obMatJos2AAAA"),
        (true, false, b"obMatJos2gAAA"),
        (false, true, b"obMatJos2QAAA"),
        (true, true, b"obMatJos2wAAA"),
    ] {
        let features = SecurityFeatures { password_algorithms, username_anonymity };
        assert_eq!(features.cookie(), *cookie);
        let nonce = format!("{}rest of the nonce", String::from_utf8_lossy(cookie));
        assert_eq!(SecurityFeatures::of_nonce(&nonce), Some(features));
    }
    // Unassigned bits have no meaning.
    assert_eq!(SecurityFeatures::of_nonce("obMatJos2P///"), Some(SecurityFeatures::default()));
    for other in ["", "obMatJos2", "obMatJos2AAA", "obmatjos2AAAA", "obMatJos2AA!A", "f//499k954d6"]
    {
        assert_eq!(SecurityFeatures::of_nonce(other), None, "{other:?}");
    }
}
