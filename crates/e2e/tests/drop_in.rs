//! Generated files of coturn, given to Debian's coturn and to this server under coturn's name. The
//! program `drop_in` does the same for any number of files.

use std::time::{SystemTime, UNIX_EPOCH};

use e2e::drop_in::{Configuration, Scene, unexplained};
use e2e::{coturn, require};

/// Seeds of each time.
const FIXED: std::ops::Range<u64> = 1..11;

/// Number of seeds that are new each time.
const FRESH: u64 = 6;

#[test]
fn both_servers_serve_the_same_clients_with_the_same_files() {
    if require(coturn()).is_none() {
        return;
    }
    let Some(scene) = require(Scene::new()) else { return };
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let fresh = since_1970..since_1970 + FRESH;
    println!("fresh seeds {fresh:?}");
    for seed in FIXED.chain(fresh) {
        let configuration = Configuration::of(seed);
        let [theirs, ours] = scene.observe(&configuration);
        let differences = unexplained(&configuration, [&theirs, &ours], &mut Vec::new());
        assert!(
            differences.is_empty(),
            "seed {seed}: {}\n{}\ncoturn:\n{}\nthis server:\n{}",
            differences.join("; "),
            configuration.shown(),
            theirs.output,
            ours.output
        );
    }
}
