//! Every input in the fuzz corpus, through the function of its target.

#[path = "../../../fuzz/src/dtls.rs"]
#[expect(unreachable_pub, reason = "public in the crate it comes from")]
mod targets;

use std::path::Path;

#[test]
fn first_flights() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/dtls_first_flight");
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        targets::first_flight(&std::fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs >= 10, "{inputs} in {}", folder.display());
}
