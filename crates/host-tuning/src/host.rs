//! The host that is read and changed: a file tree and the `ethtool` command. Tests put a directory
//! of their own in the place of `/`.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::ranges::{CPUS, parse};

/// Paths of `ethtool`: administrators' directories are not in every search path.
const ETHTOOL: [&str; 3] = ["ethtool", "/usr/sbin/ethtool", "/sbin/ethtool"];

/// Complaint about a missing `ethtool`.
const NO_ETHTOOL: &str =
    "the `ethtool` command is not installed (the package is called ethtool, too)";

/// A host.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
    ethtool: Vec<PathBuf>,
}

impl Host {
    /// This host.
    #[must_use]
    pub fn real() -> Self {
        Self { root: "/".into(), ethtool: ETHTOOL.iter().map(PathBuf::from).collect() }
    }

    /// A file tree that stands for a host, and the command that stands for its `ethtool`.
    #[must_use]
    pub fn at(root: &Path, ethtool: &Path) -> Self {
        Self { root: root.to_owned(), ethtool: vec![ethtool.to_owned()] }
    }

    /// The real path of a path of the host.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A file's text, without white space around it.
    pub(crate) fn read(&self, path: &str) -> io::Result<String> {
        Ok(fs::read_to_string(self.path(path))?.trim().to_owned())
    }

    /// Writes a value as one line, in one write: files of the kernel take each write for a value.
    pub(crate) fn write(&self, path: &str, value: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).truncate(true).open(self.path(path))?;
        file.write_all(format!("{value}\n").as_bytes())
    }

    /// Returns whether a file has no write permission for any user: so the kernel shows values of
    /// another namespace.
    pub(crate) fn is_read_only(&self, path: &str) -> bool {
        fs::metadata(self.path(path)).is_ok_and(|file| file.permissions().mode() & 0o222 == 0)
    }

    /// Returns whether there is such a file or directory.
    pub(crate) fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The names in a directory, in order; none where it cannot be read.
    pub(crate) fn names(&self, directory: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(directory)) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort_by_key(|name| natural(name));
        names
    }

    /// The last part of the target of a symbolic link.
    pub(crate) fn link_name(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// The processors that are online.
    pub(crate) fn cpus(&self) -> BTreeSet<usize> {
        let online = self.read("/sys/devices/system/cpu/online").unwrap_or_default();
        let cpus = parse(&online, CPUS).unwrap_or_default();
        if cpus.is_empty() { BTreeSet::from([0]) } else { cpus }
    }

    /// Memory in bytes; 0 where the kernel does not say.
    pub(crate) fn memory(&self) -> u64 {
        let text = self.read("/proc/meminfo").unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or_default().saturating_mul(1024)
    }

    /// Returns whether a program of this name runs.
    pub(crate) fn runs(&self, program: &str) -> bool {
        let is_process = |name: &String| name.bytes().all(|byte| byte.is_ascii_digit());
        let processes = self.names("/proc").into_iter().filter(is_process);
        processes.into_iter().any(|process| {
            self.read(&format!("/proc/{process}/comm")).is_ok_and(|name| name == program)
        })
    }

    /// Runs `ethtool` and returns its output, or its complaint.
    pub(crate) fn ethtool(&self, arguments: &[&str]) -> Result<String, String> {
        for program in &self.ethtool {
            let mut command = Command::new(program);
            command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null());
            match command.output() {
                Ok(output) if output.status.success() => {
                    return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
                }
                Ok(output) => return Err(complaint(&String::from_utf8_lossy(&output.stderr))),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(format!("cannot run {}: {error}", program.display())),
            }
        }
        Err(NO_ETHTOOL.to_owned())
    }
}

/// The first line of a complaint, without the name of the program's inner part.
fn complaint(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    let line = line.unwrap_or("ethtool failed without saying why");
    line.strip_prefix("netlink error: ").unwrap_or(line).to_owned()
}

/// Orders `rx-10` behind `rx-9`.
fn natural(name: &str) -> (String, u64) {
    let text = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (text.to_owned(), name[text.len()..].parse().unwrap_or_default())
}

/// The number of the capability to administer the network (capabilities(7)).
const CAP_NET_ADMIN: u32 = 12;

/// The privilege that this process lacks to change a host, with the reason for it; `None` where it
/// has all.
#[must_use]
pub fn missing_privilege(host: &Host) -> Option<String> {
    let status = host.read("/proc/self/status").unwrap_or_default();
    let field = |name: &str, place: usize| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().nth(place)?.to_owned())
    };
    // The second of the four is the effective one.
    if field("Uid:", 1).is_none_or(|uid| uid != "0") {
        return Some(
            "root: the files of the kernel that hold these values (/proc/sys, /proc/irq, /sys) \
             belong to root, and ethtool needs CAP_NET_ADMIN"
                .to_owned(),
        );
    }
    let capabilities = field("CapEff:", 0).and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    if capabilities.is_some_and(|mask| mask >> CAP_NET_ADMIN & 1 == 0) {
        return Some(
            "the capability CAP_NET_ADMIN, which this root does not have (as in a container): run \
             this on the machine itself"
                .to_owned(),
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fake;

    #[test]
    fn a_missing_ethtool_is_named_with_its_package() {
        let host = Host::at(Path::new("/"), Path::new("/nonexistent/ethtool"));
        assert!(host.ethtool(&["-l", "eth0"]).unwrap_err().contains("package"));
    }

    #[test]
    fn complaints_are_one_line() {
        assert_eq!(
            complaint("netlink error: Operation not supported\n"),
            "Operation not supported"
        );
        assert_eq!(complaint("\n a \n b"), "a");
        assert!(complaint("").contains("without saying why"));
    }

    #[test]
    fn names_are_in_the_order_of_their_numbers() {
        let fake = Fake::new();
        for queue in ["rx-10", "rx-9", "tx-0"] {
            fake.put(&format!("/q/{queue}/x"), "");
        }
        assert_eq!(fake.host().names("/q"), ["rx-9", "rx-10", "tx-0"]);
        assert_eq!(fake.host().names("/nothing"), [""; 0]);
    }

    #[test]
    fn missing_privileges_are_named() {
        let fake = Fake::new();
        for (uid, capabilities, missing) in [
            ("0", "000001ffffffffff", None),
            ("1000", "0000000000000000", Some("root")),
            ("0", "00000000a80425fb", Some("CAP_NET_ADMIN, which")),
        ] {
            let text = format!("Name:\tx\nUid:\t0\t{uid}\t0\t0\nCapEff:\t{capabilities}\n");
            fake.put("/proc/self/status", &text);
            let found = missing_privilege(fake.host());
            assert_eq!(found.is_some(), missing.is_some(), "{found:?}");
            assert!(found.unwrap_or_default().contains(missing.unwrap_or_default()));
        }
    }
}
