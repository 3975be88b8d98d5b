//! Durations on the command line, written as in the configuration: `30 s`, `10min`, `24 h`, `7 d`.

use std::time::Duration;

use turn_types::quantity::parse_duration;

/// Maximum duration. The expiry of a credential could not be represented beyond this duration.
const MAX: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Parses a duration of at least a second.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        time if time < Duration::from_secs(1) => Err("it must be at least 1 s".to_owned()),
        time if time > MAX => Err("it must be at most 100 years".to_owned()),
        time if time.subsec_nanos() != 0 => Err("it must be whole seconds".to_owned()),
        time => Ok(time),
    }
}

/// Parses the deadline of a drain.
pub(crate) fn parse_deadline(text: &str) -> Result<Duration, String> {
    let deadline = parse(text)?;
    if deadline > admin::limits::DRAIN_MAX {
        return Err("it must be at most 7 d".to_owned());
    }
    Ok(deadline)
}

/// Parses the duration of a trace.
pub(crate) fn parse_trace(text: &str) -> Result<Duration, String> {
    let time = parse(text)?;
    if time > control::limits::TRACE_MAX {
        return Err("it must be at most 1 d".to_owned());
    }
    Ok(time)
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
            "1500 ms",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
