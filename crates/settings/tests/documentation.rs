//! Configurations in the documentation: every `toml` block of the pages for operators is a valid
//! file of its own.

use std::path::{Path, PathBuf};

use settings::Environment;

use crate::support::TempDir;

/// Directory of files in the documentation.
const ETC: &str = "/etc/turnpike/";

/// Content for every key that names a file, a secret or a token key in base64, behind a letter of
/// the file's own.
const CONTENT: &str = "DEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

/// The pages: `README.md`, and those of `docs/operate/` and `docs/migrate/`.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |name: &str| std::fs::read_dir(root.join(name)).expect("a directory of pages");
    let files = read("docs/operate").chain(read("docs/migrate"));
    let files = files.map(|entry| entry.expect("a file").path());
    let pages = files.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    std::iter::once(root.join("README.md")).chain(pages).collect()
}

/// The `toml` blocks of a page, each with its first line's number.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut open = None;
    for (index, line) in page.lines().enumerate() {
        match (line.trim_start(), &mut open) {
            ("```toml", None) => open = Some((index + 2, String::new())),
            ("```", Some(_)) => blocks.extend(open.take()),
            (_, Some((_, text))) => text.extend([line, "\n"]),
            (_, None) => {}
        }
    }
    blocks
}

/// Makes the files that a configuration names, and returns the configuration with their paths here.
fn with_files(text: &str, dir: &TempDir) -> String {
    for (letter, part) in ('A'..='Z').zip(text.split(ETC).skip(1)) {
        let name = part.split('"').next().unwrap_or_default();
        dir.write(name, format!("{letter}{CONTENT}"));
    }
    text.replace(ETC, &format!("{}/", dir.as_ref().display()))
}

#[test]
fn every_configuration_of_the_pages_is_valid() {
    let mut count = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a page");
        for (line, block) in blocks(&text) {
            let dir = TempDir::new();
            let path = dir.file("turnpike.toml");
            let parsed = settings::parse(&path, &with_files(&block, &dir), &Environment::empty());
            if let Err(errors) = parsed {
                panic!("{}:{line}: not valid:\n{errors}\n{block}", page.display());
            }
            count += 1;
        }
    }
    assert!(count >= 4, "{count} blocks were found");
}
