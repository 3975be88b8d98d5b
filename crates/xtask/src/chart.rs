//! The tests of the Helm chart, with a helm of the Go toolchain: no distribution has it, and it
//! compiles for minutes.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Version of helm.
const HELM: &str = "helm.sh/helm/v3/cmd/helm@v3.16.4";

/// Builds helm unless that was done before, and runs the tests of the chart.
///
/// # Errors
/// helm does not build, or a test fails.
pub(crate) fn run(root: &Path) -> Result<()> {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let tools = root.join(target).join("tools");
    if !tools.join("helm").exists() {
        let built = Command::new("go").args(["install", HELM]).env("GOBIN", &tools).status();
        ensure!(built.context("cannot run go")?.success(), "helm does not build");
    }
    let tests = Command::new(root.join("scripts/run-tests")).arg("e2e helm::").status();
    ensure!(tests.context("cannot run the tests")?.success(), "the chart has a fault");
    Ok(())
}
