//! Irrevocable restrictions of a process.

use std::io;

use crate::abi::sys::check;

/// Forbids memory that was writable to become executable, for the process and its children
/// (`PR_SET_MDWE`). Code from the network can then not be made executable. The restriction cannot
/// be removed. Returns false if the kernel does not provide the restriction: before Linux 6.3, or
/// in some containers.
pub fn refuse_executable_gain() -> bool {
    let refuse = libc::c_ulong::from(libc::PR_MDWE_REFUSE_EXEC_GAIN);
    let unused: libc::c_ulong = 0;
    // SAFETY: the call takes numbers, and accesses no memory of this process.
    check(unsafe { libc::prctl(libc::PR_SET_MDWE, refuse, unused, unused, unused) }).is_ok()
}

/// Returns true after a successful [`refuse_executable_gain`].
#[must_use]
pub fn refuses_executable_gain() -> bool {
    let unused: libc::c_ulong = 0;
    // SAFETY: the call takes numbers, and accesses no memory of this process.
    let set = check(unsafe { libc::prctl(libc::PR_GET_MDWE, unused, unused, unused, unused) });
    set.is_ok_and(|bits| bits != 0)
}

/// Sets `no_new_privs` for the calling thread and the threads that it starts later. Executed
/// programs then gain no privileges from set-user-ID bits or file capabilities. The restriction
/// cannot be removed.
///
/// # Errors
/// Returns `InvalidInput` before Linux 3.5.
pub fn gain_no_privileges() -> io::Result<()> {
    let [on, unused]: [libc::c_ulong; 2] = [1, 0];
    // SAFETY: the call takes numbers, and accesses no memory of this process.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, on, unused, unused, unused) }).map(drop)
}
