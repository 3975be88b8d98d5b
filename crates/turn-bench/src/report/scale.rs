//! From values to places on the paper: linear and logarithmic axes with round marks.

/// How values are spread over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spread {
    /// Equal steps are equally far apart; starts at 0.
    Linear,
    /// Equal ratios are equally far apart: for latencies, which span decades.
    Logarithmic,
}

/// An axis: the values it shows, and where on the paper.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    spread: Spread,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

/// Marks on a linear axis, about as many.
const MARKS: f64 = 5.0;

impl Scale {
    /// An axis from the place `from` to `to` that shows all of `values`.
    pub(super) fn over(
        spread: Spread,
        values: impl Iterator<Item = f64>,
        (from, to): (f64, f64),
    ) -> Self {
        let shown =
            values.filter(|value| value.is_finite() && (spread == Spread::Linear || *value > 0.0));
        let (mut low, mut high) = shown
            .fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        if low > high {
            (low, high) = (1.0, 1.0);
        }
        match spread {
            Spread::Linear => {
                low = low.min(0.0);
                high = if high > low {
                    (high / step(low, high)).ceil() * step(low, high)
                } else {
                    low + 1.0
                };
            }
            Spread::Logarithmic => {
                low = 10f64.powf(low.log10().floor());
                high = 10f64.powf(high.log10().ceil()).max(low * 10.0);
            }
        }
        Self { spread, low, high, from, to }
    }

    /// Where a value is on the paper; values beyond the ends are put there.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = match self.spread {
            Spread::Linear => (value - self.low) / (self.high - self.low),
            Spread::Logarithmic => {
                (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
            }
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Values to mark, the ends among them.
    pub(super) fn marks(&self) -> Vec<f64> {
        match self.spread {
            Spread::Linear => {
                let step = step(self.low, self.high);
                let first = (self.low / step).ceil() as i64;
                let last = (self.high / step + 1e-9).floor() as i64;
                (first..=last).map(|mark| mark as f64 * step).collect()
            }
            Spread::Logarithmic => {
                let (first, last) =
                    (self.low.log10().round() as i32, self.high.log10().round() as i32);
                (first..=last).map(|power| 10f64.powi(power)).collect()
            }
        }
    }
}

/// 1, 2 or 5 times a power of ten, so that about [`MARKS`] of them make the axis.
fn step(low: f64, high: f64) -> f64 {
    let raw = (high - low) / MARKS;
    let power = 10f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= raw * 0.999);
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_starts_at_zero_and_ends_at_a_round_mark() {
        let scale = Scale::over(Spread::Linear, [130.0, 870.0].into_iter(), (0.0, 100.0));
        assert_eq!(scale.marks(), [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]);
        assert_eq!([0.0, 500.0, 1000.0].map(|value| scale.place(value)), [0.0, 50.0, 100.0]);
    }

    #[test]
    fn a_logarithmic_axis_spans_whole_decades() {
        let scale = Scale::over(Spread::Logarithmic, [12.0, 4300.0].into_iter(), (0.0, 300.0));
        assert_eq!(scale.marks(), [10.0, 100.0, 1000.0, 10_000.0]);
        assert!((scale.place(100.0) - 100.0).abs() < 1e-9);
    }

    #[test]
    fn values_without_a_place_spoil_nothing() {
        for values in [vec![], vec![0.0], vec![f64::NAN, f64::INFINITY], vec![0.0, 0.0]] {
            for spread in [Spread::Linear, Spread::Logarithmic] {
                let scale = Scale::over(spread, values.iter().copied(), (0.0, 100.0));
                assert!(scale.marks().len() >= 2, "{values:?} {spread:?}");
                assert!((0.0..=100.0).contains(&scale.place(5.0)), "{values:?} {spread:?}");
            }
        }
    }
}
