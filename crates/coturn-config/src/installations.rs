//! The page of installations: configurations of the wild, and all that an import of each leaves
//! out.

use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use crate::command_line::{Variables, command_line};
use crate::translation::{AnyHost, Fate, Import, Purpose, Source, import};

/// Title and file of each example, in the order of the page.
pub const INSTALLATIONS: [(&str, &str); 14] = [
    ("Synapse (Matrix)", "synapse.conf"),
    ("Element and LiveKit", "livekit-element.conf"),
    ("Nextcloud Talk", "nextcloud-talk.conf"),
    ("Jitsi Meet", "jitsi.conf"),
    ("BigBlueButton", "bigbluebutton.conf"),
    ("Mailcow, with a relay beside it", "mailcow.conf"),
    ("NetBird", "netbird.conf"),
    ("a cloud behind 1:1 NAT", "cloud-image.conf"),
    ("image `coturn/coturn`, Compose", "image-coturn.yml"),
    ("image `instrumentisto/coturn`, `docker run`", "image-instrumentisto.sh"),
    ("image of Kolab, with Redis", "image-kolab.conf"),
    ("coturn's Compose file, with PostgreSQL", "coturn-compose.conf"),
    ("coturn's sample file", "coturn-sample.conf"),
    ("a unit with a drop-in", "unit.service"),
];

/// Imports a configuration, or the command line in a unit, a Compose file or a command, without a
/// configuration before it.
///
/// # Errors
/// As [`command_line`].
pub fn import_any(text: &str, directory: &Path) -> Result<Import, String> {
    let line = command_line(text, &Variables::new()).transpose()?;
    let source = match &line {
        None => Source { file: text.as_bytes(), arguments: &[] },
        Some(line) => Source { file: b"", arguments: &line.words },
    };
    Ok(import(source, Purpose::Migration, directory, &AnyHost))
}

/// Options that an import leaves out, with the reasons.
#[must_use]
pub fn left_out(import: &Import) -> Vec<(&str, String)> {
    let lines = import.lines.iter().filter_map(|line| {
        let reason = match &line.fate {
            Fate::Unsupported(reason) | Fate::Unreadable(reason) => reason.clone(),
            Fate::Unknown => "coturn has no such option".to_owned(),
            Fate::Taken(_) | Fate::SameHere(_) => return None,
        };
        let name = line.text.trim_start_matches('-').split(['=', ' ']).next();
        Some((name.unwrap_or_default(), reason))
    });
    lines.collect()
}

/// The page as Markdown, from the directory of the examples.
///
/// # Errors
/// An example cannot be read.
pub fn installations_markdown(examples: &Path) -> io::Result<String> {
    let mut page = String::from(HEAD);
    for (title, name) in INSTALLATIONS {
        let text = fs::read_to_string(examples.join(name))?;
        let import = import_any(&text, Path::new("/etc/turnpike")).map_err(io::Error::other)?;
        let left = left_out(&import);
        let reasons: Vec<String> =
            left.iter().map(|(name, reason)| format!("`{name}`: {reason}")).collect();
        let reasons = if reasons.is_empty() { "nothing".to_owned() } else { reasons.join("<br>") };
        let count = import.lines.len();
        let _ = writeln!(page, "| {title} | {} of {count} | {reasons} |", count - left.len());
    }
    page.push_str(FOOT);
    Ok(page)
}

const HEAD: &str = "\
<!-- Generated from crates/coturn-config/tests/fixtures by `cargo xtask docs`. -->
# Installations of coturn, and the part of each that is not taken

Each row is an example in the shape of the project's public documentation, imported by `turnpike import coturn`. A test
reads the result as a server would, and compares its settings. For Mailcow, whose own documentation has no coturn, the example is a relay
on the same host.

| installation | options accounted for here | not taken, and why |
|---|---|---|
";

const FOOT: &str = "
Differences in behaviour that no option shows: [Migrating from coturn](coturn.md). After the import, connect the application:
[Synapse](../operate/matrix.md), [Nextcloud Talk](../operate/nextcloud-talk.md), [Jitsi](../operate/jitsi.md),
[BigBlueButton](../operate/bigbluebutton.md), [LiveKit](../operate/livekit.md).
";
