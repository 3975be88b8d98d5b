//! Results of the steps, for people and for programs.

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

use crate::escape;
use crate::failure::Result;
use crate::output;

/// Outcome of a step, sorted from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    /// The step was not tried, because a prerequisite is missing.
    Skipped,
    /// The step works but needs attention.
    Warning,
    Failed,
}

/// Step of a probe.
#[derive(Debug, Serialize)]
pub(crate) struct Step {
    name: &'static str,
    state: State,
    /// True if the result of the step is unknown. The verdict then cannot be [`Verdict::Works`].
    #[serde(skip)]
    is_unknown: bool,
    /// Description of the result.
    what: String,
    /// Advice for the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
    /// Response time in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    milliseconds: Option<f64>,
}

impl Step {
    fn new(name: &'static str, state: State, what: impl Into<String>) -> Self {
        Self { name, state, is_unknown: false, what: what.into(), advice: None, milliseconds: None }
    }

    pub(crate) fn ok(name: &'static str, what: impl Into<String>) -> Self {
        Self::new(name, State::Ok, what)
    }

    pub(crate) fn skipped(name: &'static str, what: impl Into<String>) -> Self {
        Self::new(name, State::Skipped, what)
    }

    pub(crate) fn warning(name: &'static str, what: impl Into<String>) -> Self {
        Self::new(name, State::Warning, what)
    }

    /// Creates a step that was not tried, with an unknown result.
    pub(crate) fn untested(name: &'static str, what: impl Into<String>) -> Self {
        Self { is_unknown: true, ..Self::skipped(name, what) }
    }

    /// Creates a step that was tried without a result.
    pub(crate) fn inconclusive(name: &'static str, what: impl Into<String>) -> Self {
        Self { is_unknown: true, ..Self::warning(name, what) }
    }

    pub(crate) fn failed(name: &'static str, what: impl Into<String>) -> Self {
        Self::new(name, State::Failed, what)
    }

    /// Adds advice.
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Adds the response time.
    pub(crate) fn took(mut self, time: Duration) -> Self {
        self.milliseconds = Some(time.as_secs_f64() * 1000.0);
        self
    }

    fn line(&self) -> String {
        let state = match self.state {
            State::Ok => "ok",
            State::Skipped => "skipped",
            State::Warning => "warning",
            State::Failed => "FAILED",
        };
        let time = self.milliseconds.map(|ms| format!(", {ms:.1} ms")).unwrap_or_default();
        let advice =
            self.advice.as_ref().map(|text| format!("\n{:22}{text}", "")).unwrap_or_default();
        // Escaped, so a server's text cannot break the line.
        let what = escape::line(&self.what);
        format!("  {state:<8} {:<11}{what}{time}{advice}", self.name)
    }
}

/// Report of all steps.
#[derive(Debug)]
pub(crate) struct Report {
    uri: String,
    steps: Vec<Step>,
}

/// Conclusion from all steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Works,
    /// The server works, but needs a correction soon.
    WorksWithWarnings,
    /// A part could not be tested from this host.
    Inconclusive,
    Fails,
}

impl Verdict {
    const fn words(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::WorksWithWarnings => "works, with warnings",
            Self::Inconclusive => "works as far as tested; a part could not be tested from here",
            Self::Fails => "fails",
        }
    }
}

/// Report for programs.
#[derive(Debug, Serialize)]
struct Outcome<'a> {
    uri: &'a str,
    verdict: Verdict,
    /// Descriptions of the steps that determine the verdict.
    reasons: Vec<String>,
    steps: &'a [Step],
}

impl Report {
    pub(crate) const fn new(uri: String) -> Self {
        Self { uri, steps: Vec::new() }
    }

    pub(crate) fn add(&mut self, step: Step) {
        self.steps.push(step);
    }

    pub(crate) fn print(&self, json: bool) -> Result<()> {
        let (verdict, reasons) = self.verdict();
        if json {
            let (uri, steps) = (&self.uri, &self.steps);
            return output::print_json(&Outcome { uri, verdict, reasons, steps });
        }
        let mut lines = vec![self.uri.clone()];
        lines.extend(self.steps.iter().map(Step::line));
        lines.push(format!("verdict: {}", verdict.words()));
        output::print(&lines.join("\n"))
    }

    /// Returns 0 for success, 1 for a step that needs attention, and 2 for a failed step.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self.worst() {
            State::Ok | State::Skipped => 0,
            State::Warning => 1,
            State::Failed => 2,
        })
    }

    fn verdict(&self) -> (Verdict, Vec<String>) {
        let reasons = |wanted: &dyn Fn(&Step) -> bool| -> Vec<String> {
            let steps = self.steps.iter().filter(|step| wanted(step));
            steps.map(|step| format!("{}: {}", step.name, step.what)).collect()
        };
        if matches!(self.worst(), State::Failed) {
            return (Verdict::Fails, reasons(&|step| step.state == State::Failed));
        }
        let unknown = reasons(&|step| step.is_unknown);
        if !unknown.is_empty() {
            return (Verdict::Inconclusive, unknown);
        }
        let warnings = reasons(&|step| step.state == State::Warning);
        let verdict = if warnings.is_empty() { Verdict::Works } else { Verdict::WorksWithWarnings };
        (verdict, warnings)
    }

    fn worst(&self) -> State {
        self.steps.iter().map(|step| step.state).max().unwrap_or(State::Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_step_counts() {
        let mut report = Report::new("turn:h".to_owned());
        assert_eq!(report.exit_code(), ExitCode::from(2), "nothing was tried");
        for (step, code) in [
            (Step::ok("a", ""), 0),
            (Step::skipped("b", ""), 0),
            (Step::warning("c", ""), 1),
            (Step::failed("d", ""), 2),
            (Step::ok("e", ""), 2),
        ] {
            report.add(step);
            assert_eq!(report.exit_code(), ExitCode::from(code));
        }
    }

    #[test]
    fn the_verdict_follows_from_the_steps() {
        let mut report = Report::new("turn:h".to_owned());
        assert_eq!(report.verdict().0, Verdict::Fails, "nothing was tried");
        for (step, verdict, reason) in [
            (Step::ok("a", ""), Verdict::Works, None),
            (Step::skipped("b", "x"), Verdict::Works, None),
            (Step::warning("c", "y"), Verdict::WorksWithWarnings, Some("c: y")),
            (Step::untested("d", "z"), Verdict::Inconclusive, Some("d: z")),
            (Step::failed("e", "w"), Verdict::Fails, Some("e: w")),
        ] {
            report.add(step);
            let (found, reasons) = report.verdict();
            assert_eq!((found, reasons.first().map(String::as_str)), (verdict, reason));
        }
    }

    #[test]
    fn a_step_says_what_and_what_to_do() {
        let step =
            Step::failed("binding", "no answer").advise("look").took(Duration::from_millis(2));
        assert_eq!(
            step.line(),
            "  FAILED   binding    no answer, 2.0 ms\n                      look"
        );
    }
}
