//! RFC 8265 §4.2: the OpaqueString profile, compared with `precis-profiles`.

use precis_profiles::OpaqueString;
use precis_profiles::precis_core::profile::PrecisFastInvocation as _;
use stun_wire::{PrecisError, opaque_string};
use test_support::for_each_seed;

/// Characters of each rule, and neighbours that satisfy or violate the rule.
const INTERESTING: [char; 40] = [
    'a',
    'l',
    '\u{B7}',
    ' ',
    '\0',
    '\u{7F}',
    '\u{A0}',
    '\u{3000}',
    '\u{301}',
    '\u{308}',
    'e',
    '\u{E9}',
    '\u{375}',
    '\u{3B1}',
    '\u{5F3}',
    '\u{5F4}',
    '\u{5D0}',
    '\u{660}',
    '\u{6F0}',
    '\u{6FD}',
    '\u{200C}',
    '\u{200D}',
    '\u{94D}',
    '\u{915}',
    '\u{628}',
    '\u{627}',
    '\u{64B}',
    '\u{A872}',
    '\u{30FB}',
    '\u{3042}',
    '\u{30A2}',
    '\u{4E00}',
    '\u{FF76}',
    '\u{1100}',
    '\u{1161}',
    '\u{AC00}',
    '\u{212B}',
    '\u{AD}',
    '\u{E000}',
    '\u{1F412}',
];

fn compare(text: &str) {
    let expected = OpaqueString::enforce(text).map_err(|_| PrecisError::Forbidden);
    assert_eq!(opaque_string(text), expected, "{}", text.escape_unicode());
}

#[test]
fn every_character_is_judged_as_by_another_implementation() {
    for c in '\0'..=char::MAX {
        compare(c.encode_utf8(&mut [0; 4]));
    }
}

/// Neighbours decide about the characters of RFC 5892 appendix A, which may themselves be
/// neighbours.
#[test]
fn every_neighbour_is_judged_as_by_another_implementation() {
    let alone = |c: &char| opaque_string(c.encode_utf8(&mut [0; 4])).is_ok();
    for c in ('\0'..=char::MAX).filter(alone).chain(INTERESTING) {
        for (before, after) in [
            ("\u{375}", ""),
            ("", "\u{5F3}"),
            ("", "\u{5F4}"),
            ("\u{30FB}", ""),
            ("", "\u{200D}"),
            ("", "\u{200C}"),
            ("", "\u{200C}\u{627}"),
            ("\u{628}\u{200C}", ""),
            ("\u{628}", "\u{200C}\u{627}"),
            ("\u{628}\u{200C}", "\u{627}"),
            ("\u{660}", ""),
            ("\u{6F0}", ""),
            ("l\u{B7}", ""),
            ("", "\u{B7}l"),
        ] {
            compare(&format!("{before}{c}{after}"));
        }
    }
}

#[test]
fn every_three_characters_of_the_rules_are_judged_as_by_another_implementation() {
    for first in INTERESTING {
        for second in INTERESTING {
            for third in INTERESTING {
                compare(&String::from_iter([first, second, third]));
            }
        }
    }
}

#[test]
fn random_texts_are_judged_as_by_another_implementation() {
    for_each_seed(0..2000, |seed| {
        let mut state = seed;
        let mut draw = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut text = String::new();
        for _ in 0..=draw(8) {
            text.push(INTERESTING[draw(INTERESTING.len() as u64) as usize]);
        }
        compare(&text);
    });
}
