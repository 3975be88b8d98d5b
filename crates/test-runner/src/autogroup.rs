//! Priority of the session's processes as a group.
//!
//! Where `kernel.sched_autogroup_enabled` is 1, Linux first divides processor time among sessions
//! and kernel threads, and then within each session (sched(7)). Linux 6.18 was seen to keep kernel
//! threads waiting for up to nine seconds while one session used all cores. The removal of a
//! namespace and a change of a BPF map wait for the threads of RCU, and servers appeared to hang.
//! While the session had a lower priority, no kernel thread waited for 0.1 s.

use std::fs;
use std::path::Path;

/// Priority (nice) of the session during a run.
const NICE: i32 = 10;

/// File of this process's session.
const FILE: &str = "/proc/self/autogroup";

/// Lower priority of the session. Dropping the value restores the previous priority; an interrupted
/// run does not. Of two concurrent runs in one session, the first to end restores it for both.
#[derive(Debug)]
pub(crate) struct LowPriority<'a> {
    file: &'a Path,
    before: i32,
}

impl LowPriority<'static> {
    /// Lowers the priority of this process's session. Returns `None` where sessions are no groups,
    /// or where the priority is as low already.
    pub(crate) fn of_session() -> Option<Self> {
        LowPriority::at(Path::new(FILE))
    }
}

impl<'a> LowPriority<'a> {
    fn at(file: &'a Path) -> Option<Self> {
        let before = nice(&fs::read_to_string(file).ok()?)?;
        let is_lowered = before < NICE && fs::write(file, NICE.to_string()).is_ok();
        // Not `then_some`: a value that is made and dropped writes the file.
        is_lowered.then(|| Self { file, before })
    }
}

impl Drop for LowPriority<'_> {
    fn drop(&mut self) {
        // After an error, the session keeps the lower priority.
        let _ = fs::write(self.file, self.before.to_string());
    }
}

/// Reads the priority from a line such as `/autogroup-25 nice 0`.
fn nice(line: &str) -> Option<i32> {
    line.trim_end().rsplit_once(" nice ")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lowered(line: &str) -> (Option<i32>, String, String) {
        let file = std::env::temp_dir().join(format!("autogroup-{}", std::process::id()));
        fs::write(&file, line).unwrap();
        let read = || fs::read_to_string(&file).unwrap();
        let low = LowPriority::at(&file);
        let (before, during) = (low.as_ref().map(|low| low.before), read());
        drop(low);
        let after = read();
        fs::remove_file(file).unwrap();
        (before, during, after)
    }

    #[test]
    fn the_previous_priority_is_restored() {
        let as_seen = ["10", "-5"].map(str::to_owned);
        let (before, during, after) = lowered("/autogroup-25 nice -5\n");
        assert_eq!((before, [during, after]), (Some(-5), as_seen));
    }

    #[test]
    fn a_low_priority_and_other_files_stay_as_they_are() {
        for line in ["/autogroup-25 nice 19\n", "/autogroup-25 nice 10\n", "something else\n"] {
            assert_eq!(lowered(line), (None, line.to_owned(), line.to_owned()));
        }
        assert!(LowPriority::at(Path::new("/nonexistent/autogroup")).is_none());
    }
}
