//! Numbers as people read them.

/// A count per second: `950`, `18.4 k`, `1.25 M`.
pub(super) fn rate(value: f64) -> String {
    match value.abs() {
        0.0..1e3 => round(value),
        1e3..1e6 => format!("{} k", round(value / 1e3)),
        _ => format!("{} M", round(value / 1e6)),
    }
}

/// A time given in nanoseconds: `380 ns`, `4.55 µs`, `1.2 ms`, `2 s`.
pub(super) fn nanoseconds(value: f64) -> String {
    match value.abs() {
        0.0..1e3 => format!("{} ns", round(value)),
        1e3..1e6 => format!("{} µs", round(value / 1e3)),
        1e6..1e9 => format!("{} ms", round(value / 1e6)),
        _ => format!("{} s", round(value / 1e9)),
    }
}

/// A part of 1 as percent: `0.08 %`.
pub(super) fn percent(value: f64) -> String {
    format!("{} %", round(value * 100.0))
}

/// A ratio: `3.4×`.
pub(super) fn ratio(value: f64) -> String {
    format!("{}×", round(value))
}

/// Bytes: `850 B`, `1.9 KiB`, `20.7 KiB`, `3 MiB`.
pub(super) fn bytes(value: f64) -> String {
    match value.abs() {
        0.0..1024.0 => format!("{} B", round(value)),
        1024.0..1_048_576.0 => format!("{} KiB", round(value / 1024.0)),
        _ => format!("{} MiB", round(value / 1_048_576.0)),
    }
}

/// How figures of a unit are written. One that is not known here stands behind its figure elsewhere.
pub(super) fn writer(unit: &str) -> fn(f64) -> String {
    match unit.split('/').next().unwrap_or(unit) {
        "ns" => nanoseconds,
        "bytes" => bytes,
        "packets" | "requests" | "allocations" => rate,
        _ => round,
    }
}

/// Three digits that count, no zeros behind.
pub(super) fn round(value: f64) -> String {
    let digits = match value.abs() {
        0.0..0.995 => 3,
        0.995..9.995 => 2,
        9.995..99.95 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    match text.split_once('.') {
        Some(_) => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        assert_eq!([950.0, 18_420.0, 1_250_000.0].map(rate), ["950", "18.4 k", "1.25 M"]);
        assert_eq!(
            [380.0, 4550.0, 1.2e6, 2e9].map(nanoseconds),
            ["380 ns", "4.55 µs", "1.2 ms", "2 s"]
        );
        assert_eq!([0.0008, 0.5, 1.0].map(percent), ["0.08 %", "50 %", "100 %"]);
        assert_eq!([850.0, 1946.0, 21_200.0].map(bytes), ["850 B", "1.9 KiB", "20.7 KiB"]);
        assert_eq!(ratio(3.4), "3.4×");
    }
}
