//! Errors of a configuration as operators see them.

use std::path::Path;

use settings::{Environment, parse};

/// The whole output for a file called `turnpike.toml`, or "" when nothing is wrong.
pub(crate) fn errors(text: &str) -> String {
    parse(Path::new("turnpike.toml"), text, &Environment::empty())
        .map_or_else(|errors| errors.to_string(), |_| String::new())
}

#[track_caller]
pub(crate) fn check(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(errors(text), *expected, "of this file:\n{text}");
    }
}
