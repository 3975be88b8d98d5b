//! Escaping of untrusted text for terminals. User names reach the screen of an operator who lists
//! sessions. They must neither control the terminal nor imitate other output.

use std::borrow::Cow;
use std::convert::Infallible;

/// Escapes a name or another text of one line. Characters that control a terminal, break the line,
/// or hide or reorder text are written as `\u{1b}`. [`argument`] reverses the escaping.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    let Some(first) = text.find(ESCAPE) else { return escaped(text, steers) };
    let mut out = escaped(&text[..first], steers).into_owned();
    // The backslash is escaped, because the name contains the text of an escape.
    out.extend('\\'.escape_unicode());
    out.push_str(&line(&text[first + 1..]));
    Cow::Owned(out)
}

/// Escapes a name in a table or a sentence as [`line()`] does. Leading and trailing spaces, which a
/// reader cannot detect there, are escaped as well. [`argument`] reverses the escaping.
pub(crate) fn name(text: &str) -> Cow<'_, str> {
    let inner = text.trim();
    if inner.len() == text.len() {
        return line(text);
    }
    let (before, after) = text.split_at(text.len() - text.trim_start().len());
    let after = &after[inner.len()..];
    let spaces = |spaces: &str| spaces.chars().flat_map(char::escape_unicode).collect::<String>();
    Cow::Owned(format!("{}{}{}", spaces(before), line(inner), spaces(after)))
}

/// Converts an argument of a command, in which a name may be escaped as by [`name`].
#[expect(clippy::unnecessary_wraps, reason = "the form that clap calls")]
pub(crate) fn argument(text: &str) -> Result<String, Infallible> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(ESCAPE) {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let digits = escape[ESCAPE.len()..].split_once('}');
        let read = |(digits, after): (&str, &'_ str)| {
            let number = u32::from_str_radix(digits, 16).ok()?;
            Some((char::from_u32(number)?, after.len()))
        };
        if let Some((c, left)) = digits.and_then(read) {
            out.push(c);
            rest = &rest[rest.len() - left..];
        } else {
            out.push_str(ESCAPE);
            rest = &escape[ESCAPE.len()..];
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// Start of an escape sequence.
const ESCAPE: &str = "\\u{";

/// Escapes text of several lines as [`line()`] does, but retains line feeds.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && steers(c))
}

/// Escapes the control characters of JSON text without a change of its value. Indented JSON has no
/// such characters outside strings, except line feeds.
pub(crate) fn json(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| c != '\n' && steers(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if c == '\n' || !steers(c) {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            out.push_str(&format!("\\u{unit:04x}"));
        }
    }
    Cow::Owned(out)
}

fn escaped(text: &str, dangerous: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&dangerous) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if dangerous(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Returns true for control characters (C0, DEL, C1), and for line and paragraph separators. Also
/// true for format characters that reorder text (UAX #9) or are invisible. Joiners are permitted,
/// because several scripts require them.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}'
                | '\u{200b}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_shown_as_an_escape() {
        for (text, shown) in [
            ("bob", "bob"),
            ("1800000000:zoë الف", "1800000000:zoë الف"),
            ("a\u{1b}]0;owned\u{7}", "a\\u{1b}]0;owned\\u{7}"),
            ("a\nroot  udp\r", "a\\u{a}root  udp\\u{d}"),
            ("a\u{9b}31m\u{7f}", "a\\u{9b}31m\\u{7f}"),
            ("a\u{202e}nimda\u{2066}", "a\\u{202e}nimda\\u{2066}"),
            ("a\u{2028}b\u{200b}\u{feff}", "a\\u{2028}b\\u{200b}\\u{feff}"),
            ("DOMAIN\\bob", "DOMAIN\\bob"),
            ("DOMAIN\\nora", "DOMAIN\\nora"),
            ("a\\u{1b}b\u{1b}", "a\\u{5c}u{1b}b\\u{1b}"),
            ("\\u{", "\\u{5c}u{"),
        ] {
            assert_eq!(line(text), shown);
            assert_eq!(argument(shown).as_deref(), Ok(text), "what is shown can be pasted");
        }
        for text in ["\\u{", "\\u{}", "\\u{d800}x", "\\u{zz}", "\\u{110000}", "\\u{1b"] {
            assert_eq!(argument(text).as_deref(), Ok(text), "no escape");
        }
        for (text, shown) in [
            ("bob smith", "bob smith"),
            (" bob ", "\\u{20}bob\\u{20}"),
            ("bob\u{3000}", "bob\\u{3000}"),
            ("\n\u{1b} ", "\\u{a}\\u{1b}\\u{20}"),
            ("  ", "\\u{20}\\u{20}"),
            ("", ""),
        ] {
            assert_eq!(name(text), shown);
            assert_eq!(argument(shown).as_deref(), Ok(text), "what is shown can be pasted");
        }
        assert_eq!(lines("a\n\u{1b}b"), "a\n\\u{1b}b");
    }

    #[test]
    fn json_says_the_same_without_the_characters() {
        let name = "a\u{9b}\u{202e}\u{e0041}\u{1b}\nb";
        let text = serde_json::to_string_pretty(&[name]).unwrap();
        let shown = json(&text);
        assert!(!shown.contains(|c| c != '\n' && steers(c)), "{shown}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&shown).unwrap(), [name]);
    }
}
