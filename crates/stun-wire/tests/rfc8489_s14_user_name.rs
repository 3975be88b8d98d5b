//! RFC 8489 §14.3 and RFC 8265 §4.2: the form of a user's name.

use stun_wire::{UserName, UserNameError};

#[test]
fn spellings_of_one_name_have_one_form() {
    for (text, form) in [
        ("alice", "alice"),
        ("1900000000:zoe\u{308}", "1900000000:zo\u{eb}"),
        ("1900000000:zo\u{eb}", "1900000000:zo\u{eb}"),
        ("a\u{a0}b", "a b"),
        ("a\u{3000}b", "a b"),
        ("DOMAIN\\bob", "DOMAIN\\bob"),
    ] {
        assert_eq!(UserName::new(text).unwrap().as_str(), form, "{text}");
        assert_eq!(UserName::form_of(text), form);
        assert_eq!(UserName::form_of(form), form, "the form has itself as its form");
    }
}

#[test]
fn text_that_is_no_name_keeps_its_spelling() {
    let long = "n".repeat(UserName::BYTES_MAX + 1);
    for (text, error) in [
        ("", UserNameError::Empty),
        ("a\nb", UserNameError::Forbidden),
        ("a\0", UserNameError::Forbidden),
        ("a\u{202e}b", UserNameError::Forbidden),
        ("a\u{200b}b", UserNameError::Forbidden),
        ("a\u{200d}b", UserNameError::Forbidden),
        ("a\u{e000}b", UserNameError::Forbidden),
        ("a\u{2028}b", UserNameError::Forbidden),
        (&long, UserNameError::TooLong(509)),
    ] {
        assert_eq!(UserName::new(text), Err(error), "{}", text.escape_debug());
        assert_eq!(UserName::form_of(text), text);
    }
    assert!(UserName::new(&long[1..]).is_ok());
}
