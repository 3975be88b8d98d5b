//! Durations, amounts of memory, and plain numbers, with their bounds.

use serde_json::{Map, Value, json};
use turn_types::quantity::{parse_bytes, parse_duration, show_bytes, show_duration};

use super::{Written, written};

/// A duration of at least `MIN` and at most `MAX` seconds, written as `"10 min"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duration<const MIN: u64, const MAX: u64>(std::time::Duration);

impl<const MIN: u64, const MAX: u64> Duration<MIN, MAX> {
    const MIN: std::time::Duration = std::time::Duration::from_secs(MIN);
    const MAX: std::time::Duration = std::time::Duration::from_secs(MAX);

    /// The duration of so many seconds; for defaults, which must lie within the bounds.
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

    fn bounds() -> String {
        format!("{} to {}", show_duration(Self::MIN), show_duration(Self::MAX))
    }
}

impl<const MIN: u64, const MAX: u64> Written for Duration<MIN, MAX> {
    const KIND: &'static str = "duration";

    fn forms() -> String {
        format!(
            "write a number and a unit (ms, s, min, h, d) such as \"90 s\" or \"10 min\", from {}",
            Self::bounds()
        )
    }

    fn parse(text: &str) -> Result<Self, String> {
        let duration = parse_duration(text)?;
        if duration < Self::MIN {
            let least = show_duration(Self::MIN);
            return Err(format!("\"{text}\" is too short: the least is {least}"));
        }
        if duration > Self::MAX {
            let most = show_duration(Self::MAX);
            return Err(format!("\"{text}\" is too long: the most is {most}"));
        }
        Ok(Self(duration))
    }

    fn parse_number(number: i64) -> Result<Self, String> {
        Err(format!("{number} has no unit"))
    }

    fn written(&self) -> Value {
        json!(show_duration(self.0))
    }

    fn describe(schema: &mut Map<String, Value>) {
        schema.insert("pattern".to_owned(), json!("^\\s*[0-9]+\\s*(ms|s|min|h|d)\\s*$"));
        schema.insert("x-bounds".to_owned(), json!(Self::bounds()));
    }
}
written!([const MIN: u64, const MAX: u64] Duration<MIN, MAX>);

/// An amount of memory or data of at least `MIN` and at most `MAX` bytes, written as `"64 MiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Bytes<MIN, MAX> {
    /// So many bytes; for defaults, which must lie within the bounds.
    #[must_use]
    pub(crate) const fn new(bytes: u64) -> Self {
        assert!(MIN <= bytes && bytes <= MAX, "the default is out of its own bounds");
        Self(bytes)
    }

    /// The nearest number within the bounds, as [`Count::nearest`].
    pub(crate) fn nearest(bytes: u64) -> Self {
        Self(bytes.clamp(MIN, MAX))
    }

    /// The number of bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    fn bounds() -> String {
        format!("{} to {}", show_bytes(MIN), show_bytes(MAX))
    }
}

impl<const MIN: u64, const MAX: u64> Written for Bytes<MIN, MAX> {
    const KIND: &'static str = "size";

    fn forms() -> String {
        let bounds = Self::bounds();
        format!("write a number and a unit (B, KiB, MiB, GiB) such as \"64 MiB\", from {bounds}")
    }

    fn parse(text: &str) -> Result<Self, String> {
        let bytes = parse_bytes(text)?;
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

    fn written(&self) -> Value {
        json!(show_bytes(self.0))
    }

    fn describe(schema: &mut Map<String, Value>) {
        schema.insert("pattern".to_owned(), json!("^\\s*[0-9]+\\s*(B|KiB|MiB|GiB)\\s*$"));
        schema.insert("x-bounds".to_owned(), json!(Self::bounds()));
    }
}
written!([const MIN: u64, const MAX: u64] Bytes<MIN, MAX>);

/// A whole number from `MIN` to `MAX`, written without quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count<const MIN: u32, const MAX: u32>(u32);

impl<const MIN: u32, const MAX: u32> Count<MIN, MAX> {
    /// The number itself; for defaults, which must lie within the bounds.
    #[must_use]
    pub(crate) const fn new(number: u32) -> Self {
        assert!(MIN <= number && number <= MAX, "the default is out of its own bounds");
        Self(number)
    }

    /// The nearest number within the bounds, for values that no operator reads errors about.
    pub(crate) fn nearest(number: u32) -> Self {
        Self(number.clamp(MIN, MAX))
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl<const MIN: u32, const MAX: u32> Written for Count<MIN, MAX> {
    const KIND: &'static str = "number";

    fn forms() -> String {
        format!("write a whole number from {MIN} to {MAX}, without quotes")
    }

    fn parse(text: &str) -> Result<Self, String> {
        Err(format!("\"{text}\" is not a whole number"))
    }

    fn parse_number(number: i64) -> Result<Self, String> {
        let count = u32::try_from(number).ok().filter(|count| (MIN..=MAX).contains(count));
        count.map(Self).ok_or_else(|| format!("{number} is out of range"))
    }

    fn written(&self) -> Value {
        json!(self.0)
    }

    fn describe(schema: &mut Map<String, Value>) {
        schema.insert("type".to_owned(), json!("integer"));
        schema.insert("minimum".to_owned(), json!(MIN));
        schema.insert("maximum".to_owned(), json!(MAX));
        schema.insert("x-bounds".to_owned(), json!(format!("{MIN} to {MAX}")));
    }
}
written!([const MIN: u32, const MAX: u32] Count<MIN, MAX>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_part_of_the_type() {
        for (text, error) in [
            ("1 s", "\"1 s\" is too short: the least is 1 min"),
            ("999 ms", "\"999 ms\" is too short: the least is 1 min"),
            ("3601 s", "\"3601 s\" is too long: the most is 1 h"),
        ] {
            assert_eq!(Duration::<60, 3600>::parse(text), Err(error.to_owned()));
        }
        let error = "\"1 GiB\" is too large: the most is 1 MiB".to_owned();
        assert_eq!(Bytes::<0, { 1 << 20 }>::parse("1 GiB"), Err(error));
    }
}
