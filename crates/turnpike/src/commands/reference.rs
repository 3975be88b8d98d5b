//! `turnpike reference`: prints the reference of the configuration file.

use crate::cli::{Reference, ReferenceFormat};
use crate::failure::Result;
use crate::output;

pub(crate) fn run(args: &Reference) -> Result<()> {
    let text = match args.format {
        ReferenceFormat::Markdown => settings::reference_markdown(),
        ReferenceFormat::JsonSchema => settings::json_schema(),
    };
    output::print(text.trim_end())
}
