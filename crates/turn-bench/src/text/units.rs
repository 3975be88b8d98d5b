//! Numbers with three significant digits and a unit.

/// A count or rate: `950`, `18.4 k`, `1.25 M`.
pub(super) fn scaled(number: f64) -> String {
    match number {
        number if number >= 999_500.0 => format!("{} M", digits(number / 1e6)),
        number if number >= 999.5 => format!("{} k", digits(number / 1e3)),
        number => digits(number),
    }
}

/// A time in nanoseconds: `4540 ns`, `18.2 µs`, `2.50 ms`.
pub(super) fn nanos(number: f64) -> String {
    match number {
        number if number >= 999_500.0 => format!("{} ms", digits(number / 1e6)),
        number if number >= 9_995.0 => format!("{} µs", digits(number / 1e3)),
        number => format!("{number:.0} ns"),
    }
}

/// Bytes: `1273 B`, `620 KiB`, `24.5 MiB`.
pub(super) fn bytes(number: f64) -> String {
    match number {
        number if number >= 1_048_576.0 => format!("{} MiB", digits(number / 1_048_576.0)),
        number if number >= 102_400.0 => format!("{} KiB", digits(number / 1024.0)),
        number => format!("{number:.0} B"),
    }
}

fn digits(number: f64) -> String {
    let decimals = match number {
        number if number >= 99.95 => 0,
        number if number >= 9.995 => 1,
        _ => 2,
    };
    format!("{number:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        let cases = [(0.0, "0.00"), (7.0, "7.00"), (999.4, "999"), (1000.0, "1.00 k")];
        for (number, text) in cases {
            assert_eq!(scaled(number), text);
        }
        let sizes = [1273.0, 634_880.0, 24_469_504.0].map(bytes);
        assert_eq!(sizes, ["1273 B", "620 KiB", "23.3 MiB"]);
        assert_eq!((scaled(214_700.0), scaled(1_522_000.0)), ("215 k".into(), "1.52 M".into()));
        let times = [4540.4, 18_230.0, 2_500_000.0].map(nanos);
        assert_eq!(times, ["4540 ns", "18.2 µs", "2.50 ms"]);
    }
}
