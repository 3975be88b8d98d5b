//! Irrevocable restrictions of a process.

use std::io;

use crate::abi::sys::check;

/// Sets `no_new_privs` for the calling thread and the threads that it starts: executed programs
/// gain no privileges by their files. It cannot be unset.
///
/// # Errors
/// `InvalidInput` before Linux 3.5.
pub fn gain_no_privileges() -> io::Result<()> {
    let [on, unused]: [libc::c_ulong; 2] = [1, 0];
    // SAFETY: the call takes numbers alone, and accesses no memory of this process.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, on, unused, unused, unused) }).map(drop)
}
