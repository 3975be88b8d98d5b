//! Losses of an import, reported by the exit status. Scripts read nothing else.

use std::path::Path;

use anyhow::anyhow;
use coturn_config::{Fate, Import};

use crate::failure::{Failure, Result};

/// Options whose loss locks out clients, or opens a network.
const OPTIONS: [&str; 4] = ["user", "static-auth-secret", "use-auth-secret", "denied-peer-ip"];

/// Tables whose loss locks out clients, or opens a network.
const TABLES: [&str; 2] = ["turn_secret", "denied_peer_ip"];

/// Returns an error if users, secrets, rules that deny peers, or unreadable lines are lost. `users`
/// is the number of users that the database refused.
pub(super) fn refuse(file: &Path, imported: &Import, users: usize) -> Result<()> {
    let is_unreadable = |fate: &Fate| matches!(fate, Fate::Unreadable(_));
    let is_left = |fate: &Fate| is_unreadable(fate) || matches!(fate, Fate::Unsupported(_));
    let lines = imported.lines.iter().filter(|line| {
        is_unreadable(&line.fate)
            || OPTIONS.contains(&&*line.name) && is_left(&line.fate)
            || line.is_unknown_option()
    });
    let mut lost: Vec<String> = Vec::new();
    let (words, lines): (Vec<_>, Vec<_>) = lines.partition(|line| line.is_argument);
    let numbers = |of: &[&coturn_config::Line]| {
        let numbers: Vec<String> = of.iter().map(|line| line.number.to_string()).collect();
        numbers.join(", ")
    };
    if !lines.is_empty() {
        lost.push(format!("of {} the lines {}", file.display(), numbers(&lines)));
    }
    if !words.is_empty() {
        lost.push(format!("of the command line the words {}", numbers(&words)));
    }
    let rows = imported.rows.iter().filter(|row| TABLES.contains(&row.table) && is_left(&row.fate));
    let rows: usize = rows.map(|row| row.count).sum();
    if rows > 0 {
        lost.push(format!("{rows} rows of secrets and denied peers"));
    }
    if users > 0 {
        lost.push(format!("{users} users"));
    }
    if lost.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(anyhow!("not taken over: {}", lost.join("; "))).hint(
        "the account above has the reasons; correct coturn's file, or take these over by hand",
    ))
}
