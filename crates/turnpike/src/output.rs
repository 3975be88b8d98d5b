//! Output of commands: JSON for programs, and tables with rounded numbers for people.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use serde::Serialize;

use crate::escape;
use crate::failure::Result;

/// Prints a value as indented JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<()> {
    print(&escape::json(&serde_json::to_string_pretty(value)?))
}

/// Prints a text and a line break. Characters that control the terminal are escaped. A closed pipe
/// (`| head`) is not an error.
pub(crate) fn print(text: &str) -> Result<()> {
    let text = escape::lines(text);
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns the columns and lines of the terminal, or `None` if the output is a file or a pipe.
pub(crate) fn screen() -> Option<(usize, usize)> {
    let (columns, lines) = terminal_size::terminal_size_of(io::stdout())?;
    Some((usize::from(columns.0), usize::from(lines.0)))
}

/// Replaces the contents of the terminal by the part of a text that fits.
pub(crate) fn repaint(text: &str, screen: (usize, usize)) -> Result<()> {
    const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";
    let mut out = io::stdout().lock();
    out.write_all(format!("{CLEAR}{}", screenful(text, screen)).as_bytes())?;
    Ok(out.flush()?)
}

/// Returns the part of a text that fits. Characters that control the terminal are escaped.
fn screenful(text: &str, (columns, lines): (usize, usize)) -> String {
    let text = escape::lines(text);
    let fitting = text.lines().take(lines).map(|line| line.chars().take(columns).collect());
    fitting.collect::<Vec<String>>().join("\n")
}

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Left alignment, for words.
    Left,
    /// Right alignment, for numbers.
    Right,
}

/// Table with a heading. Each column is as wide as its contents.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
    /// Indentation before the first cell of each subsequent row.
    indent: &'static str,
}

impl Table {
    /// Creates a table without rows.
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        let columns = columns.iter().map(|(name, align)| ((*name).to_owned(), *align)).collect();
        Self { columns, rows: Vec::new(), indent: "" }
    }

    /// Sets the indentation of subsequent rows.
    pub(crate) const fn indent(&mut self, indent: &'static str) {
        self.indent = indent;
    }

    /// Adds a row. Surplus cells are dropped. Line breaks and terminal controls are escaped: see
    /// [`escape::name`].
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells = cells.into_iter().take(self.columns.len());
        let mut cells: Vec<_> = cells.map(|cell| escape::name(&cell).into_owned()).collect();
        if let Some(first) = cells.first_mut() {
            first.insert_str(0, self.indent);
        }
        self.rows.push(cells);
    }

    /// Renders the table as lines, without a line break after the last line.
    pub(crate) fn render(&self) -> String {
        let heading: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let lines: Vec<&Vec<String>> = std::iter::once(&heading).chain(&self.rows).collect();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|i| lines.iter().filter_map(|line| line.get(i)).map(|c| width(c)).max())
            .map(Option::unwrap_or_default)
            .collect();
        let rendered = lines.iter().map(|line| self.line(line, &widths));
        rendered.collect::<Vec<_>>().join("\n")
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut out = String::new();
        for (i, ((_, align), width_wanted)) in self.columns.iter().zip(widths).enumerate() {
            let cell = cells.get(i).map_or("", String::as_str);
            let padding = " ".repeat(width_wanted.saturating_sub(width(cell)));
            if i > 0 {
                out.push_str("  ");
            }
            match align {
                Align::Left => out.extend([cell, &padding]),
                Align::Right => out.extend([&padding, cell]),
            }
        }
        out.truncate(out.trim_end().len());
        out
    }
}

/// Returns the number of columns for prose, which is the terminal's but at most 100.
pub(crate) fn columns() -> usize {
    const MOST: usize = 100;
    let terminal = terminal_size::terminal_size_of(io::stdout());
    terminal.map_or(MOST, |(columns, _)| usize::from(columns.0)).min(MOST)
}

/// Formats sentences as a list with lines of at most `columns` columns.
pub(crate) fn list(sentences: &[String], columns: usize) -> String {
    const LABEL: &str = "  - ";
    let line = |sentence: &String| {
        let text = wrapped(sentence, LABEL.len(), columns);
        format!("{LABEL}{}", text.trim_start())
    };
    let lines: Vec<String> = sentences.iter().map(line).collect();
    lines.join("\n")
}

/// Wraps a text into indented lines of at most `columns` columns. A longer word gets a separate
/// line.
pub(crate) fn wrapped(text: &str, indent: usize, columns: usize) -> String {
    let room = columns.saturating_sub(indent);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    let indent = " ".repeat(indent);
    lines.iter().map(|line| format!("{indent}{line}")).collect::<Vec<_>>().join("\n")
}

/// Returns the width of a text in columns.
pub(crate) fn width(text: &str) -> usize {
    text.chars().count()
}

/// Warning for operators of a firewall.
pub(crate) const PAST_THE_FIREWALL: &str = "this host's firewall sees one packet of each flow in two seconds; offload.mode = \"off\" has it see all";

/// Formats a number with separated thousands: `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a number of bytes with three digits and a binary unit: `1.46 GiB`.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    // The last unit suffices, because 64 bits represent less than 16 EiB.
    let power = (number.max(1).ilog2() / 10) as usize;
    if power == 0 {
        return format!("{number} B");
    }
    // Rounding is intended here.
    let value = number as f64 / f64::from(1u32 << 10).powi(power as i32);
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$} {}", UNITS[power])
}

/// Formats a rate in bits per second as Mbit/s.
pub(crate) fn megabits(bits_per_second: u64) -> String {
    format!("{:.3}", bits_per_second as f64 / 1e6)
}

/// Formats a duration for people with at most two units: `3 d 4 h`, `5 min 10 s`, `42 s`.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    let units = [("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)];
    let first = units.iter().position(|(_, size)| seconds >= *size).unwrap_or(units.len() - 1);
    let mut out = String::new();
    let mut rest = seconds;
    for (name, size) in units.iter().skip(first).take(2) {
        let count = rest / size;
        rest %= size;
        if count > 0 || out.is_empty() {
            // Writing to a String cannot fail.
            let _ = write!(out, "{}{count} {name}", if out.is_empty() { "" } else { " " });
        }
    }
    out
}

/// Formats a latency with a suitable unit: `85 µs`, `1.24 ms`.
pub(crate) fn micros(micros: u64) -> String {
    match micros {
        0..1000 => format!("{micros} µs"),
        1000..1_000_000 => format!("{:.2} ms", micros as f64 / 1e3),
        _ => format!("{:.2} s", micros as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table =
            Table::new(&[("name", Align::Left), ("µs", Align::Right), ("", Align::Left)]);
        table.row(["a".into(), "1".into(), String::new()]);
        table.row(["longer".into(), "1,000".into(), "note".into(), "left out".into()]);
        assert_eq!(
            table.render(),
            "name       µs\n\
             a           1\n\
             longer  1,000  note"
        );
    }

    #[test]
    fn prose_is_broken_between_words() {
        assert_eq!(wrapped("one two  three", 2, 9), "  one two\n  three");
        assert_eq!(wrapped("a-word-too-long b", 1, 8), " a-word-too-long\n b");
        assert_eq!(wrapped("", 4, 8), "");
    }

    #[test]
    fn a_screen_is_neither_overrun_nor_steered() {
        assert_eq!(screenful("abcd\nef\ng", (3, 2)), "abc\nef");
        assert_eq!(screenful("\x1b[2J", (80, 25)), "\\u{1b}[2J");
    }

    #[test]
    fn numbers_are_readable() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
        for (number, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (10 * 1024 * 1024 + 200_000, "10.2 MiB"),
            (999 << 30, "999 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
    }

    #[test]
    fn durations_have_two_units() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (310, "5 min 10 s"),
            (3600, "1 h"),
            (273_600, "3 d 4 h"),
            (86_401, "1 d"),
        ] {
            assert_eq!(duration(Duration::from_secs(seconds)), text);
        }
        assert_eq!(micros(85), "85 µs");
        assert_eq!(micros(1240), "1.24 ms");
        assert_eq!(micros(2_500_000), "2.50 s");
    }
}
