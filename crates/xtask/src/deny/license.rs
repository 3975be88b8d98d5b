//! Licence expressions of SPDX (version 3, annex B), as far as Cargo manifests have them.

use std::iter::Peekable;
use std::vec::IntoIter;

use anyhow::{Result, bail, ensure};

/// True if the licences in `allow` suffice for the expression. `/` is an old form of OR.
///
/// # Errors
/// An expression that is malformed.
pub(super) fn is_allowed(expression: &str, allow: &[String]) -> Result<bool> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<String> = spaced.split_whitespace().map(str::to_owned).collect();
    let mut parser = Parser { tokens: tokens.into_iter().peekable(), allow };
    let is_allowed = parser.any()?;
    ensure!(parser.tokens.next().is_none(), "malformed: {expression}");
    Ok(is_allowed)
}

struct Parser<'a> {
    tokens: Peekable<IntoIter<String>>,
    allow: &'a [String],
}

impl Parser<'_> {
    /// Alternatives; OR binds weakest.
    fn any(&mut self) -> Result<bool> {
        let mut is_allowed = self.all()?;
        while self.takes("OR") {
            is_allowed |= self.all()?;
        }
        Ok(is_allowed)
    }

    fn all(&mut self) -> Result<bool> {
        let mut is_allowed = self.one()?;
        while self.takes("AND") {
            is_allowed &= self.one()?;
        }
        Ok(is_allowed)
    }

    fn one(&mut self) -> Result<bool> {
        let Some(mut name) = self.tokens.next() else { bail!("ends too early") };
        if name == "(" {
            let is_allowed = self.any()?;
            ensure!(self.takes(")"), "a parenthesis is open");
            return Ok(is_allowed);
        }
        ensure!(!["AND", "OR", "WITH", ")"].contains(&name.as_str()), "{name} without a licence");
        if self.takes("WITH") {
            let Some(exception) = self.tokens.next() else { bail!("WITH nothing") };
            name = format!("{name} WITH {exception}");
        }
        Ok(self.allow.contains(&name))
    }

    fn takes(&mut self, token: &str) -> bool {
        self.tokens.next_if(|next| next == token).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_judged_as_spdx_has_them() {
        let allow = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        for (expression, allowed) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("GPL-3.0/MIT", true),
            ("GPL-3.0 AND MIT", false),
            ("MIT AND ISC", true),
            ("MIT OR ISC AND GPL-3.0", true),
            ("(MIT OR ISC) AND GPL-3.0", false),
            ("GPL-3.0 AND (MIT OR ISC)", false),
            ("Apache-2.0", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", true),
        ] {
            assert_eq!(is_allowed(expression, &allow).unwrap(), allowed, "{expression}");
        }
        for malformed in ["", "MIT ISC", "MIT OR", "(MIT", "MIT)", "AND MIT", "MIT WITH"] {
            assert!(is_allowed(malformed, &allow).is_err(), "{malformed}");
        }
    }
}
