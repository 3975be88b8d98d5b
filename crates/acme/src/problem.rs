//! Problem documents of an authority (RFC 7807).

use std::fmt::Write as _;

use instant_acme::Problem;

/// A problem in the authority's words, on one line.
pub(crate) fn described(problem: &Problem) -> String {
    let mut text = problem.detail.clone().unwrap_or_else(|| "no reason given".to_owned());
    for part in &problem.subproblems {
        let _ = write!(text, "; {part}");
    }
    if let Some(kind) = &problem.r#type {
        let _ = write!(text, " ({})", kind.rsplit(':').next().unwrap_or(kind));
    }
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
