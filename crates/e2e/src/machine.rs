//! A Debian 12 machine with systemd, in namespaces of its own: its root is made by mmdebstrap,
//! once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::{Running, Tool, repository};

/// Longest time for a command, and for the start.
const PATIENCE: Duration = Duration::from_secs(120);

/// Longest time to make the root: a hundred packages, from a mirror.
const ROOT_PATIENCE: Duration = Duration::from_secs(580);

/// Packages besides Debian's minimum: systemd, and what the server's package depends on, as the
/// machine has no network.
const PACKAGES: &str = "systemd,systemd-sysv,dbus,libssl3,iproute2,adduser";

/// A running machine; it ends with this value.
#[derive(Debug)]
pub struct Machine {
    root: PathBuf,
    cgroup: PathBuf,
    /// Its first process, as this machine counts.
    init: u32,
    unshare: Running,
}

impl Machine {
    /// Makes the root and boots it.
    ///
    /// # Errors
    /// A reason to skip the test.
    pub fn boot(name: &str) -> Result<Self, String> {
        let name = format!("tp{}-{name}", std::process::id());
        let cgroup = control_groups()?.join(&name);
        let root = std::env::temp_dir().join(name);
        debian(&root)?;
        let boot = repository().join("crates/e2e/machine/boot");
        let mut unshare = Running::start(Command::new(boot).arg(&root).arg(&cgroup));
        let init = wait_for_init(&mut unshare)?;
        let machine = Self { root, cgroup, init, unshare };
        let deadline = Instant::now() + PATIENCE;
        loop {
            // Its bus is not there at once.
            let up = machine.run(&["systemctl", "is-system-running", "--wait"]).output;
            if ["running", "degraded"].contains(&up.trim()) {
                return Ok(machine);
            }
            if Instant::now() > deadline {
                let said = machine.unshare.output();
                return Err(format!("systemd does not start here: {up} {said}"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Runs a command in the machine to its end.
    #[must_use]
    pub fn run(&self, command: &[&str]) -> Tool {
        let mut nsenter = Command::new("nsenter");
        nsenter.args(["-t", &self.init.to_string(), "-a", "-r", "-w", "env", "-i"]);
        nsenter.args(["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive"]);
        Tool::run(nsenter.args(command), PATIENCE)
    }

    /// The output of a command that succeeds.
    ///
    /// # Panics
    /// The command fails.
    #[track_caller]
    pub fn succeed(&self, command: &[&str]) -> String {
        let out = self.run(command);
        assert!(out.ok, "{command:?}: {}\n{}", out.output, self.journal());
        out.output
    }

    /// The server's log.
    #[must_use]
    pub fn journal(&self) -> String {
        self.journal_of("turnpike")
    }

    /// The last lines of a unit's log.
    #[must_use]
    pub fn journal_of(&self, unit: &str) -> String {
        self.run(&["journalctl", "-u", unit, "--no-pager", "-n", "40"]).output
    }

    /// A path in the machine, as this one sees it.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.unshare.signal("KILL");
        // Its processes end with the first one, and a group of processes is removed when they have.
        let deadline = Instant::now() + Duration::from_secs(10);
        while !remove_groups(&self.cgroup) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(fs::remove_dir_all(&self.root));
    }
}

/// Removes a control group and the ones below it.
fn remove_groups(group: &Path) -> bool {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_groups(&entry.path());
        }
    }
    fs::remove_dir(group).is_ok() || !group.exists()
}

/// The root of control groups, version 2.
fn control_groups() -> Result<PathBuf, String> {
    let places = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(PathBuf::from);
    let found = places.into_iter().find(|place| place.join("cgroup.controllers").exists());
    found.ok_or_else(|| "there are no control groups of version 2 here".to_owned())
}

/// The id of the first process in the machine.
fn wait_for_init(unshare: &mut Running) -> Result<u32, String> {
    let children = format!("/proc/{0}/task/{0}/children", unshare.pid());
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let id = fs::read_to_string(&children).ok().and_then(|ids| ids.trim().parse().ok());
        let is_init = |id: &u32| {
            fs::read_to_string(format!("/proc/{id}/comm"))
                .is_ok_and(|name| name.trim() == "systemd")
        };
        if let Some(id) = id.filter(is_init) {
            return Ok(id);
        }
        if !Path::new(&format!("/proc/{}/exe", unshare.pid())).exists() {
            unshare.wait(PATIENCE);
            return Err(format!("no machine can be made here: {}", unshare.output()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err("the machine does not start".to_owned())
}

/// Unpacks a fresh Debian 12 to `root`.
fn debian(root: &Path) -> Result<(), String> {
    let packed = debian_packed()?;
    drop(fs::remove_dir_all(root));
    fs::create_dir_all(root).map_err(|error| error.to_string())?;
    make(Command::new("tar").arg("-xf").arg(&packed).arg("-C").arg(root))
}

/// The archive of a Debian 12 root. It is made once, and kept with what is built.
///
/// # Errors
/// A reason to skip the test.
pub fn debian_packed() -> Result<PathBuf, String> {
    let packed = crate::binary().with_file_name("debian-12.tar");
    // One test makes it, and the others wait.
    let lock = fs::File::create(packed.with_extension("lock")).and_then(|file| {
        file.lock()?;
        Ok(file)
    });
    let _lock = lock.map_err(|error| format!("{}: {error}", packed.display()))?;
    if !packed.exists() {
        let part = packed.with_extension("part.tar");
        let include = format!("--include={PACKAGES}");
        let options = ["--quiet", "--variant=minbase", &include, "bookworm"];
        make(Command::new("mmdebstrap").args(options).arg(&part))?;
        fs::rename(&part, &packed).map_err(|error| error.to_string())?;
    }
    Ok(packed)
}

fn make(command: &mut Command) -> Result<(), String> {
    if Command::new("mmdebstrap").arg("--version").output().is_err() {
        return Err("mmdebstrap is not installed".to_owned());
    }
    match Tool::run(command, ROOT_PATIENCE) {
        Tool { ok: true, .. } => Ok(()),
        Tool { output, .. } => Err(format!("a Debian root cannot be made here: {output}")),
    }
}
