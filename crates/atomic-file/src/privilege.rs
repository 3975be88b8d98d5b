//! Rights beyond those of the user: of root, and of a process that keeps root's capabilities under
//! another user.

use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// Capabilities to open, read or transfer files of other users.
const OF_FILES: CapabilitySet = CapabilitySet::DAC_OVERRIDE
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::CHOWN);

/// Returns true if the calling thread may do more with files than their owners permit its user.
pub(crate) fn is_privileged() -> bool {
    geteuid().is_root() || capabilities(None).is_ok_and(|own| own.effective.intersects(OF_FILES))
}

/// Capabilities for files that a thread has laid down; it has them again on drop.
#[derive(Debug)]
pub(crate) struct LaidDown(CapabilitySet);

impl LaidDown {
    /// Lays the capabilities down.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn new() -> std::io::Result<Self> {
        let own = capabilities(None)?;
        let effective = own.effective.difference(OF_FILES);
        set_capabilities(None, CapabilitySets { effective, ..own })?;
        Ok(Self(own.effective))
    }
}

impl Drop for LaidDown {
    fn drop(&mut self) {
        // If the system refuses, the thread has fewer rights than before.
        let _ = capabilities(None).and_then(|own| {
            let effective = self.0.intersection(own.permitted);
            set_capabilities(None, CapabilitySets { effective, ..own })
        });
    }
}
