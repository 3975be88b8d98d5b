//! Irrevocable restrictions of a process.

use std::io;

use crate::abi::sys::check;

/// Refuses memory that is executable and was writable, for the process and its children: code from
/// the network cannot be made executable (`PR_SET_MDWE`). It cannot be unset. Returns false
/// if the kernel does not offer it: before Linux 6.3, or in some containers.
pub fn refuse_executable_gain() -> bool {
    let refuse = libc::c_ulong::from(libc::PR_MDWE_REFUSE_EXEC_GAIN);
    let unused: libc::c_ulong = 0;
    // SAFETY: the call takes numbers, and accesses no memory of this process.
    check(unsafe { libc::prctl(libc::PR_SET_MDWE, refuse, unused, unused, unused) }).is_ok()
}

/// Returns true after [`refuse_executable_gain`].
#[must_use]
pub fn refuses_executable_gain() -> bool {
    let unused: libc::c_ulong = 0;
    // SAFETY: the call takes numbers, and accesses no memory of this process.
    let set = check(unsafe { libc::prctl(libc::PR_GET_MDWE, unused, unused, unused, unused) });
    set.is_ok_and(|bits| bits != 0)
}

/// Sets `no_new_privs` for the calling thread and the threads that it starts: executed programs
/// gain no privileges by their files. It cannot be unset.
///
/// # Errors
/// `InvalidInput` before Linux 3.5.
pub fn gain_no_privileges() -> io::Result<()> {
    let [on, unused]: [libc::c_ulong; 2] = [1, 0];
    // SAFETY: the call takes numbers, and accesses no memory of this process.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, on, unused, unused, unused) }).map(drop)
}
