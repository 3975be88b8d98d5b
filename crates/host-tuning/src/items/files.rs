//! Open files: each relayed address is a socket, and each socket a file.

use super::sysctl;
use crate::entry::{Area, By, Entry};
use crate::host::Host;
use crate::item::{Item, Verdict};
use crate::wants::Wants;

pub(crate) static FILE_MAX: Entry = Entry {
    name: "fs.file-max",
    area: Area::Host,
    by: By::Us,
    rule: "at least twice what the server may open",
    why: "It bounds the open files of the whole machine, and each relayed address is one.",
};

pub(crate) static NR_OPEN: Entry = Entry {
    name: "fs.nr_open",
    area: Area::Host,
    by: By::Us,
    rule: "at least what the server may open",
    why: "No process can be granted more open files than this, whatever its own limit says.",
};

pub(crate) static OPEN_FILES: Entry = Entry {
    name: "open-files",
    area: Area::Host,
    by: By::Hand,
    rule: "a hard limit of what the server may open",
    why: "The server raises its own limit of open files as far as the hard limit, and an allocation \
          beyond it is refused.",
};

pub(crate) fn look(host: &Host, wants: &Wants) -> Vec<Item> {
    vec![
        sysctl::at_least(host, &FILE_MAX, wants.files.saturating_mul(2)),
        sysctl::at_least(host, &NR_OPEN, wants.files),
        open_files(host, wants.files),
    ]
}

/// The limit of this process, which a server started from here would have.
fn open_files(host: &Host, wanted: u64) -> Item {
    let limits = host.read("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let Some(hard) = line.and_then(|line| line.split_whitespace().nth(1)) else {
        return Item::cannot(&OPEN_FILES, "", "the kernel does not show this process's limits");
    };
    let now = format!("{hard} (hard limit)");
    if hard == "unlimited" || hard.parse::<u64>().is_ok_and(|hard| hard >= wanted) {
        return Item::good(&OPEN_FILES, now);
    }
    let how = format!(
        "LimitNOFILE={wanted} under [Service] of the server's systemd unit; for a login \
         `* hard nofile {wanted}` in /etc/security/limits.conf"
    );
    Item::new(
        &OPEN_FILES,
        now,
        Verdict::ByHand { advised: wanted.to_string(), how, commands: Vec::new() },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fake;

    #[test]
    fn a_small_limit_is_told_with_the_line_for_systemd() {
        let fake = Fake::new();
        let limits = |hard: &str| {
            let line = "Max open files            1024                 HARD               files\n";
            let text = format!("Limit  Soft Limit  Hard Limit  Units\n{line}");
            fake.put("/proc/self/limits", &text.replace("HARD", hard));
            open_files(fake.host(), 16_640)
        };
        assert_eq!(limits("16640").verdict, Verdict::Good);
        assert_eq!(limits("unlimited").verdict, Verdict::Good);
        let Verdict::ByHand { how, .. } = limits("4096").verdict else { panic!("too few") };
        assert!(how.contains("LimitNOFILE=16640"), "{how}");
    }
}
