//! Child processes on given cores that end with their parent.

use std::io;
use std::os::unix::process::{CommandExt as _, parent_id};
use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::scheduling::CoreSet;

/// Restricts a command's process to `cores`, and has the kernel kill it when the thread that starts
/// it ends (PR_SET_PDEATHSIG).
///
/// # Errors
/// `InvalidInput` for a core whose number no machine has. One that this machine does not have is
/// reported when the command is started.
pub fn tie_to_parent(command: &mut Command, cores: &[usize]) -> io::Result<()> {
    let set = CoreSet::of(cores)?;
    let parent = std::process::id();
    let prepare = move || {
        set.apply(None)?;
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended before the signal was set.
        if parent_id() == parent { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    };
    // SAFETY: between fork and exec the closure makes system calls alone: it allocates nothing,
    // takes no lock and touches no memory but its own copies.
    unsafe { command.pre_exec(prepare) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cores that this process may use.
    fn cores() -> Vec<usize> {
        let count = std::thread::available_parallelism().unwrap().get();
        (0..1024).filter(|core| CoreSet::of(&[*core]).is_ok_and(in_thread)).take(count).collect()
    }

    fn in_thread(set: CoreSet) -> bool {
        std::thread::spawn(move || set.apply(None).is_ok()).join().unwrap()
    }

    #[test]
    fn a_program_is_kept_to_its_cores() {
        let last = *cores().last().unwrap();
        let mut command = Command::new("grep");
        command.args(["Cpus_allowed_list", "/proc/self/status"]);
        tie_to_parent(&mut command, &[last]).unwrap();
        let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert_eq!(output.split_whitespace().last(), Some(last.to_string().as_str()));
    }

    #[test]
    fn a_program_ends_with_the_thread_that_started_it() {
        let start = || {
            let mut command = Command::new("sleep");
            command.arg("1000");
            tie_to_parent(&mut command, &cores()).unwrap();
            command.spawn().unwrap()
        };
        let mut child = std::thread::spawn(start).join().unwrap();
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn cores_that_do_not_exist_are_refused() {
        let mut command = Command::new("true");
        assert!(tie_to_parent(&mut command, &[usize::MAX]).is_err());
        tie_to_parent(&mut command, &[1023]).unwrap();
        assert!(command.spawn().is_err());
    }
}
