//! Holds docs/conformance against the tree: entries are complete, and the tests they name exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// Prefixes of keys, the files, and the number of requirements in each. The numbers detect a lost
/// requirement.
const FILES: [(&str, &str, usize); 9] = [
    ("classic", "rfc3489", 7),
    ("5780", "rfc5780", 17),
    ("6062", "rfc6062", 23),
    ("7350", "rfc7350", 8),
    ("7443", "rfc7443", 3),
    ("7635", "rfc7635", 11),
    ("8016", "rfc8016", 13),
    ("8489", "rfc8489", 108),
    ("8656", "rfc8656", 160),
];
const LEVELS: [&str; 4] = ["MUST", "MUST (p)", "SHOULD", "MAY"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn entries(file: &str) -> BTreeMap<String, Table> {
    let path = root().join(format!("docs/conformance/{file}.toml"));
    let file: Table = fs::read_to_string(&path).unwrap().parse().unwrap();
    file.into_iter().map(|(key, entry)| (key, entry.as_table().unwrap().clone())).collect()
}

fn text<'a>(entry: &'a Table, field: &str) -> &'a str {
    entry.get(field).and_then(Value::as_str).unwrap_or("")
}

fn tests(entry: &Table) -> Vec<&str> {
    let list = entry.get("tests").and_then(Value::as_array);
    list.into_iter().flatten().map(|test| test.as_str().unwrap()).collect()
}

/// Checks an entry.
fn faults(entry: &Table) -> Vec<String> {
    let mut faults = Vec::new();
    let mut expect = |right: bool, fault: &str| {
        if !right {
            faults.push(fault.to_string());
        }
    };
    let reason = !text(entry, "reason").is_empty();
    expect(LEVELS.contains(&text(entry, "level")), "level");
    expect(!text(entry, "summary").is_empty(), "summary");
    match text(entry, "status") {
        "met" => {
            expect(!tests(entry).is_empty(), "met by no test");
            expect(!reason, "met, and a reason why not");
        }
        "departed" => {
            expect(!tests(entry).is_empty(), "departed, and no test of what is done instead");
            expect(reason, "departed without a reason");
        }
        "not-yet" | "documentation" => expect(reason, "without a reason"),
        other => expect(false, &format!("status {other:?}")),
    }
    for field in entry.keys() {
        let known = ["level", "summary", "status", "tests", "reason"].contains(&field.as_str());
        expect(known, &format!("field {field}"));
    }
    for test in tests(entry) {
        expect(exists(test), &format!("there is no test {test}"));
    }
    faults
}

/// Returns true if `crate::module::function` is a test in that crate: in `tests/`, in a file of
/// tests under `src/`, or in the `tests` module of a file there.
fn exists(test: &str) -> bool {
    let mut path: Vec<&str> = test.split("::").collect();
    let (function, package) = (path.pop().unwrap(), path.remove(0));
    let base = root().join("crates").join(package);
    let file = |folder: &str, path: &[&str]| {
        let mut file = base.join(folder);
        file.extend(path);
        file.with_extension("rs")
    };
    let in_folder = [&path[..], &["mod"]].concat();
    let mut files = vec![file("tests", &path), file("tests", &in_folder), file("src", &path)];
    if let [outer @ .., "tests"] = path.as_slice() {
        files.push(file("src", outer));
    }
    files.iter().any(|file| fs::read_to_string(file).is_ok_and(|code| has_test(&code, function)))
}

/// Returns true if the code has a test function of this name: marked as such, or one of proptest's.
fn has_test(code: &str, function: &str) -> bool {
    let declared = format!("fn {function}(");
    let Some(line) = code.lines().position(|line| line.trim_start().starts_with(&declared)) else {
        return false;
    };
    let lines: Vec<&str> = code.lines().map(str::trim).collect();
    let mut above = lines[..line].iter().rev().take_while(|line| line.starts_with("#["));
    let in_proptest = lines[..line].iter().rev().any(|line| line.starts_with("proptest!"));
    above.any(|line| *line == "#[test]") || in_proptest
}

#[test]
fn every_requirement_is_accounted_for() {
    let mut faulty = Vec::new();
    for (rfc, file, count) in FILES {
        let entries = entries(file);
        assert_eq!(entries.len(), count, "requirements of {file}");
        for (key, entry) in &entries {
            assert!(key.starts_with(&format!("{rfc}-")), "{key}");
            faulty.extend(faults(entry).into_iter().map(|fault| format!("{key}: {fault}")));
        }
    }
    assert!(faulty.is_empty(), "\n{}", faulty.join("\n"));
}

#[test]
fn the_numbers_of_a_section_have_no_holes() {
    for (_, file, _) in FILES {
        let mut sections: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
        for key in entries(file).into_keys() {
            let (section, number) = key.rsplit_once('-').unwrap();
            sections.entry(section.to_string()).or_default().insert(number.parse().unwrap());
        }
        for (section, numbers) in sections {
            assert!(numbers.iter().copied().eq(1..=numbers.len()), "{section}: {numbers:?}");
        }
    }
}

#[test]
fn every_requirement_that_a_test_names_is_known() {
    let known: BTreeSet<String> =
        FILES.iter().flat_map(|(_, file, _)| entries(file).into_keys()).collect();
    let mut unknown = Vec::new();
    for folder in ["stun-wire/tests", "turn-proto/tests", "turn-proto/tests/rfc"] {
        for file in fs::read_dir(root().join("crates").join(folder)).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let code = fs::read_to_string(&path).unwrap();
            for word in code.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.') {
                let word = word.trim_matches('.');
                let is_key = FILES.iter().any(|(rfc, _, _)| {
                    word.strip_prefix(rfc).is_some_and(|rest| {
                        rest.starts_with('-') && rest.ends_with(|c: char| c.is_ascii_digit())
                    })
                });
                if is_key && !known.contains(word) {
                    unknown.push(format!("{}: {word}", path.display()));
                }
            }
        }
    }
    assert!(unknown.is_empty(), "\n{}", unknown.join("\n"));
}
