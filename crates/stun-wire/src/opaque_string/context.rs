//! Characters that are allowed only next to certain other characters (RFC 5892 appendix A).

use unicode_normalization::char::canonical_combining_class;

use super::tables::{
    GREEK, HEBREW, HIRAGANA_KATAKANA_HAN, JOINING_LEFT, JOINING_RIGHT, JOINING_TRANSPARENT,
    contains,
};

/// Canonical combining class of a virama.
const VIRAMA: u8 = 9;

/// Returns true if `c`, at byte `at` of `text`, has a context rule, and its neighbours satisfy that
/// rule.
pub(super) fn allows(text: &str, at: usize, c: char) -> bool {
    let (before, after) = (&text[..at], &text[at + c.len_utf8()..]);
    let previous = before.chars().next_back();
    match c {
        '\u{B7}' => previous == Some('l') && after.starts_with('l'),
        '\u{375}' => after.chars().next().is_some_and(|next| contains(&GREEK, next)),
        '\u{5F3}' | '\u{5F4}' => previous.is_some_and(|previous| contains(&HEBREW, previous)),
        '\u{660}'..='\u{669}' => !text.contains(|c| matches!(c, '\u{6F0}'..='\u{6F9}')),
        '\u{6F0}'..='\u{6F9}' => !text.contains(|c| matches!(c, '\u{660}'..='\u{669}')),
        '\u{200C}' => previous.is_some_and(is_virama) || joins(before, after),
        '\u{200D}' => previous.is_some_and(is_virama),
        '\u{30FB}' => text.contains(|c| contains(&HIRAGANA_KATAKANA_HAN, c)),
        _ => false,
    }
}

fn is_virama(c: char) -> bool {
    canonical_combining_class(c) == VIRAMA
}

/// Returns true if the letters around a zero width non-joiner would join without it.
fn joins(before: &str, after: &str) -> bool {
    let transparent = |c: &char| contains(&JOINING_TRANSPARENT, *c);
    let left = before.chars().rev().find(|c| !transparent(c));
    let right = after.chars().find(|c| !transparent(c));
    left.is_some_and(|c| contains(&JOINING_LEFT, c))
        && right.is_some_and(|c| contains(&JOINING_RIGHT, c))
}
