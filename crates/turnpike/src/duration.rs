//! Durations on the command line: a whole number and a unit, `30 s`, `10min`, `24 h`, `7 d`.

use std::time::Duration;

/// Reads a duration of at least a second.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let advice = "write a whole number and a unit: 30 s, 10 min, 24 h, 7 d";
    let number: u64 = number.parse().map_err(|_| advice.to_owned())?;
    let seconds = match unit.trim() {
        "s" | "sec" | "seconds" => 1,
        "m" | "min" | "minutes" => 60,
        "h" | "hours" => 3600,
        "d" | "days" => 86_400,
        _ => return Err(advice.to_owned()),
    };
    match number.checked_mul(seconds) {
        Some(0) => Err("it must be at least 1 s".to_owned()),
        // Beyond it the end of a credential could not be written down.
        Some(total) if total <= 100 * 366 * 86_400 => Ok(Duration::from_secs(total)),
        Some(_) | None => Err("it must be at most 100 years".to_owned()),
    }
}

/// Reads the deadline of a drain.
pub(crate) fn parse_deadline(text: &str) -> Result<Duration, String> {
    let deadline = parse(text)?;
    if deadline > admin::limits::DRAIN_MAX {
        return Err("it must be at most 7 d".to_owned());
    }
    Ok(deadline)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_lasts_a_week_at_most() {
        assert_eq!(parse_deadline("7 d"), Ok(Duration::from_secs(604_800)));
        assert_eq!(parse_deadline("604801 s"), Err("it must be at most 7 d".to_owned()));
    }

    #[test]
    fn reads_units_and_refuses_slips() {
        for (text, seconds) in [("30 s", 30), ("10min", 600), (" 24 h ", 86_400), ("7d", 604_800)] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in [
            "",
            "10",
            "h",
            "1.5 h",
            "-1 s",
            "0 s",
            "10 weeks",
            "99999999999999999999 s",
            "18446744073709551615 d",
            "40000 d",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
