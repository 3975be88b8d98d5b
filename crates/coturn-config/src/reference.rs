//! The reference page of coturn's options, made from the table.

use std::fmt::Write as _;

use crate::options::{Counterpart, OPTIONS};

/// The page as Markdown.
#[must_use]
pub fn reference_markdown() -> String {
    let mut text = String::from(HEAD);
    let mut options: Vec<_> = OPTIONS.iter().collect();
    options.sort_by_key(|option| option.name.to_ascii_lowercase());
    for option in options {
        let letter = option.letter.map(|letter| format!(" (`-{letter}`)")).unwrap_or_default();
        let (state, what) = match option.counterpart {
            Counterpart::Keys(keys) => ("taken", keys),
            Counterpart::Always(reason) => ("the same here", reason),
            Counterpart::Unsupported(reason) => ("not taken", reason),
        };
        let _ = writeln!(text, "| `{}`{letter} | {state} | {what} |", option.name);
    }
    text
}

const HEAD: &str = "\
<!-- Generated from crates/coturn-config/src/options.rs by `cargo xtask docs`; edit there. -->
# coturn's options

Every option of coturn 4.5 to 4.17, and its state here. `turnpike import coturn FILE` says the same of each line of a
configuration, and writes one of Turnpike with the options that are taken ([Migrating from coturn](coturn.md)).

| option | state | keys, or the reason |
|---|---|---|
";
