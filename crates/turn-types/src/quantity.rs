//! Quantities with a unit, in the notation of the configuration and the command line: `90 s`, `64
//! MiB`.

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::time::Duration;

type Units = [(&'static str, u64)];

const DURATION: &Units =
    &[("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];

const BYTES: &Units = &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Parses a duration: an integer and a unit (`ms`, `s`, `min`, `h`, `d`), with or without a space
/// between them.
///
/// # Errors
/// Returns a sentence about the text, if the number or unit is missing, unknown or too large.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    parse(text, DURATION).map(Duration::from_millis)
}

/// Formats a duration in the largest unit that divides it. Fractions of a millisecond are dropped.
#[must_use]
pub fn show_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 { "0 s".to_owned() } else { show(millis, DURATION) }
}

/// Parses an amount of memory or data: an integer and a unit (`B`, `KiB`, `MiB`, `GiB`).
///
/// # Errors
/// Returns a sentence about the text, if the number or unit is missing, unknown or too large.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    parse(text, BYTES)
}

/// Formats an amount of memory or data in the largest unit that divides it.
#[must_use]
pub fn show_bytes(bytes: u64) -> String {
    if bytes == 0 { "0 B".to_owned() } else { show(bytes, BYTES) }
}

fn show(amount: u64, units: &Units) -> String {
    units
        .iter()
        .find(|(_, size)| amount.is_multiple_of(*size))
        .map_or_else(|| amount.to_string(), |(name, size)| format!("{} {name}", amount / size))
}

fn parse(text: &str, units: &Units) -> Result<u64, String> {
    let trimmed = text.trim();
    let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = trimmed.split_at(digits);
    let unit = unit.trim_start();
    let known = || units.iter().rev().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    if number.is_empty() {
        return Err(format!("\"{text}\" does not begin with a whole number"));
    }
    if unit.is_empty() {
        return Err(format!("\"{text}\" has no unit ({})", known()));
    }
    let Some((_, size)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("\"{text}\" has an unknown unit \"{unit}\"; there are {}", known()));
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(*size))
        .ok_or_else(|| format!("\"{text}\" is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_shown() {
        for (text, millis, shown) in [
            ("10 min", 600_000, "10 min"),
            ("90 s", 90_000, "90 s"),
            ("90s", 90_000, "90 s"),
            (" 3600 s ", 3_600_000, "1 h"),
            ("2 d", 172_800_000, "2 d"),
            ("1500 ms", 1_500, "1500 ms"),
            ("0 min", 0, "0 s"),
        ] {
            let read = parse_duration(text).unwrap();
            assert_eq!(read.as_millis(), millis, "{text}");
            assert_eq!(show_duration(read), shown);
            assert_eq!(parse_duration(shown), Ok(read), "the text reads back");
        }
    }

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, bytes, shown) in [
            ("64 MiB", 64 << 20, "64 MiB"),
            ("1024KiB", 1 << 20, "1 MiB"),
            ("1500 B", 1500, "1500 B"),
            ("0 GiB", 0, "0 B"),
        ] {
            let read = parse_bytes(text).unwrap();
            assert_eq!(read, bytes, "{text}");
            assert_eq!(show_bytes(read), shown);
        }
        assert!(parse_bytes("18446744073709551615 GiB").unwrap_err().contains("too large"));
    }

    #[test]
    fn errors_name_the_slip() {
        for (text, error) in [
            ("", "\"\" does not begin with a whole number"),
            ("-5 s", "\"-5 s\" does not begin with a whole number"),
            ("600", "\"600\" has no unit (ms, s, min, h, d)"),
            (
                "10 minutes",
                "\"10 minutes\" has an unknown unit \"minutes\"; there are ms, s, min, h, d",
            ),
            ("1.5 h", "\"1.5 h\" has an unknown unit \".5 h\"; there are ms, s, min, h, d"),
        ] {
            assert_eq!(parse_duration(text), Err(error.to_owned()));
        }
    }
}
