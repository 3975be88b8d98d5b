//! Comments of Rust source, separated from code and literals.
//!
//! Invariant: [`Source::code`] has the length and the lines of the source.

/// A line of a comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Comment<'a> {
    /// Number of the line in the file, from 1.
    pub(super) line: usize,
    pub(super) kind: Kind,
    /// Text after the marker, including the space.
    pub(super) text: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `///` or `//!`
    Doc,
    /// `//` on a separate line
    Plain,
    /// `//` after code
    Trailing,
}

/// Comments and code of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Source<'a> {
    /// Comment lines, sorted by line.
    pub(super) comments: Vec<Comment<'a>>,
    /// The file with a space for each byte of a comment or literal.
    pub(super) code: String,
}

impl<'a> Source<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let mut source = Self { comments: Vec::new(), code: String::with_capacity(text.len()) };
        let mut rest = text;
        let mut line = 1;
        while let Some(first) = rest.chars().next() {
            let (length, is_code) = token(rest, source.code.ends_with(is_name));
            let (taken, left) = rest.split_at(length);
            if taken.starts_with("//") || taken.starts_with("/*") {
                source.add_comment(taken, line);
            }
            line += taken.matches('\n').count();
            if is_code && first.is_ascii() {
                source.code.push_str(taken);
            } else {
                let blank = |byte: u8| if byte == b'\n' { '\n' } else { ' ' };
                source.code.extend(taken.bytes().map(blank));
            }
            rest = left;
        }
        source
    }

    /// Adds the lines of a comment that starts at line `first`.
    fn add_comment(&mut self, comment: &'a str, first: usize) {
        let code_before = self.code.rsplit('\n').next().is_some_and(|line| !line.trim().is_empty());
        for (index, line) in comment.lines().enumerate() {
            let (kind, text) = marker(line);
            let kind = if code_before && index == 0 { Kind::Trailing } else { kind };
            self.comments.push(Comment { line: first + index, kind, text });
        }
    }

    /// Line numbers of the items under `#[cfg(test)]`.
    pub(super) fn test_lines(&self) -> Vec<std::ops::Range<usize>> {
        const ATTRIBUTE: &str = "#[cfg(test)]";
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(start) = self.code[from..].find(ATTRIBUTE).map(|at| from + at) {
            let end = start + ATTRIBUTE.len() + item_length(&self.code[start + ATTRIBUTE.len()..]);
            let line = |offset: usize| self.code[..offset].matches('\n').count() + 1;
            found.push(line(start)..line(end) + 1);
            from = end;
        }
        found
    }
}

/// Returns the length of the token at the start of `rest`, and true for code. With `name_before`
/// the token follows a name without a space.
fn token(rest: &str, name_before: bool) -> (usize, bool) {
    let first = rest.chars().next().map_or(0, char::len_utf8);
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), false);
    }
    if rest.starts_with("/*") {
        return (block_length(rest), false);
    }
    if rest.starts_with('"') {
        return (quoted_length(rest, '"'), false);
    }
    if let Some(length) = raw_length(rest).filter(|_| !name_before) {
        return (length, false);
    }
    if rest.starts_with('\'') {
        let mut after = rest.chars().skip(1);
        let escaped = after.next() == Some('\\');
        // A lifetime has no closing quote.
        if escaped || after.next() == Some('\'') {
            return (quoted_length(rest, '\''), false);
        }
    }
    (first, true)
}

/// Length of a block comment, including nested comments.
fn block_length(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// Length of a literal in quotes.
fn quoted_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, letter) in rest.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if letter == quote => return at + letter.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// Length of a raw string such as `br#"…"#`; `None` for other tokens.
fn raw_length(rest: &str) -> Option<usize> {
    let raw = ["r", "br", "cr"].iter().find_map(|prefix| rest.strip_prefix(prefix))?;
    let hashes = raw.len() - raw.trim_start_matches('#').len();
    let content = raw[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = content.find(&end).map_or(content.len(), |at| at + end.len());
    Some(rest.len() - content.len() + length)
}

/// Separates the marker of a comment line from the text.
fn marker(line: &str) -> (Kind, &str) {
    let line = line.trim_start();
    for (marker, kind) in [
        ("////", Kind::Plain),
        ("///", Kind::Doc),
        ("//!", Kind::Doc),
        ("//", Kind::Plain),
        ("/**", Kind::Doc),
        ("/*!", Kind::Doc),
        ("/*", Kind::Plain),
    ] {
        if let Some(text) = line.strip_prefix(marker) {
            return (kind, text);
        }
    }
    (Kind::Plain, line)
}

/// Length of an item after the first attribute, up to the closing brace or the semicolon.
fn item_length(code: &str) -> usize {
    let mut depth = 0;
    for (at, letter) in code.char_indices() {
        match letter {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => {
                depth -= 1;
                if letter == '}' && depth <= 0 {
                    return at + 1;
                }
            }
            ';' | ',' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

fn is_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comments(text: &str) -> Vec<(usize, Kind, &str)> {
        let comments = Source::of(text).comments;
        comments.iter().map(|comment| (comment.line, comment.kind, comment.text)).collect()
    }

    #[test]
    fn comments_are_told_from_literals() {
        let text =
            "//! Crate.\nlet a = \"// b\"; // c\n/// É\n// x\nlet b = 'c'; let d = '\\''; // e\n";
        assert_eq!(
            comments(text),
            [
                (1, Kind::Doc, " Crate."),
                (2, Kind::Trailing, " c"),
                (3, Kind::Doc, " É"),
                (4, Kind::Plain, " x"),
                (5, Kind::Trailing, " e"),
            ]
        );
        assert_eq!(comments("let s = r#\"\n// \"no\n\"#;\nlet t = \"\\\n// no\";"), []);
        assert_eq!(comments("fn f<'a>(x: &'a str) {} // y")[0].2, " y");
        assert_eq!(comments("let r#if = br\"//\"; let q = '\"'; // z")[0].2, " z");
        assert_eq!(comments("for\"//\""), []);
        assert_eq!(
            comments("/* a\n/* b */ c */ /// d"),
            [(1, Kind::Plain, " a"), (2, Kind::Plain, " b */ c */"), (2, Kind::Doc, " d")]
        );
    }

    #[test]
    fn code_keeps_its_lines() {
        let source = Source::of("a(\"{\n}\"); // é {\nb('}')");
        assert_eq!(source.code, "a(  \n  );        \nb(   )");
    }

    #[test]
    fn items_of_tests_are_found() {
        let text = "fn f() {}\n#[cfg(test)]\nmod tests {\n    // }\n}\n#[cfg(test)]\nuse a::{b, c};\nfn g() {}\n";
        assert_eq!(Source::of(text).test_lines(), [2..6, 6..8]);
    }
}
