//! Checks beyond the compiler's. Each returns all its findings, a line each. The same checks run as
//! tests, so that `cargo test` fails where `cargo xtask tidy` does.

mod circles;
mod comments;
mod edges;
mod functions;
mod security_page;
mod test_files;
mod text;
mod width;
pub(crate) mod words;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Returns all findings, a line each.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut slips = edges::check(root)?;
    slips.extend(circles::check(root)?);
    slips.extend(text::check(root)?);
    slips.extend(width::check(root)?);
    slips.extend(functions::check(root)?);
    slips.extend(test_files::check(root)?);
    slips.extend(security_page::check(root)?);
    slips.extend(words::check(root)?);
    slips.extend(crate::bounds::check(root)?);
    Ok(slips)
}

/// Directories with text of this project, from the root; generated and downloaded files are left
/// out.
const PLACES: [&str; 6] = ["crates", "docs", "fuzz", "scripts", ".ci", ".cargo"];
const NOT_OURS: [&str; 6] = ["target", "corpus", "artifacts", "found", "bin", "__pycache__"];
const ENDINGS: [&str; 10] = ["rs", "md", "toml", "sh", "py", "go", "yml", "yaml", "c", "h"];

/// Returns every text file of the project, sorted.
fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut directories: Vec<PathBuf> =
        PLACES.iter().map(|place| root.join(place)).filter(|path| path.is_dir()).collect();
    for entry in root.read_dir()? {
        let path = entry?.path();
        if path.is_file() && is_text(&path) {
            found.push(path);
        }
    }
    while let Some(directory) = directories.pop() {
        for entry in
            directory.read_dir().with_context(|| format!("cannot list {}", directory.display()))?
        {
            let path = entry?.path();
            if path.is_dir() && is_ours(&path) {
                directories.push(path);
            } else if path.is_file() && is_text(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Returns false for a directory of generated or downloaded files. `src/bin` has source files.
fn is_ours(directory: &Path) -> bool {
    directory.ends_with("src/bin") || !NOT_OURS.iter().any(|name| directory.ends_with(name))
}

fn is_text(path: &Path) -> bool {
    let script = path
        .parent()
        .and_then(Path::file_name)
        .is_some_and(|parent| parent == "scripts" || parent == ".ci");
    path.extension().map_or(script, |ending| ENDINGS.iter().any(|known| ending == *known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edges_between_crates_are_the_permitted_ones() {
        assert_eq!(edges::check(&crate::root()).unwrap(), [""; 0]);
    }

    #[test]
    fn files_import_each_other_in_no_new_circle() {
        assert_eq!(circles::check(&crate::root()).unwrap(), [""; 0]);
    }

    #[test]
    fn files_are_small_and_hold_no_leftovers() {
        assert_eq!(text::check(&crate::root()).unwrap(), [""; 0]);
    }

    #[test]
    fn comments_are_as_wide_as_code() {
        assert_eq!(width::check(&crate::root()).unwrap(), [""; 0]);
    }

    #[test]
    fn each_crate_has_the_limit_of_function_length() {
        assert_eq!(functions::check(&crate::root()).unwrap(), [""; 0]);
    }

    #[test]
    fn every_file_of_tests_runs() {
        assert_eq!(test_files::check(&crate::root()).unwrap(), [""; 0]);
    }

    #[test]
    fn comments_and_pages_are_in_plain_words() {
        assert_eq!(words::check(&crate::root()).unwrap(), [""; 0]);
    }

    #[test]
    fn the_files_are_found() {
        let files = files(&crate::root()).unwrap();
        let names =
            ["crates/xtask/src/tidy.rs", "e2e/src/bin/flood.rs", "scripts/run-tests", "Cargo.toml"];
        for name in names {
            assert!(files.iter().any(|path| path.ends_with(name)), "{name}");
        }
    }
}
