//! Confirmation of changes that cannot be reverted.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use crate::failure::{OrFail as _, Result};

/// Returns true if standard input and output are a terminal.
pub(crate) fn is_possible() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Requests a confirmation on the terminal. Any reply except "y", "Y" and "yes" declines.
pub(crate) fn ask(question: &str) -> Result<bool> {
    print!("{question} [y/N] ");
    io::stdout().flush().or_fail("cannot ask")?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).or_fail("cannot read the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
