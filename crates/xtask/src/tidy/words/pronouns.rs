//! Pronouns instead of nouns.
//!
//! The words of [`ALWAYS`] are counted everywhere. `this`, `these`, `those`, `one` and `the same`
//! can have a noun, and are counted only before a punctuation mark, a preposition, or one of
//! [`NO_NOUNS`]. `that` is counted before a punctuation mark, and before one of [`NO_NOUNS`] at the
//! start of a sentence or after a preposition: a relative `that` (packets that pass) is not
//! counted.

use super::prose::CODE;

/// Words that are always pronouns.
const ALWAYS: [&str; 14] = [
    "it",
    "its",
    "it's",
    "itself",
    "they",
    "them",
    "their",
    "theirs",
    "themselves",
    "ones",
    "what",
    "who",
    "whom",
    "whose",
];

/// Prepositions.
#[rustfmt::skip]
const PREPOSITIONS: [&str; 31] = [
    "about", "after", "against", "at", "before", "behind", "between", "beyond", "by", "during",
    "except", "for", "from", "in", "into", "like", "of", "on", "out", "over", "per", "since", "through",
    "to", "under", "until", "upon", "via", "with", "within", "without",
];

/// Verbs, conjunctions and adverbs, which cannot be the noun of `this` or `one`.
#[rustfmt::skip]
const NO_NOUNS: [&str; 82] = [
    "is", "are", "was", "were", "be", "been", "has", "have", "had", "does", "do", "did", "can",
    "cannot", "could", "may", "might", "must", "shall", "should", "will", "would", "that", "which",
    "who", "whom", "whose", "where", "when", "while", "if", "because", "unless", "as", "than", "so",
    "but", "and", "or", "nor", "not", "means", "makes", "lets", "keeps", "needs", "gives", "takes",
    "holds", "happens", "works", "applies", "counts", "costs", "ends", "begins", "starts", "stops",
    "comes", "goes", "stays", "stands", "includes", "leaves", "serves", "allows", "prevents", "alone",
    "only", "also", "too", "again", "never", "always", "then", "now", "here", "there", "later", "once",
    "already", "still",
];

/// Words before the number one: more than one.
const BEFORE_NUMBER: [&str; 8] = ["than", "least", "most", "exactly", "or", "by", "plus", "minus"];

/// Words after the number one: one of the workers, one or two, one by one.
const AFTER_NUMBER: [&str; 3] = ["of", "or", "by"];

/// A word or mark of a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    /// A name in back quotes.
    Code,
    Mark,
}

/// Number of words in a text.
pub(super) fn words(text: &str) -> u32 {
    let is_word = |(_, token): &(usize, Token<'_>)| matches!(token, Token::Word(_));
    u32::try_from(tokens(text).filter(is_word).count()).unwrap_or(u32::MAX)
}

/// Returns the pronouns and offsets in a text.
pub(super) fn pronouns(text: &str) -> Vec<(usize, &str)> {
    let tokens: Vec<(usize, Token<'_>)> = tokens(text).collect();
    let at = |index: usize| tokens.get(index).map_or(Token::Mark, |(_, token)| *token);
    let mut found = Vec::new();
    for (index, (offset, token)) in tokens.iter().enumerate() {
        let Token::Word(word) = *token else { continue };
        let before = index.checked_sub(1).map_or(Token::Mark, at);
        if is_pronoun(word, before, at(index + 1)) {
            found.push((*offset, word));
        }
    }
    found
}

fn is_pronoun(word: &str, before: Token<'_>, next: Token<'_>) -> bool {
    let is = |list: &[&str], token: Token<'_>| match token {
        Token::Word(word) => list.iter().any(|known| word.eq_ignore_ascii_case(known)),
        Token::Code | Token::Mark => false,
    };
    let no_noun = next == Token::Mark || is(&NO_NOUNS, next);
    let alone = no_noun || is(&PREPOSITIONS, next);
    match word.to_ascii_lowercase().as_str() {
        "this" | "these" | "those" => alone,
        "that" => {
            next == Token::Mark || no_noun && (before == Token::Mark || is(&PREPOSITIONS, before))
        }
        "same" => alone && is(&["the"], before) && !is(&["as"], next),
        "one" => alone && !is(&BEFORE_NUMBER, before) && !is(&AFTER_NUMBER, next),
        _ => is(&ALWAYS, Token::Word(word)),
    }
}

fn tokens(text: &str) -> impl Iterator<Item = (usize, Token<'_>)> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = &text[offset..];
            let first = rest.chars().next()?;
            let start = offset;
            let run = |is: fn(char) -> bool| rest.find(|letter| !is(letter)).unwrap_or(rest.len());
            if is_word(first) {
                offset += run(is_word);
                let word = text[start..offset].trim_matches(['\'', '-', '_']);
                if word.contains(|letter: char| letter.is_alphabetic()) {
                    return Some((start, Token::Word(word)));
                }
            } else if first == CODE {
                offset += run(|letter| letter == CODE);
                return Some((start, Token::Code));
            } else {
                offset += first.len_utf8();
                // Emphasis and link brackets separate nothing.
                if !(first.is_whitespace() || "*[]\"".contains(first)) {
                    return Some((start, Token::Mark));
                }
            }
        }
    })
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || "'_-".contains(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<&str> {
        pronouns(text).into_iter().map(|(_, word)| word).collect()
    }

    #[test]
    fn pronouns_without_a_noun_are_found() {
        assert_eq!(found("Reads one that was written so. Its length."), ["one", "Its"]);
        assert_eq!(
            found("This is why. After that, those of them."),
            ["This", "that", "those", "them"]
        );
        assert_eq!(found("That was it"), ["That", "it"]);
        assert_eq!(found("the same, and the same as before"), ["same"]);
        assert_eq!(found("an old one (this) and these"), ["one", "this", "these"]);
        assert_eq!(found("What the client sent, and who did"), ["What", "who"]);
    }

    #[test]
    fn articles_and_numbers_are_not() {
        assert_eq!(found("This packet, that client and these `names` that pass"), [""; 0]);
        assert_eq!(found("one socket, one of the workers, more than one, one by one"), [""; 0]);
        assert_eq!(found("Packets that are late, so that they pass"), ["they"]);
    }

    #[test]
    fn words_have_letters() {
        assert_eq!(words("A port, 3478 — `not this`, x-y's *end*"), 6);
    }
}
