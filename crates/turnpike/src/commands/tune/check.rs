//! `turnpike tune check`: reports every item with advice and reason.

use host_tuning::{Host, Item, Scope, Survey, Verdict, Wants};
use serde::Serialize;

use super::{counted, survey, wants};
use crate::cli::{self, PathOptions};
use crate::failure::Result;
use crate::output::{self, grouped, width, wrapped};

/// Column of explanations, below the names of the items.
const INDENT: usize = 11;

/// Outcome for programs.
#[derive(Debug, Serialize)]
struct Outcome<'a> {
    interfaces: &'a [String],
    notes: &'a [String],
    items: Vec<ItemReport<'a>>,
    /// Number of items that `apply` would set.
    to_set: usize,
    /// Number of items that the operator must set.
    by_hand: usize,
}

/// Item for programs.
#[derive(Debug, Serialize)]
struct ItemReport<'a> {
    name: &'static str,
    /// Scope of the item: `host`, or the name of an interface.
    scope: String,
    /// Status: `ok`, `advise`, `by_hand` or `cannot`.
    status: &'static str,
    now: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    advised: Option<&'a str>,
    why: &'static str,
    /// Reason why the item cannot be read or set.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    /// Instructions or conditions for the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    how: Option<&'a str>,
    /// Commands for the operator.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    commands: &'a [String],
    /// Changes that `apply` would perform.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<Change<'a>>,
}

#[derive(Debug, Serialize)]
struct Change<'a> {
    setting: String,
    to: &'a str,
}

pub(super) fn run(paths: &PathOptions, args: &cli::TuneCheck) -> Result<()> {
    let wants = wants(paths)?;
    let survey = survey(&Host::real(), &wants, &args.interface, &args.items)?;
    if args.output.json {
        return output::print_json(&outcome(&survey));
    }
    output::print(&describe(&survey, &wants, args.verbose, output::columns()))
}

fn outcome(survey: &Survey) -> Outcome<'_> {
    Outcome {
        interfaces: &survey.interfaces,
        notes: &survey.notes,
        items: survey.items.iter().map(report).collect(),
        to_set: count(survey, "advise"),
        by_hand: count(survey, "by_hand"),
    }
}

fn report(item: &Item) -> ItemReport<'_> {
    let mut report = ItemReport {
        name: item.entry.name,
        scope: item.scope.to_string(),
        status: status(&item.verdict),
        now: &item.now,
        advised: None,
        why: item.entry.why,
        reason: None,
        how: None,
        commands: &[],
        changes: Vec::new(),
    };
    match &item.verdict {
        Verdict::Good => {}
        Verdict::Change { advised, changes } => {
            report.advised = Some(advised);
            let change = |change: &host_tuning::Change| change.setting.to_string();
            report.changes =
                changes.iter().map(|c| Change { setting: change(c), to: &c.to }).collect();
        }
        Verdict::ByHand { advised, how, commands } => {
            report.advised = Some(advised);
            report.how = Some(how);
            report.commands = commands;
        }
        Verdict::Cannot { reason } => report.reason = Some(reason),
    }
    report
}

const fn status(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Good => "ok",
        Verdict::Change { .. } => "advise",
        Verdict::ByHand { .. } => "by_hand",
        Verdict::Cannot { .. } => "cannot",
    }
}

fn count(survey: &Survey, wanted: &str) -> usize {
    survey.items.iter().filter(|item| status(&item.verdict) == wanted).count()
}

fn describe(survey: &Survey, wants: &Wants, verbose: bool, columns: usize) -> String {
    let mut parts = Vec::new();
    parts.extend(survey.notes.iter().map(|note| wrapped(&format!("note: {note}"), 0, columns)));
    let (first, last) = wants.relay_ports;
    let about = format!(
        "this host, for relay ports {first}-{last}, {} and {} relayed addresses at most",
        counted(usize::try_from(wants.workers).unwrap_or(usize::MAX), "worker"),
        grouped(wants.relayed)
    );
    let scopes = std::iter::once((Scope::Host, about))
        .chain(survey.interfaces.iter().map(|name| (Scope::Interface(name.clone()), name.clone())));
    for (scope, heading) in scopes {
        let items: Vec<&Item> = survey.items.iter().filter(|item| item.scope == scope).collect();
        if !items.is_empty() {
            let heading = wrapped(&heading, 0, columns);
            parts.push(format!("{heading}\n{}", block(&items, verbose, columns)));
        }
    }
    parts.push(summary(survey));
    parts.join("\n\n")
}

/// Formats the items of a scope, with the values in one column. Items without a value that are
/// skipped for the same reason are joined at the end.
fn block(items: &[&Item], verbose: bool, columns: usize) -> String {
    let mut skipped: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut shown: Vec<&Item> = Vec::new();
    for item in items {
        match &item.verdict {
            Verdict::Cannot { reason } if item.now.is_empty() => {
                match skipped.iter_mut().find(|(known, _)| known == reason) {
                    Some((_, names)) => names.push(item.entry.name),
                    None => skipped.push((reason, vec![item.entry.name])),
                }
            }
            Verdict::Good
            | Verdict::Change { .. }
            | Verdict::ByHand { .. }
            | Verdict::Cannot { .. } => shown.push(item),
        }
    }
    let names = shown.iter().map(|item| item.entry.name.len()).max().unwrap_or_default();
    let mut lines: Vec<String> =
        shown.into_iter().map(|item| line(item, names, verbose, columns)).collect();
    for (reason, names) in skipped {
        let names = wrapped(&names.join(", "), INDENT, columns);
        let reason = wrapped(&format!("Skipped: {reason}."), INDENT, columns);
        lines.push(format!("  {:<7}  {}\n{reason}", "cannot", names.trim_start()));
    }
    lines.join("\n")
}

fn line(item: &Item, names: usize, verbose: bool, columns: usize) -> String {
    let now = if item.now.is_empty() { "-" } else { &item.now };
    let (advised, explained) = match &item.verdict {
        Verdict::Good => (None, verbose.then(|| item.entry.why.to_owned())),
        Verdict::Change { advised, .. } => (Some(advised), Some(item.entry.why.to_owned())),
        Verdict::ByHand { advised, how, .. } => {
            (Some(advised), Some(format!("{} By hand: {how}.", item.entry.why)))
        }
        Verdict::Cannot { reason } => (None, Some(format!("Skipped: {reason}."))),
    };
    let value = advised.map_or_else(|| now.to_owned(), |advised| format!("{now} -> {advised}"));
    let status = status(&item.verdict).replace('_', " ");
    let head = format!("  {status:<7}  {:<names$}", item.entry.name);
    let at = width(&head) + 2;
    let mut text = if at + width(&value) <= columns {
        format!("{head}  {value}")
    } else {
        format!("{}\n{}", head.trim_end(), wrapped(&value, INDENT, columns))
    };
    if let Some(explained) = explained {
        text.push('\n');
        text.push_str(&wrapped(&explained, INDENT, columns));
    }
    if let Verdict::ByHand { commands, .. } = &item.verdict {
        // Commands are not wrapped, so they can be copied.
        text.extend(commands.iter().map(|command| format!("\n{:INDENT$}  {command}", "")));
    }
    text
}

fn summary(survey: &Survey) -> String {
    let (to_set, by_hand) = (count(survey, "advise"), count(survey, "by_hand"));
    let mut lines = Vec::new();
    if to_set > 0 {
        lines.push(format!("{} to set: `sudo turnpike tune apply`", counted(to_set, "item")));
    }
    if by_hand > 0 {
        lines.push(format!("{} to do by hand, as said above", counted(by_hand, "item")));
    }
    match count(survey, "cannot") {
        0 => {}
        skipped => lines.push(format!("{} skipped", counted(skipped, "item"))),
    }
    if to_set + by_hand == 0 {
        lines.insert(0, "nothing to do".to_owned());
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(name: &str, now: &str, verdict: Verdict) -> Item {
        let entry = host_tuning::find(name).unwrap();
        Item { entry, scope: Scope::Host, now: now.into(), verdict }
    }

    fn survey() -> Survey {
        let by_hand = Verdict::ByHand {
            advised: "off".into(),
            how: "only where it suits".into(),
            commands: vec!["nft add table inet turnpike, and more than fits a line".into()],
        };
        let cannot = || Verdict::Cannot { reason: "it is not there".into() };
        let change = Verdict::Change {
            advised: "3478,49152-65535".into(),
            changes: vec![host_tuning::Change {
                setting: host_tuning::Setting::Sysctl {
                    name: "net.ipv4.ip_local_reserved_ports".into(),
                },
                to: "3478,49152-65535".into(),
            }],
        };
        Survey {
            interfaces: vec![],
            notes: vec!["there is no default route".into()],
            items: vec![
                item("net.core.rmem_max", "4194304", Verdict::Good),
                item("fs.nr_open", "", cannot()),
                item("net.ipv4.ip_local_reserved_ports", "none", change),
                item("notrack", "on", by_hand),
                item("governor", "", cannot()),
            ],
        }
    }

    fn wants() -> Wants {
        Wants {
            receive_buffer: 1,
            send_buffer: 1,
            relay_ports: (49_152, 65_535),
            listen_ports: vec![3478],
            workers: 1,
            relayed: 16_384,
            files: 16_640,
        }
    }

    #[test]
    fn a_screen_of_items() {
        let text = describe(&survey(), &wants(), false, 72);
        assert_eq!(
            text,
            "\
note: there is no default route

this host, for relay ports 49152-65535, 1 worker and 16,384 relayed
addresses at most
  ok       net.core.rmem_max                 4194304
  advise   net.ipv4.ip_local_reserved_ports  none -> 3478,49152-65535
           Reserved ports are not assigned to programs that bind any
           port, so that none of them takes a relay port; binding one by
           number still works.
  by hand  notrack                           on -> off
           Turnpike has its own table of permissions, and the kernel's
           costs a lookup per packet and an entry per flow. By hand:
           only where it suits.
             nft add table inet turnpike, and more than fits a line
  cannot   fs.nr_open, governor
           Skipped: it is not there.

1 item to set: `sudo turnpike tune apply`
1 item to do by hand, as said above
2 items skipped"
        );
    }

    #[test]
    fn narrow_terminals_have_values_below_and_verbose_says_why_of_all() {
        let text = describe(&survey(), &wants(), true, 50);
        let value =
            "  advise   net.ipv4.ip_local_reserved_ports\n           none -> 3478,49152-65535\n";
        assert!(text.contains(value), "{text}");
        assert!(text.contains("granted no larger"), "{text}");
    }

    #[test]
    fn programs_are_told_everything() {
        let survey = survey();
        let report = serde_json::to_value(outcome(&survey)).unwrap();
        assert_eq!((&report["to_set"], &report["by_hand"]), (&1.into(), &1.into()));
        let statuses: Vec<_> =
            report["items"].as_array().unwrap().iter().map(|item| &item["status"]).collect();
        assert_eq!(statuses, ["ok", "cannot", "advise", "by_hand", "cannot"]);
        let item = &report["items"][2];
        assert_eq!(item["changes"][0]["setting"], "net.ipv4.ip_local_reserved_ports");
        assert!(item["why"].as_str().unwrap().starts_with("Reserved ports"));
        assert_eq!(report["items"][1]["reason"], "it is not there");
    }
}
