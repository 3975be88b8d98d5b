//! A server that speaks MongoDB's protocol, from Maven's registry.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Its source and its classes.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("mongo").join(name)
}

/// Has Maven fetch the classes, unless it has done so before.
pub(super) fn fetch(directory: &Path) -> Result<(), String> {
    if !Path::new("/usr/bin/javac").exists() {
        return Err("a JDK (Debian's default-jdk-headless) is not installed".to_owned());
    }
    let list = format!("-Dmdep.outputFile={}", classes(directory).display());
    let mut maven = Command::new("mvn");
    maven.args(["-q", "-B", "-f"]).arg(source("pom.xml")).arg("dependency:build-classpath");
    let out = maven.arg(list).output().map_err(|_| "Maven (mvn) is not installed".to_owned())?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stdout);
    Err(format!(
        "Maven cannot fetch mongo-java-server: {}",
        said.lines().next().unwrap_or_default()
    ))
}

/// File with the list of its classes.
fn classes(directory: &Path) -> PathBuf {
    directory.join("classes")
}

/// The words of its command line behind `java`, without its port.
pub(super) fn words(directory: &Path) -> [String; 3] {
    let classes = fs::read_to_string(classes(directory)).expect("the list of classes");
    ["-cp".to_owned(), classes, source("Server.java").display().to_string()]
}
