//! A control group for a server alone: the kernel then tells the memory that it takes for its
//! sockets, descriptors and BPF maps, which is no memory of the process.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// Mount point of control groups, and of the controller of memory in their first version.
const ROOT: &str = "/sys/fs/cgroup";
const FIRST_VERSION: &str = "/sys/fs/cgroup/memory";

/// The kernel's memory of a group, in the first version of control groups: a number of bytes.
const FIRST_FILE: &str = "memory.kmem.usage_in_bytes";
/// The same in the second one: a line `kernel BYTES` among others.
const SECOND_FILE: &str = "memory.stat";

/// Time for a killed server to leave its group.
const LEAVE_MAX: Duration = Duration::from_secs(2);

/// A group, removed on drop; its processes have ended by then.
#[derive(Debug)]
pub(crate) struct Group {
    directory: PathBuf,
    file: &'static str,
}

/// A file of a group, as any process of this machine sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelMemory(PathBuf);

impl Group {
    /// Makes a group for this process; `None` where that is not allowed, or its memory is not
    /// counted.
    pub(crate) fn with(pid: u32) -> Option<Self> {
        let (root, file) = if Path::new(FIRST_VERSION).join(FIRST_FILE).exists() {
            (FIRST_VERSION, FIRST_FILE)
        } else {
            (ROOT, SECOND_FILE)
        };
        let directory = Path::new(root).join(format!("turnpike-bench-{pid}"));
        fs::create_dir(&directory).ok()?;
        let group = Self { directory, file };
        let joined = fs::write(group.directory.join("cgroup.procs"), pid.to_string());
        (joined.is_ok() && group.kernel_memory().read().is_ok()).then_some(group)
    }

    /// The file to read. Other mount namespaces may have no control groups, so it leads through
    /// this process's.
    pub(crate) fn kernel_memory(&self) -> KernelMemory {
        let root = PathBuf::from(format!("/proc/{}/root", std::process::id()));
        let file = self.directory.join(self.file);
        KernelMemory(root.join(file.strip_prefix("/").unwrap_or(&file)))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let begun = Instant::now();
        // A group without processes is removed at once. One that stays is empty, and costs nothing.
        while fs::remove_dir(&self.directory).is_err() && begun.elapsed() < LEAVE_MAX {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl KernelMemory {
    /// The memory now, in bytes.
    ///
    /// # Errors
    /// The group is gone, or its memory is not counted.
    pub fn read(&self) -> Result<u64> {
        let path = self.0.display();
        let text = fs::read_to_string(&self.0).with_context(|| path.to_string())?;
        kernel(&text).with_context(|| format!("{path} does not tell the kernel's memory"))
    }
}

/// The number of a file of either version.
fn kernel(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("kernel "));
    line.unwrap_or(text).trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn both_versions_are_read() {
        assert_eq!(kernel("4096\n"), Some(4096));
        assert_eq!(kernel("anon 12\nkernel 8192\nkernel_stack 3\n"), Some(8192));
        assert_eq!(kernel("anon 12\nkernel_stack 3\n"), None);
    }

    #[test]
    fn a_group_tells_the_memory_of_its_process_and_goes_with_it() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        if let Some(group) = Group::with(child.id()) {
            assert!(group.kernel_memory().read().is_ok());
            let directory = group.directory.clone();
            child.kill().unwrap();
            child.wait().unwrap();
            drop(group);
            assert!(!directory.exists());
        } else {
            eprintln!("no control groups here");
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
