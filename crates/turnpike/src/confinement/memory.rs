//! Memory of this process, which has keys in it: no core dump of it, and no access by other
//! processes of its user.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Forbids core dumps of the process, and ptrace(2) to all that lack `CAP_SYS_PTRACE`.
///
/// # Errors
/// The kernel refuses.
pub(super) fn protect() -> io::Result<()> {
    // Of a process that starts later, too; a handler for dumps may disregard the limit.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}
