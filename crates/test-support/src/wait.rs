//! Bounded waits for another thread or process.

use std::time::{Duration, Instant};

/// Time until a wait counts as failed. Only a failing test takes that long; a machine that compiles
/// beside the tests can stall for seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `condition` holds, polling every 5 ms.
///
/// # Panics
/// `condition` still does not hold after 30 s; the message contains the description.
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
