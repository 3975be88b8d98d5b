//! Correction for many comparisons (Holm 1979): of dozens of tests at a level of 5 % a few are significant by chance, so the
//! p-values of a table are made larger, the smallest one by their number.

use super::Compare;
use super::statistics::{Better, CHANCE_MAX, Ratio, Verdict, sign_test};

impl Compare {
    /// Draws the conclusions of all ratios of the table together. Rows without a better direction are context: they are not
    /// tested. Returns the number of tests.
    pub fn correct(&mut self) -> usize {
        let measures = self.cells.iter_mut().flat_map(|cell| &mut cell.measures);
        let tested = measures.filter(|measure| measure.better != Better::Neither);
        let mut ratios: Vec<&mut Ratio> =
            tested.flat_map(|measure| measure.ratios.iter_mut().flatten()).collect();
        let tests = ratios.len();
        ratios.sort_by(|one, other| one.chance.total_cmp(&other.chance));
        let mut least = 0.0_f64;
        for (at, ratio) in ratios.into_iter().enumerate() {
            least = least.max((tests - at) as f64 * ratio.chance).min(1.0);
            ratio.corrected = Some(least);
            // A significant one is significant alone, too.
            if least > CHANCE_MAX {
                let is_few = ratio.rounds < rounds_needed(tests);
                ratio.verdict = if is_few { Verdict::TooFewRounds } else { Verdict::Noise };
            }
        }
        tests
    }
}

/// Rounds that all have to agree for one significant difference among so many tests.
#[must_use]
pub fn rounds_needed(tests: usize) -> u32 {
    let is_enough = |rounds: &u32| tests as f64 * sign_test(*rounds, 0) <= CHANCE_MAX;
    (1..u32::MAX).find(is_enough).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::statistics::measure;
    use super::*;

    fn rounds(signs: &[bool]) -> Vec<Option<f64>> {
        signs.iter().map(|higher| Some(if *higher { 2.0 } else { 0.5 })).collect()
    }

    /// A table of one server beside another, whose ratios are these.
    fn table(all: &[(Better, &[bool])]) -> Compare {
        let one = |(better, signs): &(Better, &[bool])| {
            measure("m", "ns", *better, vec![vec![Some(1.0); signs.len()], rounds(signs)])
        };
        Compare::example(["a", "b"], all.iter().map(one).collect())
    }

    fn ratios(table: &Compare) -> Vec<(f64, Verdict)> {
        let ratios = table.cells[0].measures.iter().map(|measure| measure.ratios[0].unwrap());
        ratios.map(|ratio| (ratio.corrected.unwrap_or(-1.0), ratio.verdict)).collect()
    }

    #[test]
    fn the_smallest_counts_as_often_as_there_are_tests() {
        // By hand: p = 2/1024 three times of four tests, and 22/1024 once.
        let (all, most) = ([true; 10], [&[true; 9][..], &[false]].concat());
        let lower = [false; 10];
        let mut table = table(&[
            (Better::Lower, &most),
            (Better::Lower, &all),
            (Better::Higher, &lower),
            (Better::Neither, &all),
            (Better::Higher, &all),
        ]);
        assert_eq!(table.correct(), 4);
        let smallest = (4.0 * 2.0 / 1024.0, Verdict::Higher);
        assert_eq!(
            ratios(&table),
            [
                (22.0 / 1024.0, Verdict::Higher),
                smallest,
                (smallest.0, Verdict::Lower),
                (-1.0, Verdict::Higher),
                smallest,
            ]
        );
    }

    #[test]
    fn six_rounds_are_enough_for_one_test_alone() {
        let six = [true; 6];
        let mut alone = table(&[(Better::Lower, &six)]);
        alone.correct();
        assert_eq!(ratios(&alone), [(0.03125, Verdict::Higher)]);
        let mut two = table(&[(Better::Lower, &six), (Better::Lower, &six)]);
        two.correct();
        assert_eq!(ratios(&two), [(0.0625, Verdict::TooFewRounds); 2]);
        // 2/2^6, 2/2^7 twice, 2/2^11 for 27 (0.026; 2/2^10 would be 0.053).
        assert_eq!([1, 2, 27].map(rounds_needed), [6, 7, 11]);
    }

    #[test]
    fn a_difference_that_others_explain_is_not_significant() {
        // 9 of 10 rounds are p = 0.021: significant alone, not among four.
        let most = [&[true; 9][..], &[false]].concat();
        let mut table = table(&[(Better::Lower, &most[..]); 4]);
        table.correct();
        assert_eq!(ratios(&table), [(4.0 * 22.0 / 1024.0, Verdict::Noise); 4]);
    }
}
