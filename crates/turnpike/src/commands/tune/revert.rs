//! `turnpike tune revert`: restores the previous values.

use anyhow::anyhow;
use host_tuning::{Host, PersistError, Restored, RevertOutcome, State};
use serde::Serialize;

use super::{counted, need_privilege, unusable};
use crate::cli;
use crate::failure::{Failure, Result};
use crate::output;

/// Restored value for programs.
#[derive(Debug, Serialize)]
struct Report {
    item: String,
    setting: String,
    /// Previous value.
    before: String,
    /// Outcome: `restored`, `already`, `changed_since`, `gone`, `elsewhere` or `failed`. A value
    /// that was changed since, or that belongs to another network namespace (`elsewhere`), is not
    /// restored.
    outcome: &'static str,
    /// Value before the restoration, or the present value if it was not restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub(super) fn run(args: &cli::TuneRevert) -> Result<()> {
    let host = Host::real();
    need_privilege(&host, "putting values back")?;
    if !args.state.exists() {
        return print(args, &[]);
    }
    let mut state = State::open(&args.state, &host).map_err(unusable)?;
    let takes = |record: &host_tuning::Record| args.items.takes(&record.item);
    let restored = host_tuning::revert(&host, &mut state, args.force, takes).map_err(failed)?;
    let report: Vec<Report> = restored.into_iter().map(report).collect();
    print(args, &report)?;
    finish(&report)
}

fn print(args: &cli::TuneRevert, report: &[Report]) -> Result<()> {
    if args.output.json {
        return output::print_json(&report);
    }
    if report.is_empty() {
        let state = args.state.display();
        return output::print(&format!("nothing to put back: {state} notes no change"));
    }
    output::print(&report.iter().map(line).collect::<Vec<_>>().join("\n"))
}

/// Fails if values were not restored, to report this by the exit code.
fn finish(report: &[Report]) -> Result<()> {
    let of = |outcome: &str| report.iter().filter(|report| report.outcome == outcome).count();
    match (of("failed"), of("changed_since")) {
        (0, 0) => Ok(()),
        (0, left) => Err(Failure::failed(anyhow!(
            "{} changed since, and left alone",
            counted(left, "value")
        ))
        .hint("--force puts them back, too")),
        (failed, _) => {
            Err(Failure::failed(anyhow!("{} could not be put back", counted(failed, "value"))))
        }
    }
}

fn report(restored: Restored) -> Report {
    let Restored { item, setting, to, outcome } = restored;
    let (outcome, found, error) = match outcome {
        RevertOutcome::Restored { from } => ("restored", Some(from), None),
        RevertOutcome::Already => ("already", None, None),
        RevertOutcome::ChangedSince { now } => ("changed_since", Some(now), None),
        RevertOutcome::Gone => ("gone", None, None),
        RevertOutcome::Elsewhere => ("elsewhere", None, None),
        RevertOutcome::Failed(error) => ("failed", None, Some(error.to_string())),
    };
    Report { item, setting: setting.to_string(), before: to, outcome, found, error }
}

fn line(report: &Report) -> String {
    let named = |value: &str| if value.is_empty() { "none".to_owned() } else { value.to_owned() };
    let before = named(&report.before);
    let found = named(report.found.as_deref().unwrap_or_default());
    let setting = &report.setting;
    match report.outcome {
        "restored" => format!("put back  {setting}  {found} -> {before}"),
        "already" => format!("already   {setting}  {before}"),
        "changed_since" => {
            format!("left      {setting}  {found} (changed since; before tuning: {before})")
        }
        "gone" => format!("gone      {setting}"),
        "elsewhere" => format!("left      {setting}  (of another network namespace: revert there)"),
        _ => format!("failed    {setting}: {}", report.error.as_deref().unwrap_or_default()),
    }
}

fn failed(error: PersistError) -> Failure {
    match error {
        PersistError::State(error) => unusable(error),
        PersistError::Foreign(_) | PersistError::Namespace | PersistError::Io { .. } => {
            Failure::failed(error)
        }
    }
}
