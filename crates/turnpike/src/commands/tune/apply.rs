//! `turnpike tune apply`: shows the changes, requests a confirmation, applies them, and reports the
//! outcome.

use std::path::PathBuf;

use anyhow::anyhow;
use host_tuning::{Applied, Host, Item, Outcome, PersistError, State, Survey, Verdict};
use serde::Serialize;

use super::{counted, need_privilege, survey, unusable, wants};
use crate::cli::{self, PathOptions};
use crate::confirmation;
use crate::failure::{Failure, Result};
use crate::output::{self, Align, Table};

/// Outcome for programs.
#[derive(Debug, Serialize)]
struct Report {
    changes: Vec<Change>,
    /// Path of the file with the previous values.
    state: PathBuf,
    /// Path of the file that sets the sysctls at every boot, if one was written.
    persisted: Option<PathBuf>,
}

/// Change for programs.
#[derive(Debug, Serialize)]
struct Change {
    item: &'static str,
    scope: String,
    setting: String,
    /// Outcome: `changed`, `already`, `differs` (the kernel has set another value) or `failed`.
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub(super) fn run(paths: &PathOptions, args: &cli::TuneApply) -> Result<()> {
    let wants = wants(paths)?;
    let host = Host::real();
    let look = || survey(&host, &wants, &args.interface, &args.items);
    let found = look()?;
    let to_set = to_set(&found);
    let mut state = None;
    if !to_set.is_empty() || args.persist {
        need_privilege(&host, "changing this host")?;
        state = Some(State::open(&args.state, &host).map_err(unusable)?);
    }
    if !to_set.is_empty() && !agreed(args, &found, &to_set)? {
        return output::print("nothing was changed");
    }
    let Some(mut state) = state else {
        return print(
            args,
            Report { changes: Vec::new(), state: args.state.clone(), persisted: None },
        );
    };
    // A repeated survey fails only if an interface has disappeared, which then needs no settings.
    let again = || look().map(|survey| survey.items).unwrap_or_default();
    let applied =
        host_tuning::apply(&host, &mut state, found.items.clone(), again).map_err(unusable)?;
    let (persisted, unwritten) = match args.persist.then(|| host_tuning::persist(&host, &mut state))
    {
        None => (None, None),
        Some(Ok(path)) => (path, None),
        Some(Err(error)) => (None, Some(unwritten(error))),
    };
    let changes: Vec<Change> = applied.iter().map(change).collect();
    let failed = changes.iter().filter(|change| change.outcome == "failed").count();
    let all = changes.len();
    print(args, Report { changes, state: args.state.clone(), persisted })?;
    if let Some(unwritten) = unwritten {
        return Err(unwritten);
    }
    if failed == 0 {
        return Ok(());
    }
    Err(Failure::failed(anyhow!("{failed} of {} refused", counted(all, "change")))
        .hint("leave an item out with --skip; what was changed stays, and revert puts it back"))
}

fn to_set(survey: &Survey) -> Vec<&Item> {
    let is_change = |item: &&Item| match item.verdict {
        Verdict::Change { .. } => true,
        Verdict::Good | Verdict::ByHand { .. } | Verdict::Cannot { .. } => false,
    };
    survey.items.iter().filter(is_change).collect()
}

/// Shows the changes, and requests a confirmation on a terminal.
fn agreed(args: &cli::TuneApply, found: &Survey, to_set: &[&Item]) -> Result<bool> {
    if args.yes {
        return Ok(true);
    }
    if args.output.json || !confirmation::is_possible() {
        return Err(Failure::usage(anyhow!("apply asks before it changes this host, and there is no terminal to ask")).hint(
            "`turnpike tune check` shows what would be changed; --yes changes it without a question",
        ));
    }
    for note in &found.notes {
        output::print(&format!("note: {note}"))?;
    }
    output::print(&plan(to_set))?;
    if to_set.iter().any(|item| item.entry.name == "channels") {
        output::print(
            "\nwith other channels the card's queues and interrupts are others, too: what is advised \
             for them is looked at again then",
        )?;
    }
    confirmation::ask(&format!("\nset {}?", counted(to_set.len(), "item")))
}

fn plan(to_set: &[&Item]) -> String {
    let mut table = Table::new(&[
        ("item", Align::Left),
        ("of", Align::Left),
        ("now", Align::Left),
        ("to", Align::Left),
    ]);
    for item in to_set {
        if let Verdict::Change { advised, .. } = &item.verdict {
            let name = item.entry.name.to_owned();
            table.row([name, item.scope.to_string(), item.now.clone(), advised.clone()]);
        }
    }
    table.render()
}

fn change(applied: &Applied) -> Change {
    let (outcome, before, now, error) = match &applied.outcome {
        Outcome::Changed { before } => {
            ("changed", Some(before.clone()), Some(applied.to.clone()), None)
        }
        Outcome::Already => ("already", None, Some(applied.to.clone()), None),
        Outcome::Differs { before, now } => {
            ("differs", Some(before.clone()), Some(now.clone()), None)
        }
        Outcome::Failed(error) => ("failed", None, None, Some(error.to_string())),
    };
    Change {
        item: applied.item,
        scope: applied.scope.to_string(),
        setting: applied.setting.to_string(),
        outcome,
        before,
        now,
        error,
    }
}

fn print(args: &cli::TuneApply, report: Report) -> Result<()> {
    if args.output.json {
        return output::print_json(&report);
    }
    output::print(&describe(&report))
}

fn describe(report: &Report) -> String {
    let mut lines: Vec<String> = report.changes.iter().map(line).collect();
    let lasting = report.changes.iter().any(|change| change.before.is_some());
    if report.changes.is_empty() {
        lines.push("nothing to set: every item is as advised, by hand, or skipped".to_owned());
    }
    if lasting {
        let state = report.state.display();
        let usual = report.state.as_os_str() == host_tuning::STATE;
        let named = if usual { String::new() } else { format!(" --state {state}") };
        lines.push(format!(
            "\nwhat was there before is noted in {state}; `turnpike tune revert{named}` puts it back"
        ));
    }
    match &report.persisted {
        Some(path) => {
            lines.push(format!("the sysctls are set at every start by {}", path.display()));
        }
        None if lasting => lines.push(
            "the values last until the host restarts; --persist has the sysctls set again"
                .to_owned(),
        ),
        None => {}
    }
    lines.join("\n")
}

fn line(change: &Change) -> String {
    let text = |value: &Option<String>| match value.as_deref() {
        None | Some("") => "none".to_owned(),
        Some(value) => value.to_owned(),
    };
    let Change { setting, outcome, before, now, error, .. } = change;
    match (error, before) {
        (Some(error), _) => format!("failed   {setting}: {error}"),
        (None, None) => format!("already  {setting}  {}", text(now)),
        (None, Some(_)) if *outcome == "differs" => {
            format!("set      {setting}  {} -> {} (the kernel's choice)", text(before), text(now))
        }
        (None, Some(_)) => format!("set      {setting}  {} -> {}", text(before), text(now)),
    }
}

fn unwritten(error: PersistError) -> Failure {
    match error {
        PersistError::State(error) => unusable(error),
        PersistError::Foreign(_) | PersistError::Namespace | PersistError::Io { .. } => {
            Failure::failed(error).hint("the values are set, and last until the host restarts")
        }
    }
}
