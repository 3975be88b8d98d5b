//! Whether this process may change the host at all.

use crate::host::Host;

/// The number of the capability to administer the network (capabilities(7)).
const CAP_NET_ADMIN: u32 = 12;

/// What this process lacks to change a host, and why it is needed; `None` where it lacks nothing.
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
    fn what_is_missing_is_named() {
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
