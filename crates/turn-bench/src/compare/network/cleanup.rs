//! Removal of namespaces and files, also when the run is killed.

use std::fs;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::Context as _;

use crate::compare::host::Host;

/// Prefix of namespaces; the process id follows.
const PREFIX: &str = "turnpike-bench-";

/// Waits for the end of its standard input, then kills all processes in the namespaces, and removes
/// them and the directory `$1`.
const SCRIPT: &str = r#"
trap '' INT TERM HUP QUIT
while read -r line; do :; done
directory=$1
shift
for namespace do
    kill -9 $(ip netns pids "$namespace" 2>/dev/null) 2>/dev/null
    ip netns delete "$namespace" 2>/dev/null
done
rm -rf -- "$directory"
"#;

/// The name of a host's namespace, of the run with this process id.
pub(super) fn namespace(id: u32, host: Host) -> String {
    format!("{PREFIX}{id}-{}", host.name())
}

/// A shell that cleans up when this value is dropped or the process ends.
#[derive(Debug)]
pub(super) struct Cleanup {
    shell: Child,
    /// The only write end of the pipe: children do not inherit it.
    alive: Option<ChildStdin>,
}

impl Cleanup {
    /// Starts the shell, before there is anything to remove.
    pub(super) fn start(namespaces: &[String], directory: &Path) -> anyhow::Result<Self> {
        use std::os::unix::process::CommandExt as _;
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "cleanup"])
            .arg(directory)
            .args(namespaces)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C at a terminal goes to a whole group of processes.
            .process_group(0)
            .spawn()
            .context("starting a shell that cleans up at the end")?;
        let alive = shell.stdin.take();
        Ok(Self { shell, alive })
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        self.alive = None;
        // The next run removes leftovers by their names.
        drop(self.shell.wait());
    }
}

/// Removes namespaces of dead runs whose shell was killed as well.
pub(super) fn remove_leftovers() {
    let names = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    for name in names.filter_map(|entry| entry.file_name().into_string().ok()) {
        if owner(&name).is_some_and(|id| !Path::new(&format!("/proc/{id}")).exists()) {
            // Another run may be doing the same.
            drop(Command::new("ip").args(["netns", "delete", &name]).output());
        }
    }
}

/// The process that made a namespace; `None` for a foreign one.
fn owner(name: &str) -> Option<u32> {
    let (id, host) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let id = id.parse().ok()?;
    Host::ALL.iter().any(|of| of.name() == host).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_namespaces_are_ours() {
        for host in Host::ALL {
            assert_eq!(owner(&namespace(4_194_304, host)), Some(4_194_304));
        }
        for name in
            ["turnpike-bench-7", "turnpike-bench-7-other", "tp7-client", "turnpike-bench-x-peer"]
        {
            assert_eq!(owner(name), None, "{name}");
        }
    }

    #[test]
    fn the_directory_goes_with_the_cleanup() {
        let directory =
            std::env::temp_dir().join(format!("turnpike-bench-cleanup-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let cleanup = Cleanup::start(&[], &directory).unwrap();
        fs::write(directory.join("file"), "x").unwrap();
        drop(cleanup);
        assert!(!directory.exists());
    }
}
