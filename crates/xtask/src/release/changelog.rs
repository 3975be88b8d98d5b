//! The section of a version in CHANGELOG.md.

/// Maximum number of lines of a section: a page.
const LINES_MAX: usize = 60;

/// A section of the second level.
#[derive(Debug, PartialEq)]
struct Section<'a> {
    /// Text after `## `.
    heading: &'a str,
    /// Lines between two headings, without empty lines at both ends.
    lines: Vec<&'a str>,
}

impl<'a> Section<'a> {
    /// First word of the heading, with or without brackets.
    fn name(&self) -> &'a str {
        let word = self.heading.split_whitespace().next().unwrap_or_default();
        word.trim_start_matches('[').trim_end_matches(']')
    }

    fn has_date(&self) -> bool {
        let words = self.heading.split(|c: char| c.is_whitespace() || c == '(' || c == ')');
        words.skip(1).any(is_date)
    }

    fn entries(&self) -> usize {
        self.lines.iter().filter(|line| line.starts_with("- ")).count()
    }
}

/// Returns sentences about the changelog's gaps for a release of `version`.
pub(super) fn missing(text: &str, version: &str) -> Vec<String> {
    let sections = sections(text);
    let mut missing = Vec::new();
    match sections.iter().find(|section| section.name() == version) {
        None => missing.push(format!(
            "CHANGELOG.md has no section of {version}: write `## {version} - YEAR-MONTH-DAY`."
        )),
        Some(section) => {
            if !section.has_date() {
                missing.push(format!(
                    "The section of {version} in CHANGELOG.md has no date: write `## {version} - YEAR-MONTH-DAY`."
                ));
            }
            if section.entries() == 0 {
                missing.push(format!("The section of {version} in CHANGELOG.md has no entries."));
            }
            let lines = section.lines.len();
            if lines > LINES_MAX {
                missing.push(format!(
                    "The section of {version} in CHANGELOG.md has {lines} lines: shorten it to a page ({LINES_MAX} at most)."
                ));
            }
        }
    }
    for section in &sections {
        let entries = section.entries();
        if section.name().eq_ignore_ascii_case("unreleased") && entries > 0 {
            missing.push(format!(
                "CHANGELOG.md has {entries} entries under Unreleased: move them to the section of {version}."
            ));
        }
    }
    missing
}

fn sections(text: &str) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            sections.push(Section { heading, lines: Vec::new() });
        } else if let Some(section) = sections.last_mut()
            && (!line.trim().is_empty() || !section.lines.is_empty())
        {
            section.lines.push(line);
        }
    }
    for section in &mut sections {
        while section.lines.last().is_some_and(|line| line.trim().is_empty()) {
            section.lines.pop();
        }
    }
    sections
}

/// Returns true for a date of the form 2026-12-31.
fn is_date(word: &str) -> bool {
    let parts: Vec<&str> = word.split('-').collect();
    let [year, month, day] = parts.as_slice() else { return false };
    let number = |part: &str, digits: usize| {
        let is_number = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| part.parse::<u32>().ok()).flatten()
    };
    number(year, 4).is_some()
        && number(month, 2).is_some_and(|month| (1..=12).contains(&month))
        && number(day, 2).is_some_and(|day| (1..=31).contains(&day))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dated_section_of_a_page_is_complete() {
        for heading in ["0.2.0 - 2026-12-01", "[0.2.0] - 2026-12-01", "0.2.0 (2026-12-01)"] {
            let text = format!(
                "# Changelog\n\n## Unreleased\n\n## {heading}\n\n### Added\n- One.\n\n## 0.1.0\n- Old.\n"
            );
            assert_eq!(missing(&text, "0.2.0"), [""; 0], "{heading}");
        }
    }

    #[test]
    fn a_missing_section_is_reported() {
        let text = "# Changelog\n\n## Unreleased\n\n- One.\n- Two,\n  with more.\n";
        let missing = missing(text, "0.1.0");
        assert_eq!(missing.len(), 2, "{missing:?}");
        assert!(missing[0].contains("no section of 0.1.0"), "{missing:?}");
        assert!(missing[1].contains("2 entries under Unreleased"), "{missing:?}");
    }

    #[test]
    fn date_entries_and_length_are_reported() {
        let no_date = missing("## 0.1.0\n- One.\n", "0.1.0");
        assert!(no_date.len() == 1 && no_date[0].contains("no date"), "{no_date:?}");
        let empty = missing("## 0.1.0 - 2026-12-01\n\n## 0.0.9\n- One.\n", "0.1.0");
        assert!(empty.len() == 1 && empty[0].contains("no entries"), "{empty:?}");
        let section =
            |lines| format!("## 0.1.0 - 2026-12-01\n\n{}\n## 0.0.9\n", "- One.\n".repeat(lines));
        assert_eq!(missing(&section(LINES_MAX), "0.1.0"), [""; 0]);
        let long = missing(&section(LINES_MAX + 1), "0.1.0");
        assert!(long.len() == 1 && long[0].contains("61 lines"), "{long:?}");
    }

    #[test]
    fn dates_are_recognized() {
        assert!(is_date("2026-12-31"));
        for word in ["2026-13-01", "2026-12-00", "26-12-01", "2026-1-1", "2026-12", "+026-12-01"] {
            assert!(!is_date(word), "{word}");
        }
    }
}
