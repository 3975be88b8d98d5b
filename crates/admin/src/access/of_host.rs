//! Sockets of the servers of this host, from the kernel's list of Unix sockets.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Listening Unix sockets of the kernel's network namespace (proc_pid_net(5)).
const LIST: &str = "/proc/net/unix";

/// `SO_ACCEPTON`, as the list shows it for a listening socket.
const LISTENS: &str = "00010000";

/// Paths of the control sockets of running servers that this user can see. `name` is the file name
/// of a control socket; sockets of another name are not found.
#[must_use]
pub fn control_sockets_of_host(name: &str) -> Vec<PathBuf> {
    let list = fs::read(LIST).unwrap_or_default();
    let directories = directories(&String::from_utf8_lossy(&list));
    let sockets = directories.into_iter().map(|directory| directory.join(name));
    sockets.filter(|socket| socket.exists()).collect()
}

/// Directories with a listening socket of a server. The kernel lists a socket under the name that
/// it was bound to, the name before [`SocketFile::put_in_place`](super::SocketFile::put_in_place).
fn directories(list: &str) -> BTreeSet<PathBuf> {
    let listening = list.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let flags = words.nth(3)?;
        // Paths with blanks are not found.
        let path = Path::new(words.nth(3)?);
        (flags == LISTENS && is_staging_name(path.file_name()?.to_str()?)).then_some(path)
    });
    listening.filter_map(|path| path.parent().map(Path::to_owned)).collect()
}

/// Name of a socket's file before it is put in place: process and number.
pub(super) fn staging_name(process: u32, number: u32) -> String {
    format!(".{process:x}-{number}")
}

fn is_staging_name(name: &str) -> bool {
    let parts = name.strip_prefix('.').and_then(|name| name.split_once('-'));
    parts.is_some_and(|(process, number)| {
        u32::from_str_radix(process, 16).is_ok() && number.parse::<u32>().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_of_servers_are_found_by_their_first_name() {
        let name = staging_name(0x1f3, 4);
        let list = format!(
            "Num       RefCount Protocol Flags    Type St Inode Path\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 17 /srv/a/{name}\n\
             0000000000000000: 00000002 00000000 00000000 0001 03 18 /srv/connected/{name}\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 19 /run/other/control.sock\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 20 @/abstract/{name}\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 21\n"
        );
        let expected = ["/srv/a", "@/abstract"].map(PathBuf::from);
        assert_eq!(directories(&list), BTreeSet::from(expected));
    }
}
