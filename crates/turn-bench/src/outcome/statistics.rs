//! Statistics of a few rounds: medians, spreads, ratios within rounds, and significance.
//!
//! Machines drift: by temperature, by neighbours of a virtual machine, by disk activity. Conditions
//! shared by two servers within a round cancel out in their ratio, so ratios are formed round by
//! round and their median is taken, not the ratio of two medians. Significance is that of a paired
//! t-test of their logarithms: noise multiplies, so it is their logarithms that spread evenly. An
//! outlier makes the spread larger, and so hides a difference rather than making one.

use serde::{Deserialize, Serialize};

/// Significance level: p-values above it are not significant.
pub(crate) const CHANCE_MAX: f64 = 0.05;

/// Rounds without which no difference is significant: of fewer values nobody sees how they spread.
pub(super) const ROUNDS_MIN: u32 = 6;

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
    /// The same among all tests of its table; `None` for rows without a better direction, which are
    /// not tested.
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

/// p-value of the hypothesis that these ratios are of 1 but for noise; 1 for a single one.
///
/// Zero has no logarithm, so where there is one (a loss of nothing beside a loss) only the signs
/// are counted.
fn chance(ratios: &[f64]) -> f64 {
    if ratios.iter().all(|ratio| *ratio > 0.0) {
        let logarithms: Vec<_> = ratios.iter().map(|ratio| ratio.ln()).collect();
        return t_test(&logarithms);
    }
    let count = |wanted: fn(f64) -> bool| {
        u32::try_from(ratios.iter().filter(|ratio| wanted(**ratio)).count()).unwrap_or(u32::MAX)
    };
    sign_test(count(|ratio| ratio > 1.0), count(|ratio| ratio < 1.0))
}

/// p-value of the two-sided t-test that the mean of these values is zero; 1 for a single one.
fn t_test(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    match u32::try_from(values.len()).unwrap_or(u32::MAX).checked_sub(1) {
        None | Some(0) => 1.0,
        Some(_) if mean == 0.0 => 1.0,
        // Without any spread the division gives infinity, whose p-value is 0.
        Some(freedom) => {
            two_sided(mean.abs() / (squares / f64::from(freedom) / count).sqrt(), freedom)
        }
    }
}

/// Probability that Student's t with these degrees of freedom is beyond ±`t`: the finite series for
/// whole degrees (Abramowitz and Stegun, 26.7.3 and 26.7.4).
fn two_sided(t: f64, freedom: u32) -> f64 {
    let angle = (t / f64::from(freedom).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let is_odd = freedom % 2 == 1;
    // The series goes on by cos² and by a ratio of neighbouring whole numbers.
    let mut term = if is_odd { cosine } else { 1.0 };
    let mut sum = 0.0;
    for step in 1..=freedom / 2 {
        sum += term;
        let (even, odd) =
            (f64::from(2 * step), f64::from(if is_odd { 2 * step + 1 } else { 2 * step - 1 }));
        term *= cosine * cosine * if is_odd { even / odd } else { odd / even };
    }
    let within =
        if is_odd { (angle + sine * sum) * std::f64::consts::FRAC_2_PI } else { sine * sum };
    (1.0 - within).clamp(0.0, 1.0)
}

/// p-value of the two-sided sign test with `higher` and `lower` rounds. Ties are left out.
fn sign_test(higher: u32, lower: u32) -> f64 {
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
pub(crate) fn ratio(first: &[Option<f64>], other: &[Option<f64>]) -> Option<Ratio> {
    let pairs = first.iter().zip(other).filter_map(|(first, other)| Some(((*first)?, (*other)?)));
    // Zero has no ratio.
    let ratios: Vec<_> =
        pairs.filter(|(first, _)| *first > 0.0).map(|(first, other)| other / first).collect();
    let spread = spread(&ratios)?;
    let rounds = u32::try_from(ratios.len()).unwrap_or(u32::MAX);
    let chance = chance(&ratios);
    let verdict = if rounds < ROUNDS_MIN {
        Verdict::TooFewRounds
    } else if chance > CHANCE_MAX {
        Verdict::Noise
    } else if spread.median > 1.0 {
        Verdict::Higher
    } else {
        Verdict::Lower
    };
    let Spread { median, min, max, mad: _ } = spread;
    Some(Ratio { median, min, max, rounds, chance, corrected: None, verdict })
}

/// Ratios of all servers but the first to the first.
pub(super) fn ratios(values: &[Vec<Option<f64>>]) -> Vec<Option<Ratio>> {
    values.split_first().map_or_else(Vec::new, |(first, others)| {
        others.iter().map(|other| ratio(first, other)).collect()
    })
}

/// A quantity with its statistics.
#[must_use]
pub fn measure(name: &str, unit: &str, better: Better, values: Vec<Vec<Option<f64>>>) -> Measure {
    let known = |values: &Vec<Option<f64>>| values.iter().flatten().copied().collect::<Vec<_>>();
    let spreads = values.iter().map(|values| spread(&known(values))).collect();
    let ratios = ratios(&values);
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
    fn the_t_test_is_that_of_the_tables() {
        // Critical values of printed tables, for p of 5 % and 1 %.
        for (t, freedom, p) in [
            (12.706, 1, 0.05),
            (4.303, 2, 0.05),
            (3.182, 3, 0.05),
            (2.776, 4, 0.05),
            (2.571, 5, 0.05),
            (4.032, 5, 0.01),
            (2.228, 10, 0.05),
            (2.845, 20, 0.01),
        ] {
            let given = two_sided(t, freedom);
            assert!((given - p).abs() < 1e-4, "{t} {freedom}: {given}");
        }
        // By hand: mean 2, standard error 1/√3.
        let given = t_test(&[1.0, 2.0, 3.0]);
        assert!((given - two_sided(2.0 * 3.0_f64.sqrt(), 2)).abs() < 1e-12, "{given}");
        assert_eq!([t_test(&[1.0]), t_test(&[0.0; 6]), t_test(&[1.0; 6])], [1.0, 1.0, 0.0]);
    }

    #[test]
    fn a_loss_beside_none_is_told_by_its_sign() {
        let nothing = ratio(&some(&[1.0; 6]), &some(&[0.0; 6])).unwrap();
        assert_eq!((nothing.chance, nothing.verdict), (0.03125, Verdict::Lower));
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
        // Equal to the last digit but for one round, which is no evidence.
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
