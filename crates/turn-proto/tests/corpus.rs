//! Every input in the fuzz corpus, through the function of its target.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use netsim::Rng;
use test_support::for_each_seed;

use crate::fuzz_targets;

fn corpus() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/server_session");
    let entries =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut inputs: Vec<_> = entries
        .map(|entry| entry.expect("a folder that can be read").path())
        .map(|path| (path.display().to_string(), fs::read(&path).expect("a readable file")))
        .collect();
    inputs.sort();
    inputs
}

#[test]
fn server_session() {
    for (name, input) in corpus() {
        println!("{name}");
        fuzz_targets::server_session(&input);
    }
}

/// The corpus is a useful start for fuzzing: it already covers most code.
#[test]
fn the_corpus_reaches_most_outcomes() {
    let reached: BTreeSet<_> =
        corpus().iter().flat_map(|(_, input)| fuzz_targets::features(input)).collect();
    assert!(reached.len() >= 60, "only {}: {reached:?}", reached.len());
}

/// Input as of a fuzzer without guidance.
#[test]
fn random_sessions() {
    for_each_seed(0..2_000, |seed| {
        let mut rng = Rng::new(seed);
        let len = rng.index(600);
        fuzz_targets::server_session(&rng.bytes(len));
    });
}
