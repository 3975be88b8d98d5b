//! Protection of this process's memory, which contains keys: no core dumps, no access by other
//! processes of the same user, and no new executable memory.

use std::io;

use linux_net::refuse_executable_gain;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Forbids core dumps of the process, and ptrace(2) except with `CAP_SYS_PTRACE`. On kernels with
/// support (Linux 6.3) also forbids making writable memory executable.
///
/// # Errors
/// The kernel refuses `PR_SET_DUMPABLE`.
pub(super) fn protect() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // For processes that start later. A sandbox may forbid the call, and this process has no core
    // dumps in either case.
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
