//! Files of coturn, given to Debian's coturn and to this server under coturn's name. The program
//! `drop_in` does the same for any number of generated files, and for all of the corpus.

use std::time::{SystemTime, UNIX_EPOCH};

use e2e::drop_in::{Configuration, Scene, corpus, unexplained};
use e2e::{coturn, require};

/// Seeds of each time.
const FIXED: std::ops::Range<u64> = 1..11;

/// Number of seeds that are new each time.
const FRESH: u64 = 6;

/// Files of the corpus each time; others the next day.
const FILES: usize = 10;

const SECONDS_OF_A_DAY: u64 = 86_400;

#[test]
fn both_servers_serve_the_same_clients_with_the_same_files() {
    let Some(scene) = scene() else { return };
    let now = since_1970();
    let fresh = now..now + FRESH;
    println!("fresh seeds {fresh:?}");
    for seed in FIXED.chain(fresh) {
        compare(&scene, &format!("seed {seed}"), &Configuration::of(seed));
    }
}

#[test]
fn both_servers_serve_the_same_clients_with_files_of_installers() {
    let Some(scene) = scene() else { return };
    let files = corpus();
    let day = usize::try_from(since_1970() / SECONDS_OF_A_DAY).unwrap_or_default();
    for (name, configuration) in files.iter().cycle().skip(day * FILES % files.len()).take(FILES) {
        compare(&scene, name, configuration);
    }
}

fn scene() -> Option<Scene> {
    require(coturn())?;
    require(Scene::new())
}

fn since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

fn compare(scene: &Scene, name: &str, configuration: &Configuration) {
    let [theirs, ours] = scene.observe(configuration);
    let differences = unexplained(configuration, [&theirs, &ours], &mut Vec::new());
    assert!(
        differences.is_empty(),
        "{name}: {}\n{}\ncoturn:\n{}\nthis server:\n{}",
        differences.join("; "),
        configuration.shown(),
        theirs.output,
        ours.output
    );
}
