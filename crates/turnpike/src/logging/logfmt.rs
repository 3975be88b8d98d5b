//! Log lines as logfmt: `ts=… level=info msg="…"`, followed by the fields of the event.
//!
//! A value is bare if possible. A value is a JSON string if it contains a space, a quote, an equals
//! sign, a backslash or a control character.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::parts::Parts;
use crate::escape;

/// Formatter of events as one line each.
pub(super) struct Logfmt;

impl<S, N> FormatEvent<S, N> for Logfmt
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        write!(writer, "ts=")?;
        SystemTime.format_time(&mut writer)?;
        let Parts { message, fields } = Parts::of(event);
        write!(writer, " level={level} msg={}", value(&message))?;
        // The names of fields are constants of this program, and need no escaping.
        for (name, text) in &fields {
            write!(writer, " {name}={}", value(text))?;
        }
        writeln!(writer)
    }
}

/// Formats a value, with quotes if needed.
fn value(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '=' | '\\');
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    // The conversion of a string to JSON cannot fail.
    let quoted = serde_json::to_string(text).unwrap_or_default();
    escape::json(&quoted).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::LogFormat;
    use super::super::tests::written;

    /// Parses a line as log collectors do: bare values extend to a space, and others are strings.
    fn parsed(line: &str) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        let mut rest = line;
        while let Some((key, behind)) = rest.split_once('=') {
            let (value, next) = if behind.starts_with('"') {
                let mut strings = serde_json::Deserializer::from_str(behind).into_iter::<String>();
                let value = strings.next().unwrap().unwrap();
                (value, &behind[strings.byte_offset()..])
            } else {
                let end = behind.find(' ').unwrap_or(behind.len());
                (behind[..end].to_owned(), &behind[end..])
            };
            pairs.push((key.trim_start().to_owned(), value));
            rest = next;
        }
        assert_eq!(rest, "", "{line}");
        pairs
    }

    #[test]
    fn each_event_is_a_line_that_reads_back() {
        let user = "x\" level=error msg=\"owned\"\n\u{1b}[2J \u{202e}\u{e9}=\\";
        let lines = written(LogFormat::Logfmt, || {
            tracing::info!(client = %"192.0.2.1:5", user, empty = "", n = 7, "allocation ended");
            tracing::warn!(error = ?Some("a b"), "two\nlines");
        });
        assert!(!lines.contains(['\u{1b}', '\u{202e}']), "{lines:?}");
        let lines: Vec<_> = lines.lines().map(parsed).collect();
        let [first, second] = &lines[..] else { panic!("{lines:?}") };
        let pairs = |line: &[(String, String)]| -> Vec<(String, String)> { line[1..].to_vec() };
        let expected = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        assert_eq!(first[0].0, "ts");
        assert!(first[0].1.ends_with('Z') && first[0].1.contains('T'), "{first:?}");
        assert_eq!(
            pairs(first),
            expected(&[
                ("level", "info"),
                ("msg", "allocation ended"),
                ("client", "192.0.2.1:5"),
                ("user", user),
                ("empty", ""),
                ("n", "7"),
            ])
        );
        assert_eq!(
            pairs(second),
            expected(&[("level", "warn"), ("msg", "two\nlines"), ("error", "Some(\"a b\")")])
        );
    }
}
