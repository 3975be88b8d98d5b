//! Memory of this process, which has keys in it: no core dump of it, no access by other processes
//! of its user, and no new executable memory.

use std::io;

use linux_net::refuse_executable_gain;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Forbids core dumps of the process, ptrace(2) to all that lack `CAP_SYS_PTRACE`, and, where the
/// kernel offers it (Linux 6.3), executable memory that was writable.
///
/// # Errors
/// The kernel refuses.
pub(super) fn protect() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // For processes that start later. A sandbox may forbid the call; this process has no dump
    // either way.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    refuse_executable_gain();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Set in the process that protects itself.
    const PROTECTED: &str = "TEST_OF_PROTECTED_MEMORY";

    #[test]
    fn memory_that_was_written_is_not_executed() {
        if std::env::var_os(PROTECTED).is_some() {
            protect().unwrap();
            let is_offered = refuse_executable_gain();
            assert_eq!(linux_net::refuses_executable_gain(), is_offered);
            if !is_offered {
                test_support::skip("the kernel is older than Linux 6.3");
            }
            return;
        }
        let own = std::env::current_exe().unwrap();
        let name = "memory_that_was_written_is_not_executed";
        let ran = Command::new(own).args([name, "--nocapture"]).env(PROTECTED, "1").output();
        let ran = ran.unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    }
}
