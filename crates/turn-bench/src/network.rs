//! Network namespaces without names, and the commands that set them up.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, bail};

/// A network namespace. It ends with this value and the sockets opened in it.
#[derive(Debug)]
pub struct Namespace(File);

impl Namespace {
    /// Creates one, with its loopback up.
    ///
    /// # Errors
    /// Missing privileges; no `ip`.
    pub fn new() -> Result<Self> {
        let file = lab_net::new_network_namespace()
            .context("network namespaces cannot be made: run as root")?;
        let namespace = Self(file);
        namespace.within(|| ip("link set lo up"))?;
        Ok(namespace)
    }

    /// Runs `action` in the namespace, in a thread of its own.
    pub fn within<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                self.enter();
                action()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Moves the calling thread into the namespace for good.
    ///
    /// # Panics
    /// The process lost the privilege to enter a namespace that it made.
    pub fn enter(&self) {
        lab_net::enter_network_namespace(&self.0).expect("a namespace of this process");
    }

    /// Joins two namespaces by a pair of virtual links with these names.
    ///
    /// # Errors
    /// The kernel's, by `ip`.
    pub fn link(&self, end: &str, other: &Self, other_end: &str) -> Result<()> {
        let far = format!("/proc/{}/fd/{}", std::process::id(), other.0.as_raw_fd());
        self.within(|| {
            ip(&format!("link add {end} type veth peer name {other_end} netns {far}")).map(drop)
        })
    }
}

/// Runs `ip` with these words in the namespace of the calling thread, and returns its output.
///
/// # Errors
/// As [`run`].
pub fn ip(arguments: &str) -> Result<String> {
    run("ip", &arguments.split_whitespace().collect::<Vec<_>>())
}

/// Runs a program to its end and returns its output.
///
/// # Errors
/// It is not installed, or failed: its complaint.
pub fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let package = if program == "ip" { "iproute2" } else { program };
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("running {program} (Debian package {package})"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {}: {}", arguments.join(" "), complaint.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
