//! Limit of open descriptors: each relay needs one.

use std::io;

use crate::abi::sys::check;

/// Raises the limit of open files to the hard limit, and returns it.
///
/// # Errors
/// A sandbox forbids the calls.
pub fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is there for the kernel to write.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` lives until the call returns.
        check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })?;
    }
    Ok(limit.rlim_cur)
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
