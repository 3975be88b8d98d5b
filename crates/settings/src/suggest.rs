//! "Did you mean ...?"

/// The candidate that `word` is most likely a slip of, if one is near enough: within a third of the
/// word's length in single-letter edits, two neighbouring letters exchanged counting as one.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let tolerance = (word.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= tolerance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Optimal string alignment distance.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let substituted = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = substituted.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn near_words_are_suggested_and_far_ones_not() {
        let keys = ["realm", "relay", "listen", "allocation_max", "secret", "secrets"];
        for (word, suggestion) in [
            ("raelm", Some("realm")),
            ("realms", Some("realm")),
            ("lissten", Some("listen")),
            ("alocation_maxx", Some("allocation_max")),
            ("secret_", Some("secret")),
            ("quota", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, keys), suggestion, "{word}");
        }
    }
}
