//! `turnpike completions` and `turnpike manual`. The program generates both when a package is
//! built, and both thus match the program.

use std::fs;

use clap::CommandFactory as _;

use crate::cli::{Cli, Completions, Manual};
use crate::failure::{OrFail as _, Result};
use crate::output;

pub(crate) fn completions(args: &Completions) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "turnpike", &mut text);
    output::print(String::from_utf8_lossy(&text).trim_end())
}

/// Writes a manual page for the program, and one for each command.
pub(crate) fn pages(args: &Manual) -> Result<()> {
    fs::create_dir_all(&args.directory).or_fail("cannot create the directory for pages")?;
    clap_mangen::generate_to(Cli::command(), &args.directory).or_fail("cannot write a page")
}
