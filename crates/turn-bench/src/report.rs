//! `report`: results as one HTML page that needs no network and no script, or their summary as
//! Markdown.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd, html};

use crate::outcome::Outcome;
use crate::text;

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// Files written by --json, also compressed by gzip (.gz)
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write the page to this file, replacing it
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
    /// Print the summary as Markdown instead
    #[arg(long, conflicts_with = "output")]
    markdown: bool,
    /// Heading of the page
    #[arg(long, value_name = "TEXT", default_value = "TURN servers, measured")]
    title: String,
}

/// Reads the results and writes the page.
///
/// # Errors
/// A file that cannot be read or is not a result (with the line); a page that cannot be written.
pub fn run(args: &ReportArgs) -> Result<()> {
    let mut outcomes = Vec::new();
    for file in &args.files {
        outcomes.extend(read(file)?);
    }
    if args.markdown {
        print!("{}", text::summary(&outcomes));
        return Ok(());
    }
    fs::write(&args.output, page(&args.title, &args.files, &outcomes))
        .with_context(|| format!("cannot write {}", args.output.display()))?;
    println!("wrote {}", args.output.display());
    Ok(())
}

/// The results in a file, one per line.
fn read(file: &Path) -> Result<Vec<Outcome>> {
    let name = file.display();
    let text = text_of(file).with_context(|| format!("cannot read {name}"))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let outcomes = lines
        .map(|(number, line)| {
            let mut outcome = serde_json::from_str(line).with_context(|| {
                format!("{name}, line {}: not a result of turnpike-bench", number + 1)
            })?;
            // Older results have the conclusions of each test alone.
            if let Outcome::Compare(compared) = &mut outcome {
                compared.correct();
            }
            Ok(outcome)
        })
        .collect::<Result<Vec<_>>>()?;
    ensure!(!outcomes.is_empty(), "{name} is empty: did the run that should have written it end?");
    Ok(outcomes)
}

/// The text of a file, unpacked by gzip if its name ends in `.gz`.
fn text_of(file: &Path) -> Result<String> {
    if file.extension().is_none_or(|extension| extension != "gz") {
        return Ok(fs::read_to_string(file)?);
    }
    // Opened here: gzip sees no name that it could take for an option.
    let packed = fs::File::open(file)?;
    let gzip = Command::new("gzip").args(["-d", "-c"]).stdin(packed).output();
    let unpacked = gzip.context("cannot run gzip")?;
    let complaint = String::from_utf8_lossy(&unpacked.stderr);
    ensure!(unpacked.status.success(), "gzip says: {}", complaint.trim());
    Ok(String::from_utf8(unpacked.stdout)?)
}

/// The page: the text of each result, from Markdown.
fn page(title: &str, files: &[PathBuf], outcomes: &[Outcome]) -> String {
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;");
    let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    // The summary comes first, and has a style of its own.
    let mut body = "<section class=\"summary\">\n".to_owned();
    push(&mut body, &text::summary(outcomes));
    body.push_str("</section>\n");
    outcomes.iter().for_each(|outcome| push(&mut body, &text::markdown(outcome)));
    let (title, files) = (escape(title), escape(&names.join(", ")));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{}</style>\n</head>\n<body>\n<h1>{title}</h1>\n\
         <p>From {files}.</p>\n{body}</body>\n</html>\n",
        include_str!("report.css"),
    )
}

/// Adds Markdown as HTML.
fn push(body: &mut String, markdown: &str) {
    html::push_html(body, Parser::new_ext(markdown, Options::ENABLE_TABLES).map(without_html));
}

/// Shows HTML of names and messages as text, and leaves out images: the page loads nothing.
fn without_html(event: Event<'_>) -> Event<'_> {
    if let Event::Html(text) | Event::InlineHtml(text) = event {
        return Event::Text(text);
    }
    if let Event::Start(Tag::Image { .. }) | Event::End(TagEnd::Image) = event {
        return Event::Text("".into());
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Better, Compare, measure};

    fn compare() -> Compare {
        let rounds = |value: f64| vec![Some(value); 6];
        let values = vec![rounds(400e3), rounds(100e3)];
        let delivered = measure("throughput", "packets/s", Better::Higher, values);
        let mut compare = Compare::example(["ours", "<theirs>"], vec![delivered]);
        compare.failures.push("round 2: <gone> ![x](http://192.0.2.1/x.png)".into());
        compare
    }

    #[test]
    fn the_page_shows_figures_and_doubts_and_needs_nothing_else() {
        let page = page("Title", &["a.json".into()], &[Outcome::Compare(compare())]);
        for part in ["&lt;theirs&gt;", "400 k", "100 k", "0.25", "<td>throughput", "&lt;gone&gt;"] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        for part in ["http:", "<script", "<theirs>", "NaN"] {
            assert!(!page.contains(part), "{part}\n{page}");
        }
    }

    #[test]
    fn a_file_of_something_else_is_an_error_with_its_line() {
        let file = std::env::temp_dir().join(format!("report-{}.json", std::process::id()));
        let line = serde_json::to_string(&Outcome::Compare(compare())).unwrap();
        fs::write(&file, format!("{line}\n\n{line}\n")).unwrap();
        assert_eq!(read(&file).unwrap().len(), 2);
        fs::write(&file, format!("{line}\n{{}}\n")).unwrap();
        let error = format!("{:#}", read(&file).unwrap_err());
        assert!(error.contains("line 2"), "{error}");
        fs::write(&file, "\n").unwrap();
        assert!(read(&file).is_err());
        let packed = file.with_extension("json.gz");
        fs::rename(&file, &packed).unwrap();
        let error = format!("{:#}", read(&packed).unwrap_err());
        assert!(error.contains("gzip says"), "{error}");
        fs::remove_file(&packed).unwrap();
    }
}
