//! Wrapper that keeps secrets out of logs and error messages.

use core::fmt;

/// Value that `Debug` and `Display` do not show.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Wraps a secret.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// Returns the secret. The name makes each use visible in reviews.
    pub const fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

impl<T> fmt::Display for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn shows_nothing() {
        let secret = super::Secret::new("hunter2");
        assert_eq!(std::format!("{secret:?} {secret}"), "<secret> <secret>");
    }
}
