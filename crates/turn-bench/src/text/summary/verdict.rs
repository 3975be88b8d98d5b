//! Verdicts of each load: its losses in a list, and a sentence of gains and losses alike.

use super::columns::{CORE, Column, MOST, columns};
use super::words::{self, Kind};
use crate::outcome::{Better, CHANCE_MAX, Compare, ComparedCell, Ratio, Verdict, ratio};

/// One of Turnpike's ways beside another server, under one load.
pub(super) struct Judged {
    own: String,
    opponent: String,
    kind: Kind,
    found: Vec<Found>,
}

/// A column with the ratio of the own value to the opponent's.
type Found = (usize, Better, Ratio);

impl Judged {
    /// The differences that are looked at, to draw their conclusions together.
    pub(super) fn ratios(&mut self) -> impl Iterator<Item = &mut Ratio> {
        self.found.iter_mut().map(|(.., ratio)| ratio)
    }
}

/// Each way of Turnpike beside each opponent.
pub(super) fn judge(compare: &Compare, cell: &ComparedCell) -> Vec<Judged> {
    let names: Vec<&str> = compare.servers.iter().map(|server| server.name.as_str()).collect();
    let mut judged = Vec::new();
    for (own, name) in names.iter().enumerate().filter(|(_, name)| words::is_own(name)) {
        for (other, opponent) in names.iter().enumerate().filter(|(_, it)| words::is_opponent(it)) {
            let columns = columns(words::kind(cell)).iter().enumerate();
            let found: Vec<_> =
                columns.filter_map(|(at, column)| of(cell, (at, column), own, other)).collect();
            if !found.is_empty() {
                let (own, opponent) = (words::server(name), words::server(opponent));
                judged.push(Judged { own, opponent, kind: words::kind(cell), found });
            }
        }
    }
    judged
}

/// A column's ratio. Bounds have none: the time of the cores decides there.
fn of(
    cell: &ComparedCell,
    (at, column): (usize, &Column),
    own: usize,
    other: usize,
) -> Option<Found> {
    let measure = column.of(cell)?;
    if cell.is_bound(measure, own) || cell.is_bound(measure, other) {
        return None;
    }
    let ratio = ratio(measure.values.get(other)?, measure.values.get(own)?)?;
    Some((at, measure.better, ratio))
}

/// The verdict of a load: a sentence, or a list of them where several servers are judged.
pub(super) fn sentences(judged: &[Judged]) -> String {
    match judged {
        [one] => format!(" {}\n", clause(one)),
        many => many.iter().fold("\n".to_owned(), |text, it| text + "  - " + &clause(it) + "\n"),
    }
}

/// The losses beyond the noise under a load, for the list of all; `None` without any.
pub(super) fn losses(judged: &[Judged]) -> Option<String> {
    let of = |judged: &Judged| {
        let lost = judged.list(Standing::Behind, |_| true);
        (!lost.is_empty()).then(|| format!("{} beside {} in {lost}", judged.own, judged.opponent))
    };
    let lost: Vec<_> = judged.iter().filter_map(of).collect();
    (!lost.is_empty()).then(|| lost.join("; "))
}

fn clause(judged: &Judged) -> String {
    let Judged { own, opponent, kind, found } = judged;
    let is_leading = |(at, _, ratio): &Found| is_lead(*kind, *at) && is_verdict(ratio.verdict);
    let lead = found.iter().find(|it| is_leading(it));
    let part = |wanted, before: &str, after: &str| {
        let words = judged.list(wanted, |it| !is_leading(it));
        (!words.is_empty()).then(|| format!("{before}{words}{after}"))
    };
    let parts: Vec<_> = [
        part(Standing::Behind, "**behind in ", "**"),
        part(Standing::PerhapsBehind, "**perhaps behind in ", "**"),
        part(Standing::Ahead, "ahead in ", ""),
        part(Standing::Unknown, "too few rounds for a verdict: ", ""),
    ]
    .into_iter()
    .flatten()
    .collect();
    match lead.map(|(.., ratio)| leading(*kind, opponent, ratio)) {
        Some(lead) if parts.is_empty() => format!("{own} {lead}."),
        Some(lead) => format!("{own} {lead}; {}.", parts.join("; ")),
        None if parts.is_empty() => {
            format!("{own} beside {opponent}: no difference is significant.")
        }
        None => format!("{own} beside {opponent}: {}.", parts.join("; ")),
    }
}

impl Judged {
    /// The columns of a standing, with their ratios.
    fn list(&self, wanted: Standing, of: impl Fn(&Found) -> bool) -> String {
        let found = self.found.iter().filter(|it| of(it));
        let found = found.filter(|(_, better, ratio)| standing(*better, ratio) == wanted);
        let words = found
            .map(|(at, _, ratio)| format!("{} ({:.2} times)", name(self.kind, *at), ratio.median));
        words.collect::<Vec<_>>().join(", ")
    }
}

/// The place of a server by one measure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Ahead,
    Level,
    /// Significant if it were the only test: a gain is not told then, a loss is.
    PerhapsBehind,
    Behind,
    /// Too few rounds.
    Unknown,
}

fn standing(better: Better, ratio: &Ratio) -> Standing {
    let is_worse = match better {
        Better::Higher => ratio.median < 1.0,
        Better::Lower => ratio.median > 1.0,
        Better::Neither => return Standing::Level,
    };
    match ratio.verdict {
        Verdict::TooFewRounds => Standing::Unknown,
        Verdict::Higher | Verdict::Lower if is_worse => Standing::Behind,
        Verdict::Higher | Verdict::Lower => Standing::Ahead,
        Verdict::Noise if is_worse && ratio.chance <= CHANCE_MAX => Standing::PerhapsBehind,
        Verdict::Noise => Standing::Level,
    }
}

/// The column that a clause begins with.
fn is_lead(kind: Kind, at: usize) -> bool {
    at == if kind == Kind::Memory { MOST } else { CORE }
}

const fn is_verdict(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Higher | Verdict::Lower)
}

/// A significant difference of the leading column; a loss stands out.
fn leading(kind: Kind, opponent: &str, ratio: &Ratio) -> String {
    let per_core = 1.0 / ratio.median;
    let text = match kind {
        Kind::Packets => format!("delivers {per_core:.2} times {opponent}'s packets per core"),
        Kind::Allocations => {
            format!("serves {per_core:.2} times {opponent}'s allocations per core")
        }
        Kind::Memory => {
            format!("takes {:.2} times {opponent}'s memory of the process", ratio.median)
        }
    };
    if ratio.verdict == Verdict::Higher { format!("**{text}**") } else { text }
}

fn name(kind: Kind, at: usize) -> String {
    let words = columns(kind).get(at).map_or("", |column| column.words);
    match (kind, at) {
        (Kind::Packets, CORE) => format!("{words} per packet"),
        (Kind::Allocations, CORE) => format!("{words} per allocation"),
        (Kind::Allocations, MOST) => "allocations per second".to_owned(),
        _ => words.to_owned(),
    }
}
