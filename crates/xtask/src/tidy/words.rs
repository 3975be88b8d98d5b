//! Language of comments and pages (CONTRIBUTING.md). Three kinds of findings are counted by crate
//! and by folder of `docs`, and each rate has a bound:
//!
//! - pronouns instead of nouns ([`pronouns`]), per 1,000 words;
//! - doc comments with one of the [`OPENINGS`], per 1,000 doc comments;
//! - phrases with a plainer form ([`phrases`]), per 1,000 words.
//!
//! Comments of tests, names in back quotes, code blocks and link targets are not counted.

mod bounds;
mod phrases;
mod pronouns;
mod prose;
mod report;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use self::bounds::{Bounds, KINDS, OF_NEW_TEXT, Rate};
use self::phrases::Phrases;
use self::prose::Paragraph;
use super::files;

/// First words of doc comments that start neither a noun phrase nor a description of an action:
/// question words, prepositions and pronouns.
#[rustfmt::skip]
const OPENINGS: [&str; 38] = [
    "What", "Who", "Whom", "Whose", "Whoever", "Whatever", "Which", "Whether", "How", "Where", "When", "Why",
    "After", "As", "At", "Before", "Behind", "Between", "By", "For", "From", "In", "Into", "Of", "On", "To",
    "Under", "Until", "With", "Without",
    "It", "Its", "One", "That", "Their", "They", "Those", "Them",
];

/// A pronoun, opening or phrase in a file.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    line: usize,
    /// Index in [`KINDS`].
    kind: usize,
    text: String,
    instead: String,
}

/// Counts of a file, a crate or a group of pages.
#[derive(Debug, Default)]
struct Count {
    words: u32,
    doc_comments: u32,
    found: [u32; 3],
}

impl Count {
    fn rates(&self) -> [Rate; 3] {
        let [pronouns, openings, phrases] = self.found;
        [
            Rate { found: pronouns, of: self.words },
            Rate { found: openings, of: self.doc_comments },
            Rate { found: phrases, of: self.words },
        ]
    }

    fn add(&mut self, other: &Self) {
        self.words += other.words;
        self.doc_comments += other.doc_comments;
        for (sum, found) in self.found.iter_mut().zip(other.found) {
            *sum += found;
        }
    }
}

/// Findings in a file.
struct Page {
    name: String,
    count: Count,
    findings: Vec<Finding>,
}

impl Page {
    fn of(name: &str, text: &str, phrases: &Phrases) -> Self {
        let paragraphs =
            if name.ends_with(".rs") { prose::of_rust(text) } else { prose::of_markdown(text) };
        let mut page =
            Self { name: name.to_owned(), count: Count::default(), findings: Vec::new() };
        for paragraph in &paragraphs {
            page.add(paragraph, phrases);
        }
        page
    }

    fn add(&mut self, paragraph: &Paragraph, phrases: &Phrases) {
        let text = paragraph.text.as_str();
        self.count.words += pronouns::words(text);
        self.count.doc_comments += u32::from(paragraph.opens);
        let mut found = Vec::new();
        for (offset, word) in pronouns::pronouns(text) {
            found.push((offset, 0, word, "the noun"));
        }
        let first =
            text.split(|letter: char| !letter.is_ascii_alphabetic()).next().unwrap_or_default();
        if paragraph.opens && OPENINGS.contains(&first) {
            found.push((0, 1, first, "a noun phrase or a verb"));
        }
        for phrase in phrases.find(text) {
            found.push((phrase.offset, 2, phrase.text, phrase.instead));
        }
        for (offset, kind, text, instead) in found {
            self.count.found[kind] += 1;
            let (text, instead) = (text.to_owned(), instead.to_owned());
            self.findings.push(Finding { line: paragraph.line(offset), kind, text, instead });
        }
    }
}

/// Crate or group of pages of a file; `None`: the file is not counted.
fn group(name: &str) -> Option<&str> {
    let folders: Vec<&str> = name.split('/').collect();
    let (file, folders) = folders.split_last()?;
    if !(file.ends_with(".rs") || file.ends_with(".md"))
        || folders.contains(&"tests")
        || *file == "tests.rs"
    {
        return None;
    }
    match folders {
        ["crates", name, ..] => Some(name),
        ["fuzz", ..] => Some("fuzz"),
        ["docs", folder, ..] => name.get(.."docs/".len() + folder.len()),
        ["docs"] => Some("docs"),
        [] => Some("root"),
        _ => None,
    }
}

/// Reads all files, by group.
fn read(root: &Path) -> Result<BTreeMap<String, Vec<Page>>> {
    let phrases = Phrases::read()?;
    let mut groups: BTreeMap<String, Vec<Page>> = BTreeMap::new();
    for path in files(root)? {
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let Some(group) = group(&name) else { continue };
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
        groups.entry(group.to_owned()).or_default().push(Page::of(&name, &text, &phrases));
    }
    Ok(groups)
}

fn sum(pages: &[Page]) -> Count {
    pages.iter().fold(Count::default(), |mut sum, page| {
        sum.add(&page.count);
        sum
    })
}

fn rates(groups: &BTreeMap<String, Vec<Page>>) -> BTreeMap<String, [Rate; 3]> {
    groups.iter().map(|(name, pages)| (name.clone(), sum(pages).rates())).collect()
}

/// Returns each rate above its bound, each bound far above its rate, and each raised bound.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let all = bounds::read(root)?;
    let mut slips = compare(&rates(&read(root)?), &all);
    slips.extend(bounds::raised(root, &all));
    Ok(slips)
}

fn compare(rates: &BTreeMap<String, [Rate; 3]>, all: &BTreeMap<String, Bounds>) -> Vec<String> {
    let mut slips = Vec::new();
    for (name, rates) in rates {
        let bounds = all.get(name);
        for (kind, rate) in rates.iter().enumerate() {
            let bound = bounds.unwrap_or(&OF_NEW_TEXT)[kind];
            let figures = format!("{name}: {:.1} {} per 1,000", rate.per_1000(), KINDS[kind]);
            if rate.exceeds(bound) {
                slips
                    .push(format!("{figures}, {bound:.1} at most: see `cargo xtask words {name}`"));
            } else if bounds.is_some() && rate.is_far_below(kind, bound) {
                slips.push(format!(
                    "{figures}, and the bound is {bound:.1}: run `cargo xtask words --lower`, and commit {}",
                    bounds::FILE
                ));
            }
        }
    }
    for name in all.keys().filter(|name| !rates.contains_key(*name)) {
        slips.push(format!(
            "{}: {name} does not exist: run `cargo xtask words --lower`",
            bounds::FILE
        ));
    }
    slips
}

/// Prints the rates of all groups, or the findings of the group or file with this name.
///
/// # Errors
/// No group or file has the name.
pub(crate) fn print(root: &Path, name: Option<&str>) -> Result<()> {
    let groups = read(root)?;
    let text = match name {
        None => report::table(&groups, &bounds::read(root)?),
        Some(name) => match groups.get(name) {
            Some(pages) => report::group(pages),
            None => {
                let page = groups.values().flatten().find(|page| page.name == name);
                let Some(page) = page else {
                    let names: Vec<&str> = groups.keys().map(String::as_str).collect();
                    bail!("{name} is not a file, nor one of: {}", names.join(", "));
                };
                report::file(page)
            }
        },
    };
    print!("{text}");
    Ok(())
}

/// Lowers the bounds to the rates and stores them.
///
/// # Errors
/// The file of the bounds cannot be read or written.
pub(crate) fn lower(root: &Path) -> Result<()> {
    let mut all = bounds::read(root)?;
    bounds::lower(&mut all, &rates(&read(root)?));
    bounds::write(root, &all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(name: &str, text: &str) -> (Count, Vec<(usize, usize, String)>) {
        let page = Page::of(name, text, &Phrases::read().unwrap());
        let findings =
            page.findings.into_iter().map(|one| (one.line, one.kind, one.text)).collect();
        (page.count, findings)
    }

    #[test]
    fn comments_are_counted_and_code_is_not() {
        let text = "//! Addresses.\n//! It is `whole`.\n\n/// Of a port,\n/// at once.\nfn what() { its() }\n";
        let (count, findings) = findings("a.rs", text);
        assert_eq!((count.words, count.doc_comments, count.found), (8, 2, [1, 1, 1]));
        assert_eq!(
            findings,
            [(2, 0, "It".to_owned()), (4, 1, "Of".to_owned()), (5, 2, "at once".to_owned())]
        );
    }

    #[test]
    fn pages_have_no_openings() {
        let (count, _) = findings("a.md", "# Of it\n\nWhat `x` does, at once.\n");
        assert_eq!((count.words, count.doc_comments, count.found), (6, 0, [2, 0, 1]));
    }

    #[test]
    fn files_belong_to_a_crate_or_a_folder_of_docs() {
        assert_eq!(group("crates/a/src/b/c.rs"), Some("a"));
        assert_eq!(group("docs/operate/x.md"), Some("docs/operate"));
        assert_eq!(group("docs/README.md"), Some("docs"));
        assert_eq!(group("README.md"), Some("root"));
        for name in ["crates/a/tests/b.rs", "crates/a/src/b/tests.rs", "crates/a/Cargo.toml"] {
            assert_eq!(group(name), None);
        }
    }

    #[test]
    fn rates_and_bounds_are_kept_close() {
        let rate = |found| Rate { found, of: 10_000 };
        let rates = BTreeMap::from([
            ("a".to_owned(), [rate(500), rate(100), rate(100)]),
            ("new".to_owned(), [rate(301), rate(100), rate(50)]),
        ]);
        let bounds = [("a", [40.0, 10.5, 90.0]), ("gone", [1.0; 3])];
        let bounds = bounds.map(|(name, bounds)| (name.to_owned(), bounds)).into();
        assert_eq!(
            compare(&rates, &bounds),
            [
                "a: 50.0 pronouns per 1,000, 40.0 at most: see `cargo xtask words a`",
                "a: 10.0 phrases per 1,000, and the bound is 90.0: run `cargo xtask words --lower`, and commit crates/xtask/words/bounds.tsv",
                "new: 30.1 pronouns per 1,000, 30.0 at most: see `cargo xtask words new`",
                "crates/xtask/words/bounds.tsv: gone does not exist: run `cargo xtask words --lower`",
            ]
        );
    }
}
