//! Statistics of a few rounds: medians, spreads, ratios within rounds, and significance.
//!
//! Machines drift: by temperature, by neighbours of a virtual machine, by disk activity. Conditions
//! shared by two servers within a round cancel out in their ratio, so ratios are formed round by
//! round and their median is taken, not the ratio of two medians. Significance is that of a sign test: it
//! assumes no distribution of the noise, and one outlier cannot make a difference nor hide one that all
//! other rounds show.

use serde::{Deserialize, Serialize};

/// Significance level: p-values above it are not significant.
pub(super) const CHANCE_MAX: f64 = 0.05;

/// One quantity of every server in every round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Name of the quantity.
    pub name: String,
    /// Unit: `packets/s`, `per second`, `ns`, `bytes`, `%`.
    pub unit: String,
    /// The better direction.
    pub better: Better,
    /// For each server, for each round: `None` where it could not be measured.
    pub values: Vec<Vec<Option<f64>>>,
    /// For each server: median and spread; `None` without values.
    pub spreads: Vec<Option<Spread>>,
    /// For each server but the first: ratio to the first; `None` where no round has both.
    pub ratios: Vec<Option<Ratio>>,
}

/// The better direction of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Higher values.
    Higher,
    /// Lower values.
    Lower,
    /// None: context for the others.
    Neither,
}

/// Median and spread of some values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
    /// Median absolute deviation from the median.
    pub mad: f64,
}

/// Values of a server divided by those of the first in the same round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Median.
    pub median: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
    /// Rounds with both values.
    pub rounds: u32,
    /// p-value of the two-sided sign test alone, 0 to 1.
    pub chance: f64,
    /// The same among all tests of its table; `None` for rows without a better direction, which are not tested.
    #[serde(default)]
    pub corrected: Option<f64>,
    /// Conclusion.
    pub verdict: Verdict,
}

/// Conclusion about a server against the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Significantly higher.
    Higher,
    /// Significantly lower.
    Lower,
    /// Not significant.
    Noise,
    /// Never significant with so few rounds.
    TooFewRounds,
}

/// The median, the mean of the two middle values of an even number; `None` without values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

/// Median and spread; `None` without values.
#[must_use]
pub fn spread(values: &[f64]) -> Option<Spread> {
    let median_of_all = median(values)?;
    let distances: Vec<_> = values.iter().map(|value| (value - median_of_all).abs()).collect();
    Some(Spread {
        median: median_of_all,
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        mad: median(&distances)?,
    })
}

/// p-value of the two-sided sign test with `higher` and `lower` rounds. Ties are left out.
pub(super) fn sign_test(higher: u32, lower: u32) -> f64 {
    let rounds = higher + lower;
    let fewer = higher.min(lower);
    // The sum of binomial coefficients, each from the one before.
    let (mut ways, mut sum) = (1.0, 0.0);
    for k in 0..=fewer {
        sum += ways;
        ways *= f64::from(rounds - k) / f64::from(k + 1);
    }
    (2.0 * sum / 2.0_f64.powi(rounds.cast_signed())).min(1.0)
}

/// Ratio of a server's values to the first one's, round by round; `None` where no round has both.
fn ratio(first: &[Option<f64>], other: &[Option<f64>]) -> Option<Ratio> {
    let pairs = first.iter().zip(other).filter_map(|(first, other)| Some(((*first)?, (*other)?)));
    // Zero has no ratio.
    let ratios: Vec<_> =
        pairs.filter(|(first, _)| *first > 0.0).map(|(first, other)| other / first).collect();
    let spread = spread(&ratios)?;
    let count = |wanted: fn(f64) -> bool| {
        u32::try_from(ratios.iter().filter(|ratio| wanted(**ratio)).count()).unwrap_or(u32::MAX)
    };
    let (higher, lower) = (count(|ratio| ratio > 1.0), count(|ratio| ratio < 1.0));
    let rounds = count(|_| true);
    let chance = sign_test(higher, lower);
    let verdict = if sign_test(rounds, 0) > CHANCE_MAX {
        Verdict::TooFewRounds
    } else if chance > CHANCE_MAX {
        Verdict::Noise
    } else if higher > lower {
        Verdict::Higher
    } else {
        Verdict::Lower
    };
    let Spread { median, min, max, mad: _ } = spread;
    Some(Ratio { median, min, max, rounds, chance, corrected: None, verdict })
}

/// A quantity with its statistics.
#[must_use]
pub fn measure(name: &str, unit: &str, better: Better, values: Vec<Vec<Option<f64>>>) -> Measure {
    let known = |values: &Vec<Option<f64>>| values.iter().flatten().copied().collect::<Vec<_>>();
    let spreads = values.iter().map(|values| spread(&known(values))).collect();
    let ratios = match values.split_first() {
        Some((first, others)) => others.iter().map(|other| ratio(first, other)).collect(),
        None => Vec::new(),
    };
    Measure { name: name.to_owned(), unit: unit.to_owned(), better, values, spreads, ratios }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(values: &[f64]) -> Vec<Option<f64>> {
        values.iter().copied().map(Some).collect()
    }

    #[test]
    fn the_median_is_the_middle_value() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), Some(3.0));
    }

    #[test]
    fn the_spread_is_extremes_and_median_absolute_deviation() {
        let spread = spread(&[1.0, 2.0, 3.0, 4.0, 100.0]).unwrap();
        assert_eq!(spread, Spread { median: 3.0, min: 1.0, max: 100.0, mad: 1.0 });
    }

    #[test]
    fn the_sign_test_is_that_of_the_tables() {
        let cases = [
            ((6, 0), 0.03125),
            ((0, 6), 0.03125),
            ((5, 0), 0.0625),
            ((5, 1), 0.21875),
            ((9, 1), 0.021_484_375),
            ((3, 3), 1.0),
            ((0, 0), 1.0),
        ];
        for ((higher, lower), chance) in cases {
            let given = sign_test(higher, lower);
            assert!((given - chance).abs() < 1e-12, "{higher} {lower}: {given}");
        }
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        // The machine halves its pace after each round: medians would be all over the place.
        let first = some(&[800.0, 400.0, 200.0, 100.0, 50.0, 25.0]);
        let other = some(&[960.0, 480.0, 240.0, 120.0, 60.0, 30.0]);
        let ratio = ratio(&first, &other).unwrap();
        for value in [ratio.median, ratio.min, ratio.max] {
            assert!((value - 1.2).abs() < 1e-9, "{ratio:?}");
        }
        assert_eq!((ratio.rounds, ratio.verdict), (6, Verdict::Higher));
        assert_eq!(super::ratio(&other, &first).unwrap().verdict, Verdict::Lower);
    }

    #[test]
    fn rounds_that_miss_a_value_have_no_ratio() {
        let first = [Some(1.0), None, Some(2.0), Some(0.0)];
        let other = [Some(2.0), Some(1.0), None, Some(1.0)];
        let ratio = ratio(&first, &other).unwrap();
        assert_eq!((ratio.median, ratio.rounds), (2.0, 1));
        assert_eq!(super::ratio(&[None], &[Some(1.0)]), None);
    }

    #[test]
    fn differences_of_both_signs_and_few_rounds_are_not_significant() {
        let first = some(&[1.0; 6]);
        let verdict = |other: &[f64]| ratio(&first, &some(other)).unwrap().verdict;
        assert_eq!(verdict(&[1.1, 0.9, 1.1, 1.2, 1.1, 1.1]), Verdict::Noise);
        assert_eq!(verdict(&[1.0; 6]), Verdict::Noise);
        assert_eq!(verdict(&[9.0; 5]), Verdict::TooFewRounds);
        // Equal to the last digit but for one round: one sign is no evidence.
        assert_eq!(verdict(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.1]), Verdict::Noise);
    }

    #[test]
    fn a_measure_covers_every_server() {
        let values = vec![some(&[1.0, 2.0]), some(&[2.0, 4.0]), vec![None, None]];
        let measure = measure("m", "u", Better::Higher, values);
        let medians: Vec<_> =
            measure.spreads.iter().map(|spread| spread.map(|spread| spread.median)).collect();
        assert_eq!(medians, [Some(1.5), Some(3.0), None]);
        assert_eq!(measure.ratios.len(), 2);
        assert_eq!(measure.ratios[0].unwrap().median, 2.0);
        assert_eq!(measure.ratios[1], None);
    }
}
