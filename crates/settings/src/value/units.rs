//! Quantities with a unit: durations, amounts of memory; and plain counts.

use serde_json::{Map, Value, json};

use super::{Written, advice, written};

const DURATION_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];

const BYTES_UNITS: [(&str, u64); 4] =
    [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A duration of at least `MIN` and at most `MAX` seconds, written as `"10 min"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duration<const MIN: u64, const MAX: u64>(std::time::Duration);

impl<const MIN: u64, const MAX: u64> Duration<MIN, MAX> {
    /// That many seconds; for defaults, which must lie within the bounds.
    #[must_use]
    pub(crate) const fn seconds(seconds: u64) -> Self {
        assert!(MIN <= seconds && seconds <= MAX, "the default is out of its own bounds");
        Self(std::time::Duration::from_secs(seconds))
    }

    /// The duration.
    #[must_use]
    pub const fn get(self) -> std::time::Duration {
        self.0
    }
}

/// A duration in the largest unit that divides it.
pub(crate) fn show_duration(duration: std::time::Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 { "0 s".to_owned() } else { show(millis, &DURATION_UNITS) }
}

/// An amount of memory in the largest unit that divides it.
pub(crate) fn show_bytes(bytes: u64) -> String {
    if bytes == 0 { "0 B".to_owned() } else { show(bytes, &BYTES_UNITS) }
}

fn show(amount: u64, units: &[(&str, u64)]) -> String {
    units
        .iter()
        .find(|(_, size)| amount.is_multiple_of(*size))
        .map_or_else(|| amount.to_string(), |(name, size)| format!("{} {name}", amount / size))
}

/// Reads `<whole number> [blank] <unit>`.
fn parse(text: &str, units: &[(&str, u64)]) -> Result<u64, String> {
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

impl<const MIN: u64, const MAX: u64> Written for Duration<MIN, MAX> {
    const KIND: &'static str = "duration";

    fn forms() -> String {
        let seconds = |seconds| show_duration(std::time::Duration::from_secs(seconds));
        format!(
            "write a number and a unit (ms, s, min, h, d) such as \"90 s\" or \"10 min\", from {} to {}",
            seconds(MIN),
            seconds(MAX)
        )
    }

    fn parse(text: &str) -> Result<Self, String> {
        let duration = std::time::Duration::from_millis(parse(text, &DURATION_UNITS)?);
        let bound = |seconds| show_duration(std::time::Duration::from_secs(seconds));
        if duration < std::time::Duration::from_secs(MIN) {
            return Err(format!("\"{text}\" is too short: the least is {}", bound(MIN)));
        }
        if duration > std::time::Duration::from_secs(MAX) {
            return Err(format!("\"{text}\" is too long: the most is {}", bound(MAX)));
        }
        Ok(Self(duration))
    }

    fn parse_number(number: i64) -> Result<Self, String> {
        Err(format!("{number} has no unit"))
    }

    fn show(&self) -> String {
        show_duration(self.0)
    }

    fn describe(schema: &mut Map<String, Value>) {
        let bound = |seconds| show_duration(std::time::Duration::from_secs(seconds));
        schema.insert("pattern".to_owned(), json!("^\\s*[0-9]+\\s*(ms|s|min|h|d)\\s*$"));
        schema.insert("x-bounds".to_owned(), json!(format!("{} to {}", bound(MIN), bound(MAX))));
    }
}
written!([const MIN: u64, const MAX: u64] Duration<MIN, MAX>);

/// An amount of memory or data of at least `MIN` and at most `MAX` bytes, written as `"64 MiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Bytes<MIN, MAX> {
    /// That many bytes; for defaults, which must lie within the bounds.
    #[must_use]
    pub(crate) const fn new(bytes: u64) -> Self {
        assert!(MIN <= bytes && bytes <= MAX, "the default is out of its own bounds");
        Self(bytes)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl<const MIN: u64, const MAX: u64> Written for Bytes<MIN, MAX> {
    const KIND: &'static str = "size";

    fn forms() -> String {
        format!(
            "write a number and a unit (B, KiB, MiB, GiB) such as \"64 MiB\", from {} to {}",
            show_bytes(MIN),
            show_bytes(MAX)
        )
    }

    fn parse(text: &str) -> Result<Self, String> {
        let bytes = parse(text, &BYTES_UNITS)?;
        if bytes < MIN {
            return Err(format!("\"{text}\" is too small: the least is {}", show_bytes(MIN)));
        }
        if bytes > MAX {
            return Err(format!("\"{text}\" is too large: the most is {}", show_bytes(MAX)));
        }
        Ok(Self(bytes))
    }

    fn parse_number(number: i64) -> Result<Self, String> {
        Err(format!("{number} has no unit"))
    }

    fn show(&self) -> String {
        show_bytes(self.0)
    }

    fn describe(schema: &mut Map<String, Value>) {
        schema.insert("pattern".to_owned(), json!("^\\s*[0-9]+\\s*(B|KiB|MiB|GiB)\\s*$"));
        schema.insert(
            "x-bounds".to_owned(),
            json!(format!("{} to {}", show_bytes(MIN), show_bytes(MAX))),
        );
    }
}
written!([const MIN: u64, const MAX: u64] Bytes<MIN, MAX>);

/// A whole number from `MIN` to `MAX`, written without quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count<const MIN: u32, const MAX: u32>(u32);

impl<const MIN: u32, const MAX: u32> Count<MIN, MAX> {
    /// That number; for defaults, which must lie within the bounds.
    #[must_use]
    pub(crate) const fn new(number: u32) -> Self {
        assert!(MIN <= number && number <= MAX, "the default is out of its own bounds");
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    fn forms() -> String {
        format!("write a whole number from {MIN} to {MAX}, without quotes")
    }
}

impl<const MIN: u32, const MAX: u32> serde::Serialize for Count<MIN, MAX> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u32(self.0)
    }
}

impl<'de, const MIN: u32, const MAX: u32> serde::Deserialize<'de> for Count<MIN, MAX> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor<const MIN: u32, const MAX: u32>;
        impl<const MIN: u32, const MAX: u32> serde::de::Visitor<'_> for Visitor<MIN, MAX> {
            type Value = Count<MIN, MAX>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("number")
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Self::Value, E> {
                match u32::try_from(number) {
                    Ok(count) if (MIN..=MAX).contains(&count) => Ok(Count(count)),
                    Ok(_) | Err(_) => Err(E::custom(advice(
                        format!("{number} is out of range"),
                        Count::<MIN, MAX>::forms(),
                    ))),
                }
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Err(E::custom(advice(
                    format!("\"{text}\" is not a whole number"),
                    Count::<MIN, MAX>::forms(),
                )))
            }
        }
        from.deserialize_any(Visitor::<MIN, MAX>)
    }
}

impl<const MIN: u32, const MAX: u32> schemars::JsonSchema for Count<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "number".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "integer",
            "minimum": MIN,
            "maximum": MAX,
            "x-kind": "number",
            "x-forms": Self::forms(),
            "x-bounds": format!("{MIN} to {MAX}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_shown() {
        type Any = Duration<0, 864_000>;
        for (text, millis, shown) in [
            ("10 min", 600_000, "10 min"),
            ("90 s", 90_000, "90 s"),
            ("90s", 90_000, "90 s"),
            (" 3600 s ", 3_600_000, "1 h"),
            ("2 d", 172_800_000, "2 d"),
            ("1500 ms", 1_500, "1500 ms"),
            ("0 min", 0, "0 s"),
        ] {
            let read = Any::parse(text).unwrap();
            assert_eq!(read.get().as_millis(), millis, "{text}");
            assert_eq!(read.show(), shown);
            assert_eq!(Any::parse(shown), Ok(read), "what is shown reads back");
        }
    }

    #[test]
    fn sizes_are_read_and_shown() {
        type Any = Bytes<0, { u64::MAX }>;
        for (text, bytes, shown) in [
            ("64 MiB", 64 << 20, "64 MiB"),
            ("1024KiB", 1 << 20, "1 MiB"),
            ("1500 B", 1500, "1500 B"),
            ("0 GiB", 0, "0 B"),
        ] {
            let read = Any::parse(text).unwrap();
            assert_eq!(read.get(), bytes, "{text}");
            assert_eq!(read.show(), shown);
        }
        assert!(Any::parse("18446744073709551615 GiB").unwrap_err().contains("too large"));
    }

    #[test]
    fn slips_are_named() {
        for (text, what) in [
            ("", "\"\" does not begin with a whole number"),
            ("-5 s", "\"-5 s\" does not begin with a whole number"),
            ("600", "\"600\" has no unit (ms, s, min, h, d)"),
            (
                "10 minutes",
                "\"10 minutes\" has an unknown unit \"minutes\"; there are ms, s, min, h, d",
            ),
            ("1.5 h", "\"1.5 h\" has an unknown unit \".5 h\"; there are ms, s, min, h, d"),
            ("1 s", "\"1 s\" is too short: the least is 1 min"),
            ("999 ms", "\"999 ms\" is too short: the least is 1 min"),
            ("3601 s", "\"3601 s\" is too long: the most is 1 h"),
        ] {
            assert_eq!(Duration::<60, 3600>::parse(text), Err(what.to_owned()));
        }
    }
}
