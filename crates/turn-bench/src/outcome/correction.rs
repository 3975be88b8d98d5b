//! Correction for many comparisons (Holm 1979): of dozens of tests at a level of 5 % a few are
//! significant by chance, so the p-values of a table are made larger, the smallest one by their
//! number.

use super::Compare;
use super::statistics::{self, Better, CHANCE_MAX, Ratio, Verdict};

impl Compare {
    /// Draws the conclusions of all ratios of the table together, those of older results anew. Rows
    /// without a better direction are context: they are not tested. Returns the number of tests.
    pub fn correct(&mut self) -> usize {
        for measure in self.cells.iter_mut().flat_map(|cell| &mut cell.measures) {
            measure.ratios = statistics::ratios(&measure.values);
        }
        let measures = self.cells.iter_mut().flat_map(|cell| &mut cell.measures);
        let tested = measures.filter(|measure| measure.better != Better::Neither);
        let mut ratios: Vec<&mut Ratio> =
            tested.flat_map(|measure| measure.ratios.iter_mut().flatten()).collect();
        correct(&mut ratios);
        ratios.len()
    }
}

/// Draws the conclusions of these ratios together.
pub(crate) fn correct(ratios: &mut [&mut Ratio]) {
    let tests = ratios.len();
    ratios.sort_by(|one, other| one.chance.total_cmp(&other.chance));
    let mut least = 0.0_f64;
    for (at, ratio) in ratios.iter_mut().enumerate() {
        least = least.max((tests - at) as f64 * ratio.chance).min(1.0);
        ratio.corrected = Some(least);
        // A significant one is significant alone, too.
        if least > CHANCE_MAX && ratio.verdict != Verdict::TooFewRounds {
            ratio.verdict = Verdict::Noise;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Measure;
    use super::super::statistics::measure;
    use super::*;

    /// A server beside one whose values are all 1, in rounds that differ by a hundredth.
    fn beside(better: Better, times: f64, rounds: u32) -> Measure {
        let noise = |round| if round % 2 == 0 { 1.01 } else { 0.99 };
        let values = (0..rounds).map(|round| Some(times * noise(round))).collect();
        measure("m", "ns", better, vec![vec![Some(1.0); rounds as usize], values])
    }

    fn corrected(measures: Vec<Measure>) -> Vec<(f64, f64, Verdict)> {
        let mut table = Compare::example(["a", "b"], measures);
        table.correct();
        let ratios = table.cells[0].measures.iter().map(|measure| measure.ratios[0].unwrap());
        ratios.map(|it| (it.chance, it.corrected.unwrap_or(-1.0), it.verdict)).collect()
    }

    #[test]
    fn the_smallest_counts_as_often_as_there_are_tests() {
        let (great, small) = (beside(Better::Lower, 2.0, 8), beside(Better::Higher, 0.985, 8));
        let context = beside(Better::Neither, 2.0, 8);
        let found = corrected(vec![small, context, great.clone(), great]);
        let (smallest, greatest) = (found[2].0, found[0].0);
        assert!(smallest < 1e-9 && (0.001..0.05).contains(&greatest), "{found:?}");
        assert_eq!(found[0], (greatest, greatest, Verdict::Lower), "the last of three tests");
        assert_eq!((found[1].1, found[1].2), (-1.0, Verdict::Higher), "context is not tested");
        for one in &found[2..] {
            assert_eq!(*one, (smallest, 3.0 * smallest, Verdict::Higher));
        }
    }

    #[test]
    fn a_difference_that_others_explain_is_not_significant() {
        let small = || beside(Better::Lower, 0.99, 8);
        let (chance, _, alone) = corrected(vec![small()])[0];
        assert!((0.01..0.05).contains(&chance), "{chance}");
        assert_eq!(alone, Verdict::Lower);
        let found = corrected(vec![small(), small(), small(), small(), small()]);
        assert!(found.iter().all(|it| it.2 == Verdict::Noise && it.1 > 0.05), "{found:?}");
    }

    #[test]
    fn few_rounds_give_no_verdict() {
        assert_eq!(corrected(vec![beside(Better::Lower, 2.0, 5)])[0].2, Verdict::TooFewRounds);
    }
}
