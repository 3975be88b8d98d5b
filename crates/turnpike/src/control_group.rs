//! Group whose members can use the control socket (`control.group`).

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use settings::Settings;

use crate::findings::Finding;

const KEY: &str = "control.group";

/// File with the groups of this host. Groups of a directory service are configured by number.
const GROUPS: &str = "/etc/group";

/// Mode bits that permit the group of a directory, and others, to enter the directory.
const GROUP_ENTERS: u32 = 0o010;
const OTHERS_ENTER: u32 = 0o001;

/// Returns the id of the configured group, or `None` without a configured group. Must be called
/// before the confinement of the process closes `/etc/group`.
///
/// # Errors
/// The host has no such group, or `/etc/group` cannot be read.
pub(crate) fn id(settings: &Settings) -> Result<Option<u32>, Finding> {
    let Some(group) = &settings.control.group else { return Ok(None) };
    if let Ok(number) = group.parse() {
        return Ok(Some(number));
    }
    let problem = |what: String, help: &str| Finding::problem(settings, KEY, what, help);
    let groups = fs::read_to_string(GROUPS).map_err(|error| {
        problem(format!("cannot read {GROUPS}: {error}"), "write the number of the group")
    })?;
    find(&groups, group).map(Some).ok_or_else(|| {
        let help = "create it (`groupadd --system NAME`), or write the number of a group";
        problem(format!("{GROUPS} has no group \"{group}\""), help)
    })
}

/// Returns findings about the group: an unknown group, or a group that cannot reach the socket.
pub(crate) fn findings(settings: &Settings) -> Vec<Finding> {
    match id(settings) {
        Ok(None) => Vec::new(),
        Ok(Some(group)) => unreachable_by(group, settings).into_iter().collect(),
        Err(finding) => vec![finding],
    }
}

/// Returns a warning if the group cannot enter the directory of the control socket.
pub(crate) fn unreachable_by(group: u32, settings: &Settings) -> Option<Finding> {
    let socket = settings.control_socket();
    let directory = socket.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or_else(|| Path::new("."));
    let metadata = fs::metadata(directory).ok()?;
    let needed = if metadata.gid() == group { GROUP_ENTERS } else { OTHERS_ENTER };
    (metadata.mode() & needed == 0).then(|| {
        let what = format!(
            "the group cannot enter {} ({:04o}), the directory of the control socket",
            directory.display(),
            metadata.mode() & 0o7777
        );
        Finding::warning(settings, KEY, what, "set control.socket = \"/run/turnpike/control.sock\"")
    })
}

/// Finds the id of a group in the text of `/etc/group`.
fn find(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use settings::Environment;

    use super::*;
    use crate::testing::Directory;

    fn settings(text: &str) -> Settings {
        settings::parse(Path::new("t.toml"), text, &Environment::empty()).unwrap()
    }

    #[test]
    fn groups_are_found_by_name_or_number() {
        assert_eq!(id(&settings("")).unwrap(), None);
        assert_eq!(id(&settings("[control]\ngroup = \"root\"\n")).unwrap(), Some(0));
        assert_eq!(id(&settings("[control]\ngroup = \"4711\"\n")).unwrap(), Some(4711));
        assert_eq!(find("a:x:1:\nturnpike:x:998:bob\n", "turnpike"), Some(998));
        assert_eq!(find("turnpikes:x:1:\nx:y\n", "turnpike"), None);
        let finding = id(&settings("[control]\ngroup = \"no-such\"\n")).unwrap_err().to_string();
        assert!(finding.contains("t.toml:2: control.group: /etc/group has no group"), "{finding}");
    }

    #[test]
    fn a_directory_that_the_group_cannot_enter_is_a_warning() {
        let directory = Directory::new("group");
        fs::create_dir_all(directory.path()).unwrap();
        let text =
            format!("[control]\ngroup = \"4711\"\nsocket = \"{}/s\"\n", directory.path().display());
        for (mode, warned) in [(0o700, true), (0o750, true), (0o755, false)] {
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(findings(&settings(&text)).len(), usize::from(warned), "{mode:o}");
        }
    }
}
