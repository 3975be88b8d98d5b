//! Limit of open descriptors. Each relay needs one descriptor.

use std::io;

use crate::abi::sys::check;

/// Raises the limit of open files to the hard limit, and returns the resulting limit. If a sandbox
/// forbids the change, this is the present soft limit.
///
/// # Errors
/// A sandbox forbids to read the limit.
pub fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a location for the kernel to write.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
    // SAFETY: `raised` lives until the call returns.
    let result = check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) });
    Ok(if result.is_ok() { raised.rlim_cur } else { limit.rlim_cur })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_once_and_then_stands() {
        let raised = raise_open_files().unwrap();
        assert!(raised > 0);
        assert_eq!(raise_open_files().unwrap(), raised);
    }
}
