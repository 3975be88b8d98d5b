//! Signals that report a bound. A signal is `METRIC`, `METRIC REASON`, or `log TEXT`, where TEXT is
//! part of a string literal in the product's source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Prefix of a signal that names a log line.
pub(super) const LOG: &str = "log ";

/// Known metrics, reasons and source text.
pub(super) struct Signals {
    metrics: BTreeSet<String>,
    /// Reasons by metric.
    reasons: BTreeMap<String, BTreeSet<String>>,
    source: String,
}

impl Signals {
    /// Reads the generated pages of metrics and reasons, and the sources of crates.
    ///
    /// # Errors
    /// A source file cannot be read.
    pub(super) fn read(root: &Path, crates: &[&str]) -> Result<Self> {
        let mut source = String::new();
        for name in crates {
            append(&root.join("crates").join(name).join("src"), &mut source)?;
        }
        Ok(Self::parse(&admin::metrics_markdown(), &admin::reasons_markdown(), &source))
    }

    fn parse(metrics: &str, reasons: &str, source: &str) -> Self {
        let metrics = metrics.lines().filter_map(first_code).map(str::to_owned).collect();
        let mut by_metric: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut metric = "";
        for line in reasons.lines() {
            if line.starts_with("## ") {
                metric = line.split('`').nth(1).unwrap_or_default();
            } else if let Some(reason) = first_code(line) {
                by_metric.entry(metric.to_owned()).or_default().insert(reason.to_owned());
            }
        }
        Self { metrics, reasons: by_metric, source: unbroken(source) }
    }

    /// Returns the error of a signal that does not exist.
    pub(super) fn slip(&self, signal: &str) -> Option<String> {
        if let Some(text) = signal.strip_prefix(LOG) {
            let exists = !text.is_empty() && self.source.contains(text);
            return (!exists).then(|| format!("no source contains the text {text:?}"));
        }
        let (metric, reason) = signal.split_once(' ').unwrap_or((signal, ""));
        if !self.metrics.contains(metric) {
            return Some(format!("there is no metric {metric}"));
        }
        let known = self.reasons.get(metric);
        let exists = reason.is_empty() || known.is_some_and(|known| known.contains(reason));
        (!exists).then(|| format!("{metric} has no reason {reason}"))
    }
}

/// Returns the first cell of a row if it is code.
fn first_code(line: &str) -> Option<&str> {
    line.strip_prefix("| `")?.split('`').next()
}

/// Joins string literals that continue on the next line.
fn unbroken(source: &str) -> String {
    let mut lines = source.split("\\\n");
    let mut text = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        text.push_str(line.trim_start());
    }
    text
}

fn append(folder: &Path, text: &mut String) -> Result<()> {
    let name = folder.display();
    for entry in folder.read_dir().with_context(|| format!("cannot list {name}"))? {
        let path = entry?.path();
        if path.is_dir() {
            append(&path, text)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let file = fs::read_to_string(&path);
            text.push_str(&file.with_context(|| format!("cannot read {}", path.display()))?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_compared_with_metrics_reasons_and_sources() {
        let metrics = "| metric | type |\n| `drops_total` | counter |\n| `calls` | gauge |\n";
        let reasons = "## Drops (`drops_total`)\n\n| reason |\n| `too_many` | text |\n\
            ## Other (`other_total`)\n| `other` | text |\n";
        let source = "warn!(\"the queue is full: more \\\n        wait\");";
        let signals = Signals::parse(metrics, reasons, source);
        for known in ["drops_total", "drops_total too_many", "calls", "log is full: more wait"] {
            assert_eq!(signals.slip(known), None, "{known}");
        }
        for unknown in ["drops", "drops_total other", "calls too_many", "log is empty", "log ", ""]
        {
            assert!(signals.slip(unknown).is_some(), "{unknown}");
        }
    }
}
