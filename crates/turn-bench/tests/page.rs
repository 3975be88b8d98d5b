//! The summaries in the documentation are what the tool makes of the results that they name.

use std::path::Path;
use std::process::Command;

/// Begin of the generated part of a page, with the files of the results.
const BEGIN: &str = "<!-- generated: turnpike-bench report --markdown ";

/// Its end.
const END: &str = "<!-- end of generated -->";

/// The text before the generated part of a page, that part, and what the tool makes now.
fn page(name: &str) -> (String, String, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/performance").join(name)).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the generated part");
    let (files, rest) = rest.split_once(" -->\n").unwrap();
    let (shown, _) = rest.split_once(END).unwrap();
    let made = Command::new(env!("CARGO_BIN_EXE_turnpike-bench"))
        .args(["report", "--markdown"])
        .args(files.split(' '))
        .current_dir(&root)
        .output()
        .unwrap();
    assert!(made.status.success(), "{files}: {made:?}");
    let made = String::from_utf8(made.stdout).unwrap();
    (before.to_owned(), shown.trim().to_owned(), made.trim().to_owned())
}

#[test]
fn the_summaries_of_the_documentation_are_generated() {
    for name in ["README.md", "coturn-4.6.1.md"] {
        let (_, shown, made) = page(name);
        assert_eq!(shown, made, "of {name}");
    }
}

#[test]
fn the_table_comes_first() {
    let (before, shown, _) = page("README.md");
    assert_eq!(before.trim(), "# Performance");
    assert!(shown.starts_with("| load"), "{shown}");
}
