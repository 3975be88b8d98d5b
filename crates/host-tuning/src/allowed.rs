//! Settings and values that may be written at all: whatever is read from a file of ours is checked by this first.

use crate::catalogue;
use crate::cpus;
use crate::entry::By;
use crate::setting::{Setting, is_interface};

impl Setting {
    /// Returns true if this crate sets it, and may set it to `value`.
    pub(crate) fn allows(&self, value: &str) -> bool {
        let plain =
            value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" ,-".contains(&byte));
        plain
            && match self {
                Self::Sysctl { name } => {
                    name.contains('.') && catalogue::find(name).is_some_and(|e| e.by == By::Us)
                }
                Self::IrqAffinity { .. } => cpus::parse_list(value).is_some(),
                Self::Queue { interface, queue, .. } => {
                    let number = queue.strip_prefix("rx-").or_else(|| queue.strip_prefix("tx-"));
                    is_interface(interface)
                        && number.is_some_and(|number| number.parse::<u16>().is_ok())
                        && cpus::parse_mask(value).is_some()
                }
                Self::TxQueueLength { interface } => {
                    is_interface(interface) && value.parse::<u32>().is_ok()
                }
                Self::Ethtool { interface, value: kind } => {
                    is_interface(interface) && kind.is_value(value)
                }
            }
    }
}
