//! What sysctls have in common.

use crate::entry::Entry;
use crate::host::Host;
use crate::item::{Change, Item, Verdict};
use crate::setting::{Setting, SettingError};

/// Said of what a network namespace lacks or may not change.
const ELSEWHERE: &str = "it belongs to the whole machine, and this network namespace may only read \
                         it: run this on the machine itself";

/// The value of the sysctl that an entry is named for.
///
/// # Errors
/// The item that says why there is none.
pub(crate) fn read(host: &Host, entry: &'static Entry) -> Result<String, Box<Item>> {
    Setting::sysctl(entry.name).read(host).map_err(|error| {
        let reason = match error {
            SettingError::Absent => "this kernel or network namespace does not have it".to_owned(),
            SettingError::Kernel(_) | SettingError::Ethtool { .. } => error.to_string(),
        };
        Box::new(Item::cannot(entry, "", reason))
    })
}

/// A value that is a number.
///
/// # Errors
/// As [`read`], or it is not a number.
pub(crate) fn number(host: &Host, entry: &'static Entry) -> Result<u64, Box<Item>> {
    let text = read(host, entry)?;
    text.parse()
        .map_err(|_| Box::new(Item::cannot(entry, &text, "it is not the number it should be")))
}

/// A sysctl that should be no less than `least`.
pub(crate) fn at_least(host: &Host, entry: &'static Entry, least: u64) -> Item {
    match number(host, entry) {
        Err(item) => *item,
        Ok(now) if now >= least => Item::good(entry, now.to_string()),
        Ok(now) => to(host, entry, &now.to_string(), &least.to_string()),
    }
}

/// A sysctl that should be changed.
pub(crate) fn to(host: &Host, entry: &'static Entry, now: &str, to: &str) -> Item {
    let setting = Setting::sysctl(entry.name);
    if host.is_read_only(&setting.path()) {
        return Item::cannot(entry, now, format!("{to} is advised, but {ELSEWHERE}"));
    }
    let changes = vec![Change { setting, to: to.to_owned() }];
    Item::new(entry, now, Verdict::Change { advised: to.to_owned(), changes })
}
