//! Quotas that need each other.

use crate::document::Document;
use crate::error::Errors;
use crate::file::File;

/// Allocations take their own rate of the total: without one they would take nothing.
pub(super) fn check(file: &File, document: &Document, errors: &mut Errors) {
    const HELP: &str = "set bytes_per_second as well: an allocation takes that much of the total";
    const KEY: &str = "quotas.bytes_per_second_total";
    let rate = file.quotas.bytes_per_second.get();
    if file.quotas.bytes_per_second_total.get() > 0 && rate == 0 {
        errors.add(document.place(KEY), KEY, "allocations have no bytes_per_second", HELP);
    }
    for (index, realm) in file.realms.iter().enumerate() {
        let total = realm.quotas.bytes_per_second_total.map_or(0, |bytes| bytes.get());
        let own = realm.quotas.bytes_per_second.map_or(rate, |bytes| bytes.get());
        if total > 0 && own == 0 {
            let what = format!("entry {}: allocations have no bytes_per_second", index + 1);
            errors.add(document.entry_place("realms", index), "realms", what, HELP);
        }
    }
}
