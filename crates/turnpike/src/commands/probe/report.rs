//! Results of the steps, for people and for programs.

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

use crate::escape;
use crate::failure::Result;
use crate::output;

/// Outcome of a step, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    /// Not tried, for want of something.
    Skipped,
    /// It works, and somebody should look at it.
    Warning,
    Failed,
}

/// One step.
#[derive(Debug, Serialize)]
pub(crate) struct Step {
    name: &'static str,
    state: State,
    /// Finding.
    what: String,
    /// Advice.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
    /// Response time.
    #[serde(skip_serializing_if = "Option::is_none")]
    milliseconds: Option<f64>,
}

impl Step {
    fn new(name: &'static str, state: State, what: impl Into<String>) -> Self {
        Self { name, state, what: what.into(), advice: None, milliseconds: None }
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
        // What a server says of itself stands on a line of its own whatever is in it.
        let what = escape::line(&self.what);
        format!("  {state:<8} {:<11}{what}{time}{advice}", self.name)
    }
}

/// All steps.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    uri: String,
    steps: Vec<Step>,
}

impl Report {
    pub(crate) const fn new(uri: String) -> Self {
        Self { uri, steps: Vec::new() }
    }

    pub(crate) fn add(&mut self, step: Step) {
        self.steps.push(step);
    }

    pub(crate) fn print(&self, json: bool) -> Result<()> {
        if json {
            return output::print_json(self);
        }
        let lines = self.steps.iter().map(Step::line);
        let text = std::iter::once(self.uri.clone()).chain(lines).collect::<Vec<_>>().join("\n");
        output::print(&text)
    }

    /// 0 when all is well, 1 when something is to be looked at, 2 when something does not work.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self.worst() {
            State::Ok | State::Skipped => 0,
            State::Warning => 1,
            State::Failed => 2,
        })
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
    fn a_step_says_what_and_what_to_do() {
        let step =
            Step::failed("binding", "no answer").advise("look").took(Duration::from_millis(2));
        assert_eq!(
            step.line(),
            "  FAILED   binding    no answer, 2.0 ms\n                      look"
        );
    }
}
