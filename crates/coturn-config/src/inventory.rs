//! All that coturn has besides options: commands, names and lines that operators and their programs
//! use, each with its state here.

mod commands;
mod console;
mod log;
mod metrics;
mod process;
mod redis;
mod web;

use std::fmt::Write as _;

/// State of a thing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The same name works here; remarks.
    Same(&'static str),
    /// The command, key or page that replaces it.
    Replaced(&'static str),
    /// Nothing to do here; the reason.
    NotNeeded(&'static str),
    /// No counterpart; the way that is offered instead.
    Missing(&'static str),
}

/// A thing of coturn.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// Its names: separated by "; ".
    pub names: &'static str,
    /// Use or meaning in coturn.
    pub meaning: &'static str,
    /// State here.
    pub state: State,
}

/// Things of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Title of the section.
    pub title: &'static str,
    /// Introduction.
    pub text: &'static str,
    /// The things.
    pub items: &'static [Item],
}

impl Part {
    /// True if a name is one of an item's.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.items.iter().any(|item| item.names.split("; ").any(|one| one == name))
    }
}

/// `turnadmin`: commands and options.
pub const TURNADMIN: Part = commands::PART;
/// Commands of the console (telnet).
pub const CONSOLE: Part = console::PART;
/// Metrics of the exporter for Prometheus.
pub const METRICS: Part = metrics::PART;
/// Keys and channels of Redis.
pub const REDIS: Part = redis::PART;
/// Pages of the web interface.
pub const WEB: Part = web::PART;
/// Lines of the log.
pub const LOG: Part = log::PART;
/// Signals, files and exit status.
pub const PROCESS: Part = process::PART;

/// Every part, in the order of the page.
pub const PARTS: [Part; 7] = [TURNADMIN, CONSOLE, METRICS, REDIS, WEB, LOG, PROCESS];

const fn item(names: &'static str, meaning: &'static str, state: State) -> Item {
    Item { names, meaning, state }
}

/// The page as Markdown.
#[must_use]
pub fn inventory_markdown() -> String {
    let mut text = String::from(HEAD);
    for Part { title, text: introduction, items } in PARTS {
        let _ = write!(
            text,
            "\n## {title}\n\n{introduction}\n\n| in coturn | meaning | state | here |\n|---|---|---|---|\n"
        );
        for Item { names, meaning, state } in items {
            let names: Vec<String> =
                names.split("; ").map(|name| format!("`{}`", name.replace('|', "\\|"))).collect();
            let (word, here) = match state {
                State::Same(here) => ("the same", here),
                State::Replaced(here) => ("replaced", here),
                State::NotNeeded(here) => ("not needed", here),
                State::Missing(here) => ("not there", here),
            };
            let _ = writeln!(text, "| {} | {meaning} | {word} | {here} |", names.join(", "));
        }
    }
    text
}

const HEAD: &str = "\
<!-- Generated from crates/coturn-config/src/inventory/ by `cargo xtask docs`; edit there. -->
# Everything else of coturn

Commands, metrics, keys, pages, log lines and signals of coturn 4.5 to 4.17, each with its state here. Options have a page
of their own: [coturn's options](coturn-options.md). A test compares both pages with the help of an installed coturn.
";
