//! Output of `cargo xtask words`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::bounds::{Bounds, OF_NEW_TEXT};
use super::{Count, Finding, Page, sum};

/// Maximum number of files printed for a crate.
const FILES_MAX: usize = 15;
/// Maximum number of lines printed for a crate.
const LINES_MAX: usize = 60;

/// Table of the rates and bounds of all groups.
pub(super) fn table(
    groups: &BTreeMap<String, Vec<Page>>,
    all: &BTreeMap<String, Bounds>,
) -> String {
    let mut text = format!(
        "{:<18} {:>7} {:>17} {:>17} {:>17}\n",
        "per 1,000 (bound)", "words", "pronouns", "openings", "phrases"
    );
    let mut total = Count::default();
    for (name, pages) in groups {
        let count = sum(pages);
        let _ = write!(text, "{name:<18} {:>7}", count.words);
        for (rate, bound) in count.rates().iter().zip(all.get(name).unwrap_or(&OF_NEW_TEXT)) {
            let _ = write!(text, " {:>8.1} ({bound:>6.1})", rate.per_1000());
        }
        text.push('\n');
        total.add(&count);
    }
    let _ = write!(text, "{:<18} {:>7}", "total", total.words);
    for rate in total.rates() {
        let _ = write!(text, " {:>8.1} {:8}", rate.per_1000(), "");
    }
    text.truncate(text.trim_end().len());
    text.push_str(
        "\nPronouns and phrases are counted per 1,000 words, openings per 1,000 doc comments.\n",
    );
    text
}

/// The worst files of a group, then the worst lines.
pub(super) fn group(pages: &[Page]) -> String {
    let mut text = format!("{:>7} {:>9} {:>9} {:>9}\n", "words", "pronouns", "openings", "phrases");
    let mut worst: Vec<&Page> = pages.iter().filter(|page| !page.findings.is_empty()).collect();
    worst.sort_by_key(|page| std::cmp::Reverse(page.findings.len()));
    for page in worst.iter().take(FILES_MAX) {
        let [pronouns, openings, phrases] = page.count.found;
        let words = page.count.words;
        let _ =
            writeln!(text, "{words:>7} {pronouns:>9} {openings:>9} {phrases:>9}  {}", page.name);
    }
    let mut lines: Vec<_> = worst
        .iter()
        .flat_map(|page| {
            by_line(page).into_iter().map(move |(line, findings)| (page, line, findings))
        })
        .collect();
    lines.sort_by_key(|(_, _, findings)| std::cmp::Reverse(findings.len()));
    let hidden = lines.len().saturating_sub(LINES_MAX);
    for (page, line, findings) in lines.into_iter().take(LINES_MAX) {
        write_line(&mut text, &page.name, line, &findings);
    }
    if hidden > 0 {
        let _ =
            writeln!(text, "{hidden} more lines: `cargo xtask words FILE` lists those of a file");
    }
    text
}

/// All findings of a file.
pub(super) fn file(page: &Page) -> String {
    let mut text = String::new();
    for (line, findings) in by_line(page) {
        write_line(&mut text, &page.name, line, &findings);
    }
    text
}

fn by_line(page: &Page) -> BTreeMap<usize, Vec<&Finding>> {
    let mut lines: BTreeMap<usize, Vec<&Finding>> = BTreeMap::new();
    for finding in &page.findings {
        lines.entry(finding.line).or_default().push(finding);
    }
    lines
}

fn write_line(text: &mut String, name: &str, line: usize, findings: &[&Finding]) {
    let mut remedies: Vec<(&str, Vec<&str>)> = Vec::new();
    for Finding { text, instead, .. } in findings {
        match remedies.iter_mut().find(|(known, _)| known == instead) {
            Some((_, texts)) => texts.push(text),
            None => remedies.push((instead, vec![text])),
        }
    }
    let remedies: Vec<String> = remedies
        .iter()
        .map(|(instead, texts)| format!("{} -> {instead}", texts.join(", ")))
        .collect();
    let _ = writeln!(text, "{name}:{line}: {}", remedies.join(" | "));
}

#[cfg(test)]
mod tests {
    use super::super::phrases::Phrases;
    use super::*;

    #[test]
    fn findings_are_printed_by_line_and_worst_first() {
        let phrases = Phrases::read().unwrap();
        let page = |name: &str, text: &str| Page::of(name, text, &phrases);
        let pages = [
            page("a.md", "A port."),
            page("b.md", "Ports\n\nIt waits, and it alone."),
            page("c.md", "it"),
        ];
        let printed = group(&pages);
        let lines: Vec<&str> = printed.lines().collect();
        assert_eq!(
            lines,
            [
                "  words  pronouns  openings   phrases",
                "      6         2         0         1  b.md",
                "      1         1         0         0  c.md",
                "b.md:3: It, it -> the noun | alone -> only",
                "c.md:1: it -> the noun",
            ]
        );
        assert_eq!(file(&pages[2]), "c.md:1: it -> the noun\n");
        let groups = BTreeMap::from([("a".to_owned(), Vec::from(pages))]);
        let printed = table(&groups, &BTreeMap::new());
        let row =
            "a                        9    333.3 (  30.0)      0.0 (  10.0)    111.1 (   8.0)";
        assert_eq!(printed.lines().nth(1), Some(row));
    }
}
