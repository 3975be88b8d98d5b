//! Replay of every input in the fuzz corpus through the function of its target.

use std::fs;
use std::path::Path;

use crate::fuzz_targets;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut inputs: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("a folder that can be read").path())
        .collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "no inputs in {}", folder.display());
    for input in inputs {
        println!("{}", input.display());
        run(&fs::read(&input).expect("a file that can be read"));
    }
}

#[test]
fn packet() {
    replay("packet", fuzz_targets::packet);
}

#[test]
fn message() {
    replay("message", fuzz_targets::message);
}

#[test]
fn channel_data() {
    replay("channel_data", fuzz_targets::channel_data);
}

#[test]
fn stream() {
    replay("stream", fuzz_targets::stream);
}

#[test]
fn attribute_values() {
    replay("attribute_values", fuzz_targets::attribute_values);
}
