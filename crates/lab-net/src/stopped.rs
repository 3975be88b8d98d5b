//! One thread of another process, stopped as if it hung, by ptrace(2).

use std::io;
use std::marker::PhantomData;
use std::ptr;

use crate::check;

/// A stopped thread. It continues when this value is dropped, or the calling thread ends.
#[derive(Debug)]
pub struct StoppedThread {
    id: libc::pid_t,
    /// The kernel takes requests about it from the thread that stopped it alone.
    _not_send: PhantomData<*const ()>,
}

impl StoppedThread {
    /// Stops the thread `id` of a process; its other threads continue.
    ///
    /// # Errors
    /// There is no such thread, or the kernel refuses: it is of another user, or traced already.
    pub fn stop(id: i32) -> io::Result<Self> {
        ptrace(libc::PTRACE_SEIZE, id)?;
        let thread = Self { id, _not_send: PhantomData };
        ptrace(libc::PTRACE_INTERRUPT, id)?;
        wait(id)?;
        Ok(thread)
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        if ptrace(libc::PTRACE_DETACH, self.id).is_err() {
            // Killed with its process, which is not gone until its tracer has seen that.
            drop(wait(self.id));
        }
    }
}

/// Waits until the thread has stopped or ended.
fn wait(id: libc::pid_t) -> io::Result<()> {
    let mut status = 0;
    // SAFETY: `status` is there for the kernel to write.
    check(unsafe { libc::waitpid(id, &raw mut status, libc::__WALL) }).map(drop)
}

fn ptrace(request: libc::c_uint, id: libc::pid_t) -> io::Result<()> {
    let none = ptr::null_mut::<libc::c_void>();
    // SAFETY: these requests take no pointers and touch no memory of the caller.
    if unsafe { libc::ptrace(request, id, none, none) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use test_support::{eventually, require};

    use super::*;

    fn state(id: i32) -> char {
        let status = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        status.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap()
    }

    #[test]
    fn a_thread_stops_and_continues() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let id = i32::try_from(child.id()).unwrap();
        let stopped = StoppedThread::stop(id);
        if let Some(stopped) = require(stopped) {
            assert_eq!(state(id), 't');
            drop(stopped);
            eventually("it continues", || state(id) == 'S');
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(StoppedThread::stop(id).is_err());
    }
}
