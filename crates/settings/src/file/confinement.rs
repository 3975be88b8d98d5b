//! The table about what the running server may do.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::Text;

/// `[confinement]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Confinement {
    /// Whether files are confined by landlock: nothing is executed, the data directory and that of the
    /// control socket are written, and the directories of the configuration, secrets and certificates are
    /// read, where they are named and where their symbolic links lead.
    #[schemars(extend("x-applied" = "restart"))]
    pub landlock: bool,
    /// Whether system calls that a server never makes are refused by seccomp, with the error EPERM.
    #[schemars(extend("x-applied" = "restart"))]
    pub seccomp: bool,
    /// More directories that may be read, with all below them: those that a later configuration or a
    /// renewed certificate lies in, where they are not those of the start.
    #[schemars(
        example = serde_json::json!(["/etc/letsencrypt"]),
        extend("x-applied" = "restart")
    )]
    pub readable: Vec<Text<1, 4096>>,
}

impl Default for Confinement {
    fn default() -> Self {
        Self { landlock: true, seccomp: true, readable: Vec::new() }
    }
}
