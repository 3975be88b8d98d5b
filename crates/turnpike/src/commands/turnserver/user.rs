//! Options `--proc-user` and `--proc-group`: change from root to another user.
//!
//! The process changes its user first, while it has a single thread, and retains root's
//! capabilities. Like every server, the process drops them after its sockets are bound
//! (`confinement`).

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::anyhow;
use atomic_file::Access;
use caps::CapSet;
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

use crate::failure::{Failure, OrFail as _, Result};

/// User and group of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) user: u32,
    pub(super) group: u32,
}

impl Owner {
    /// Returns the named user, with the named group or the user's group. Returns `None` if none is
    /// named, or if the process does not run as root.
    ///
    /// # Errors
    /// The host has no such user or group.
    pub(super) fn named(user: Option<&str>, group: Option<&str>) -> Result<Option<Self>> {
        if user.is_none() && group.is_none() || !geteuid().is_root() {
            return Ok(None);
        }
        let found = user.map(|name| entry("passwd", name)).transpose()?;
        let group = match group {
            Some(name) => entry("group", name)?.0,
            None => found.map_or(0, |(_, group)| group),
        };
        Ok(Some(Self { user: found.map_or(0, |(user, _)| user), group }))
    }

    /// Returns the owner of files that are created for this user.
    pub(super) const fn of_files(self) -> atomic_file::Owner {
        atomic_file::Owner::User(self.user, self.group)
    }

    /// Creates a missing data directory, and checks that it belongs to the user.
    pub(super) fn prepare(self, data: &Path) -> Result<()> {
        let access = Access { owner: self.of_files(), ..Access::PRIVATE_DIRECTORY };
        let made = atomic_file::make_missing_directory(data, access);
        made.or_fail("cannot make the data directory")?;
        let owner = fs::metadata(data).or_fail("cannot read the data directory")?.uid();
        if owner == self.user {
            return Ok(());
        }
        let data = data.display();
        let other = anyhow!("{data} belongs to another user than --proc-user ({})", self.user);
        Err(Failure::failed(other).hint(format!(
            "chown -R {}:{} {data}, or name another directory with TURNPIKE_DATA",
            self.user, self.group
        )))
    }

    /// Changes the process to this user, and retains its capabilities. Must be called while the
    /// process has a single thread.
    pub(super) fn become_it(self) -> Result<()> {
        const CANNOT: &str = "cannot become the user of --proc-user";
        caps::securebits::set_keepcaps(true).or_fail(CANNOT)?;
        set_thread_groups(&[]).or_fail(CANNOT)?;
        set_thread_gid(Gid::from_raw(self.group)).or_fail(CANNOT)?;
        set_thread_uid(Uid::from_raw(self.user)).or_fail(CANNOT)?;
        let permitted = caps::read(None, CapSet::Permitted).or_fail(CANNOT)?;
        caps::set(None, CapSet::Effective, &permitted).or_fail(CANNOT)
    }
}

/// Returns the two numbers of a user or group of the host: the id, and the group of a user.
fn entry(database: &str, name: &str) -> Result<(u32, u32)> {
    let text = fs::read_to_string(format!("/etc/{database}")).unwrap_or_default();
    let asked = || {
        // A directory service may have the entry.
        let out = Command::new("getent").args([database, name]).output().ok()?;
        numbers(&String::from_utf8_lossy(&out.stdout), name)
    };
    numbers(&text, name).or_else(asked).ok_or_else(|| {
        let option = if database == "group" { "proc-group" } else { "proc-user" };
        Failure::usage(anyhow!("{option}: this host has no {name}"))
            .hint(format!("`getent {database}` lists those that it has"))
    })
}

/// Finds the numbers in the text of `/etc/passwd` or `/etc/group`.
fn numbers(text: &str, name: &str) -> Option<(u32, u32)> {
    let fields = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut of_name = fields.filter(|fields| fields.first() == Some(&name));
    let fields = of_name.next()?;
    let own = fields.get(2)?.parse().ok()?;
    Some((own, fields.get(3).and_then(|group| group.parse().ok()).unwrap_or(own)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_have_numbers() {
        let users = "root:x:0:0:root:/root:/bin/bash\nturn:x:112:120::/:/bin/false\n";
        assert_eq!(numbers(users, "turn"), Some((112, 120)));
        assert_eq!(numbers(users, "tur"), None);
        assert_eq!(numbers("turn:x:120:a,b\n", "turn"), Some((120, 120)));
        let unknown = entry("group", "no-such-group").unwrap_err().to_string();
        assert!(unknown.contains("proc-group: this host has no no-such-group"), "{unknown}");
    }
}
