//! Permitted dependencies between crates. Pure (types, wire, proto, client) <- kernel (linux-net,
//! xdp-relay) <- dataplane -> control <- admin; the binary depends on all; admin and dataplane
//! never depend on each other, and dataplane never on settings or user-db.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use toml::Table;

/// Permitted dependencies of a crate: always, and in its tests besides.
struct Row {
    name: &'static str,
    uses: &'static [&'static str],
    tests_use: &'static [&'static str],
}

const fn row(
    name: &'static str,
    uses: &'static [&'static str],
    tests_use: &'static [&'static str],
) -> Row {
    Row { name, uses, tests_use }
}

const PERMITTED: &[Row] = &[
    row("turn-types", &[], &[]),
    row("fair-share", &["turn-types"], &[]),
    row("stun-wire", &["turn-types"], &[]),
    row("state-format", &["turn-types", "stun-wire"], &[]),
    row(
        "turn-proto",
        &["turn-types", "stun-wire", "state-format", "fair-share"],
        &["turn-client", "netsim", "lab-net"],
    ),
    row("turn-client", &["turn-types", "stun-wire"], &["turn-proto", "netsim"]),
    row("client-driver", &["turn-types", "stun-wire", "turn-client", "linux-net"], &[]),
    row("turn-session", &["state-format"], &[]),
    row("linux-net", &["turn-types"], &["lab-net"]),
    row("lab-net", &[], &[]),
    row(
        "xdp-relay",
        &["turn-types", "fair-share", "linux-net"],
        &["stun-wire", "turn-proto", "netsim", "lab-net"],
    ),
    row("control", &["turn-types", "state-format", "turn-proto"], &[]),
    row(
        "dataplane",
        &[
            "turn-types",
            "stun-wire",
            "state-format",
            "turn-proto",
            "fair-share",
            "linux-net",
            "xdp-relay",
            "control",
            "turn-session",
        ],
        &["turn-client", "lab-net"],
    ),
    row("settings", &["turn-types", "turn-proto", "atomic-file"], &[]),
    row("atomic-file", &[], &[]),
    row(
        "accounting",
        &["turn-types", "turn-proto", "control", "outgoing-http", "atomic-file"],
        &[],
    ),
    row("acme", &["turn-session", "outgoing-http", "atomic-file"], &[]),
    row("outgoing-http", &["atomic-file"], &[]),
    row("coturn-config", &[], &["settings"]),
    row("user-db", &["turn-types", "stun-wire", "fair-share", "atomic-file"], &[]),
    row("admin", &["turn-types", "fair-share", "turn-proto", "control", "atomic-file"], &[]),
    row("host-tuning", &["atomic-file"], &[]),
    row(
        "turnpike",
        &[
            "turn-types",
            "stun-wire",
            "turn-proto",
            "fair-share",
            "turn-client",
            "turn-session",
            "linux-net",
            "xdp-relay",
            "control",
            "dataplane",
            "settings",
            "user-db",
            "accounting",
            "acme",
            "outgoing-http",
            "admin",
            "coturn-config",
            "state-format",
            "host-tuning",
            "atomic-file",
        ],
        &[],
    ),
    row(
        "turn-bench",
        &[
            "turn-types",
            "stun-wire",
            "turn-client",
            "client-driver",
            "linux-net",
            "lab-net",
            "xdp-relay",
        ],
        &["turnpike"],
    ),
    row("netsim", &["turn-types"], &["turn-proto", "turn-client"]),
    row(
        "simulation",
        &[
            "turn-types",
            "fair-share",
            "stun-wire",
            "turn-proto",
            "turn-client",
            "turn-session",
            "linux-net",
            "xdp-relay",
            "control",
            "dataplane",
            "netsim",
        ],
        &[],
    ),
    row(
        "e2e",
        &["turn-types", "stun-wire", "turn-client", "linux-net", "lab-net", TEST_SUPPORT],
        &["turnpike", "xdp-relay"],
    ),
    row(TEST_SUPPORT, &[], &[]),
    row("test-runner", &[], &[]),
    row(
        "turnpike-fuzz",
        &["turn-types", "stun-wire", "state-format", "turn-proto", "turn-session"],
        &[],
    ),
    row("xtask", &["settings", "host-tuning", "admin", "coturn-config"], &[]),
];

/// The crate that all tests may use.
const TEST_SUPPORT: &str = "test-support";

/// External crates that a crate must not use: the data plane never blocks.
const FORBIDDEN: [(&str, &str); 3] =
    [("dataplane", "tokio"), ("linux-net", "tokio"), ("xdp-relay", "tokio")];

/// The lint of the workspace that the crates in [`UNSAFE`] lack.
const UNSAFE_CODE: &str = "unsafe_code";

/// Crates that hold `unsafe` code, and so have lints of their own.
const UNSAFE: [&str; 3] = ["lab-net", "linux-net", "xdp-relay"];

pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let mut slips = Vec::new();
    let packages = packages(root)?;
    let workspace = read_manifest(&root.join("Cargo.toml"))?;
    let ours: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    for package in &packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(row) = PERMITTED.iter().find(|row| row.name == name) else {
            slips.push(format!("{name}: has no row in the table of permitted edges (crates/xtask/src/tidy/edges.rs)"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = dependency["name"].as_str().unwrap_or_default();
            let in_tests = dependency["kind"] == "dev";
            let permitted = row.uses.contains(&used)
                || in_tests && (row.tests_use.contains(&used) || used == TEST_SUPPORT);
            if ours.contains(&used) && !permitted {
                slips.push(format!(
                    "{name}: must not use {used}{}",
                    if in_tests { ", in tests either" } else { "" }
                ));
            }
            if FORBIDDEN.contains(&(name, used)) && !in_tests {
                slips.push(format!("{name}: must not use {used}"));
            }
        }
        slips.extend(check_manifest(name, package, &workspace)?);
    }
    Ok(slips)
}

/// Checks that a crate has the lints of the workspace; [`UNSAFE`] crates may lack [`UNSAFE_CODE`].
fn check_manifest(name: &str, package: &Value, workspace: &Table) -> Result<Vec<String>> {
    let path = package["manifest_path"].as_str().context("cargo named no manifest")?;
    let manifest = read_manifest(Path::new(path))?;
    if !UNSAFE.contains(&name) {
        let inherits = manifest.get("lints").and_then(|lints| lints.get("workspace"));
        let inherits = inherits.and_then(toml::Value::as_bool) == Some(true);
        let slip =
            "has to use the workspace's lints, as it is not in the list of crates with unsafe code";
        return Ok(if inherits { Vec::new() } else { vec![format!("{name}: {slip}")] });
    }
    let lints = omitted_lints(workspace, &manifest);
    Ok(lints.iter().map(|lint| format!("{name}: its lints omit {lint} of the workspace")).collect())
}

/// Returns the workspace's lints, except [`UNSAFE_CODE`], that a manifest lacks or has at another
/// level.
fn omitted_lints(workspace: &Table, manifest: &Table) -> Vec<String> {
    let wanted = workspace.get("workspace").and_then(|workspace| workspace.get("lints"));
    let own = manifest.get("lints");
    let mut omitted = Vec::new();
    for (tool, lints) in wanted.and_then(toml::Value::as_table).into_iter().flatten() {
        for (lint, level) in lints.as_table().into_iter().flatten() {
            let own = own.and_then(|own| own.get(tool)?.get(lint));
            if own != Some(level) && lint != UNSAFE_CODE {
                omitted.push(format!("{tool}.{lint} = {level}"));
            }
        }
    }
    omitted
}

fn read_manifest(path: &Path) -> Result<Table> {
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    text.parse().with_context(|| format!("cannot parse {name}"))
}

fn packages(root: &Path) -> Result<Vec<Value>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--offline", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value =
        serde_json::from_slice(&output.stdout).context("cargo metadata wrote no JSON")?;
    let packages = metadata["packages"].as_array_mut().map(std::mem::take).unwrap_or_default();
    ensure!(!packages.is_empty(), "cargo metadata lists no packages");
    Ok(packages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lints_of_the_workspace_are_missed_in_a_list_of_their_own() {
        let workspace = "[workspace.lints.rust]\nunsafe_code = \"forbid\"\nmissing_docs = \"warn\"\n\
            [workspace.lints.clippy]\ntodo = \"deny\"\nuse_self = \"warn\"\n";
        let own = "[lints.rust]\nmissing_docs = \"warn\"\n[lints.clippy]\ntodo = \"warn\"\n";
        let omitted = omitted_lints(&workspace.parse().unwrap(), &own.parse().unwrap());
        assert_eq!(omitted, ["clippy.todo = \"deny\"", "clippy.use_self = \"warn\""]);
    }
}
