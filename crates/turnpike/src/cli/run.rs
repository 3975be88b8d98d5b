//! Syntax of `turnpike run`.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;

use super::PathOptions;
use crate::coturn::CoturnConfig;
use crate::failure::{Failure, Result};

#[derive(Debug, Default, Args)]
pub(crate) struct Run {
    /// Run from coturn's configuration instead of one of Turnpike's. It is translated at the start
    /// and at each reload, and the log names each line that is not in force, with the reason
    #[arg(long, value_name = "FILE")]
    pub(crate) coturn_config: Option<PathBuf>,
    /// Options of coturn's command line, behind `--`: they are read behind the file
    #[arg(last = true, value_name = "OPTION", requires = "coturn_config")]
    pub(crate) arguments: Vec<String>,
}

impl Run {
    /// Paths with the configuration of coturn.
    ///
    /// # Errors
    /// Both configurations are named.
    pub(crate) fn paths(self, paths: &PathOptions) -> Result<PathOptions> {
        let Some(file) = self.coturn_config else { return Ok(paths.clone()) };
        if paths.config.is_some() {
            let both = anyhow!("--config and --coturn-config are one configuration too many");
            return Err(
                Failure::usage(both).hint("`turnpike import coturn` makes one of the other")
            );
        }
        // A reload finds the file from any directory.
        let file = std::path::absolute(&file).unwrap_or(file);
        let coturn = Some(CoturnConfig { file, options: self.arguments });
        Ok(PathOptions { coturn, ..paths.clone() })
    }
}
