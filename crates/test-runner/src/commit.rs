//! The commit that is tested.

use std::fmt;
use std::process::Command;

/// A commit, with or without changes in the tree.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    id: String,
    is_changed: bool,
}

/// Reads the current commit from git. A tree without git has the text "no commit".
pub(crate) fn current() -> Commit {
    Commit {
        id: git(&["rev-parse", "HEAD"]).unwrap_or_else(|| "no commit".to_owned()),
        is_changed: git(&["status", "--porcelain"]).is_none_or(|changes| !changes.is_empty()),
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let out = Command::new("git").args(arguments).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

impl Commit {
    /// Returns the commit with changes in the tree if `end`, the commit at the end of the run, is
    /// another one.
    pub(crate) fn until(self, end: Self) -> Self {
        let is_changed = self.is_changed || self != end;
        Self { is_changed, ..self }
    }
}

impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes = if self.is_changed { "with" } else { "without" };
        write!(f, "{} ({changes} changes in the tree)", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told() {
        let mut commit = Commit { id: "0123".to_owned(), is_changed: false };
        assert_eq!(commit.to_string(), "0123 (without changes in the tree)");
        commit.is_changed = true;
        assert_eq!(commit.to_string(), "0123 (with changes in the tree)");
    }

    #[test]
    fn changes_during_the_run_are_told() {
        let commit = |id: &str, is_changed| Commit { id: id.to_owned(), is_changed };
        let run = |end| commit("1", false).until(end).is_changed;
        assert!(!run(commit("1", false)) && run(commit("1", true)) && run(commit("2", false)));
    }
}
