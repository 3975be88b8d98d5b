//! `turnpike completions` and `turnpike manual`: made by the program that they are about, when a
//! package is built, so that they cannot differ from it.

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

/// Writes a page for the program, and one for each command.
pub(crate) fn pages(args: &Manual) -> Result<()> {
    fs::create_dir_all(&args.directory).or_fail("cannot create the directory for pages")?;
    clap_mangen::generate_to(Cli::command(), &args.directory).or_fail("cannot write a page")
}
