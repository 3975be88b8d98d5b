//! Results as one page that needs nothing else to be read: no network, no script.

mod bars;
mod comparison;
mod lab;
mod memory;
mod page;
mod plot;
mod programs;
mod runs;
mod scale;
mod units;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::outcome::Outcome;
use page::Section;

/// What `report` is told.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Files that --json wrote, one or more.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Where the page goes; a file that is there is replaced.
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
    /// The page's heading.
    #[arg(long, value_name = "TEXT", default_value = "TURN servers, measured")]
    title: String,
}

/// Reads the results and writes the page.
///
/// # Errors
/// A file that cannot be read or is not of ours (with the line), a page that cannot be written.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut outcomes = Vec::new();
    for file in &arguments.files {
        outcomes.extend(read(file)?);
    }
    let names: Vec<String> =
        arguments.files.iter().map(|file| file.display().to_string()).collect();
    let page = render(&arguments.title, &names, &outcomes);
    fs::write(&arguments.output, page)
        .with_context(|| format!("cannot write {}", arguments.output.display()))?;
    println!("wrote {}", arguments.output.display());
    Ok(())
}

/// The results in a file, one a line.
fn read(file: &Path) -> Result<Vec<Outcome>> {
    let name = file.display();
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let outcomes = lines
        .map(|(number, line)| {
            serde_json::from_str(line).with_context(|| {
                format!("{name}, line {}: not a result of turnpike-bench", number + 1)
            })
        })
        .collect::<Result<Vec<_>>>()?;
    ensure!(!outcomes.is_empty(), "{name} is empty: did the run that should have written it end?");
    Ok(outcomes)
}

/// The page.
#[must_use]
pub fn render(title: &str, files: &[String], outcomes: &[Outcome]) -> String {
    let mut sections: Vec<Section> = Vec::new();
    for outcome in outcomes {
        match outcome {
            Outcome::Compare(compare) => sections.extend(comparison::sections(compare)),
            Outcome::Lab(lab) => sections.push(lab::section(lab)),
            Outcome::Programs(programs) => sections.push(programs::section(programs)),
            // All in one table.
            Outcome::Traffic(_)
            | Outcome::FindMax(_)
            | Outcome::Requests(_)
            | Outcome::Hostile(_) => {}
            Outcome::Footprint(footprint) => sections.push(memory::section(footprint)),
        }
    }
    sections.extend(runs::section(outcomes));
    page::render(title, &format!("From {}.", files.join(", ")), &sections)
}

/// A text between tags or in an attribute.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::statistics::measure;
    use crate::outcome::{Better, Compare};

    fn compare() -> Compare {
        let rounds = |value: f64| vec![Some(value); 6];
        let values = vec![rounds(400e3), rounds(100e3)];
        let delivered = measure("delivered at most", "packets/s", Better::Higher, values);
        Compare::example(["ours", "<theirs>"], vec![delivered])
    }

    #[test]
    fn the_page_shows_every_figure_and_needs_nothing_else() {
        let page = render("Title", &["a.json".to_owned()], &[Outcome::Compare(compare())]);
        for part in ["ours against &lt;theirs&gt;", "400 k", "100 k", "0.25×", "delivered at most"]
        {
            assert!(page.contains(part), "{part}\n{page}");
        }
        assert_eq!(page.matches("<rect class=\"bar").count(), 3, "two servers and their ratio");
        for part in ["http", "<script", "<theirs>", "NaN", "inf ", "≥"] {
            assert!(!page.contains(part), "{part}\n{page}");
        }
    }

    #[test]
    fn what_casts_doubt_on_figures_is_on_the_page() {
        let mut compare = compare();
        compare.cells[0].ceiling = Some(1_400_000.0);
        compare.cells[0].generator_limited = vec![3, 0];
        compare.failures.push("round 2: <gone>".into());
        let page = render("Title", &["a.json".to_owned()], &[Outcome::Compare(compare)]);
        for part in
            ["≥ 400 k", "deliver 1.40 M/s", "ours: in 3 of 6 rounds", "round 2: &lt;gone&gt;"]
        {
            assert!(page.contains(part), "{part}\n{page}");
        }
        assert_eq!(page.matches('≥').count(), 2, "the figure and what it means\n{page}");
    }

    #[test]
    fn a_file_of_something_else_is_told_with_its_line() {
        let file = std::env::temp_dir().join(format!("report-{}.json", std::process::id()));
        let line = serde_json::to_string(&Outcome::Compare(compare())).unwrap();
        fs::write(&file, format!("{line}\n\n{line}\n")).unwrap();
        assert_eq!(read(&file).unwrap().len(), 2);
        fs::write(&file, format!("{line}\n{{}}\n")).unwrap();
        let error = read(&file).unwrap_err();
        assert!(format!("{error:#}").contains("line 2"), "{error:#}");
        fs::write(&file, "\n").unwrap();
        assert!(read(&file).is_err());
        fs::remove_file(&file).unwrap();
    }
}
