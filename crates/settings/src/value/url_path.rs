//! Paths of URLs.

use std::ops::Deref;

use serde_json::{Value, json};

use super::{Written, written};

/// Longest path in bytes: one that a person writes is shorter.
const BYTES_MAX: usize = 256;

/// The path of a URL: names of letters, digits, hyphens, underscores and dots behind slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlPath(String);

impl UrlPath {
    /// A path of this program, for a default.
    pub(crate) fn fixed(path: &str) -> Self {
        Self(path.to_owned())
    }
}

impl Deref for UrlPath {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..")
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

impl Written for UrlPath {
    const KIND: &'static str = "path of a URL";

    fn forms() -> String {
        "write it in quotes, with a slash in front, such as \"/metrics\"".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let names = text.strip_prefix('/').filter(|_| text.len() <= BYTES_MAX);
        if names.is_some_and(|names| names.split('/').all(is_name)) {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!("\"{text}\" is not the path of a URL"))
        }
    }

    fn written(&self) -> Value {
        json!(self.0)
    }
}
written!([] UrlPath);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_behind_slashes() {
        for good in ["/metrics", "/turn-1/metrics", "/a.b_c"] {
            assert_eq!(UrlPath::parse(good).as_deref(), Ok(good));
        }
        let long = format!("/{}", "a".repeat(BYTES_MAX));
        for bad in [
            "",
            "/",
            "metrics",
            "/metrics/",
            "//metrics",
            "/../x",
            "/{x}",
            "/*x",
            "/a?b",
            "/a b",
            &long,
        ] {
            assert!(UrlPath::parse(bad).is_err(), "{bad}");
        }
    }
}
