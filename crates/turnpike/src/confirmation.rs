//! Questions before a change that cannot be taken back.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use crate::failure::{OrFail as _, Result};

/// Returns whether there is somebody to ask.
pub(crate) fn is_possible() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Asks on the terminal; anything but "y" and "yes" is no.
pub(crate) fn ask(question: &str) -> Result<bool> {
    print!("{question} [y/N] ");
    io::stdout().flush().or_fail("cannot ask")?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).or_fail("cannot read the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
