//! What a process can never do again.

use std::io;

use crate::abi::sys::check;

/// Sets `no_new_privs` for the calling thread and those that it starts: no program that they execute
/// gains privileges by its file. It cannot be unset.
///
/// # Errors
/// `InvalidInput` before Linux 3.5.
pub fn gain_no_privileges() -> io::Result<()> {
    let [on, unused]: [libc::c_ulong; 2] = [1, 0];
    // SAFETY: the call takes numbers alone, and reads and writes no memory of ours.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, on, unused, unused, unused) }).map(drop)
}
