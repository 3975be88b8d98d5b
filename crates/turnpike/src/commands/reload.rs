//! `turnpike reload`: reloads the configuration, and reports the changed keys.

use admin::types::{Change, Reload, ReloadRequest};
use anyhow::anyhow;

use crate::cli::{self, PathOptions};
use crate::commands::{ask, upgrade};
use crate::failure::{Failure, Result};
use crate::output::{self, Align, Table};

pub(crate) fn run(
    paths: &PathOptions,
    cli::Reload { end_sessions, upgrade, output }: cli::Reload,
) -> Result<()> {
    let request = ReloadRequest { end_sessions };
    let reload = ask(paths, async |client| client.reload(request).await)?;
    if output.json {
        output::print_json(&reload)?;
    } else if reload.refused.is_none() {
        output::print(&describe(&reload))?;
    }
    match reload.refused {
        None if upgrade => upgrade::run_if_replaced(paths),
        // Scripts that renew certificates check the exit status.
        None if !reload.certificates_kept.is_empty() => {
            Err(Failure::failed(anyhow!("all else is in force, but not the new certificates")))
        }
        None => Ok(()),
        Some(why) => Err(Failure::usage(anyhow!(
            "the new configuration was refused, and the old one is still in force:\n{why}"
        ))),
    }
}

fn describe(reload: &Reload) -> String {
    let mut parts = Vec::new();
    if reload.applied.is_empty() && reload.needs_restart.is_empty() {
        parts.push("nothing has changed".to_owned());
    }
    for (heading, changes) in
        [("in force now", &reload.applied), ("in force after a restart", &reload.needs_restart)]
    {
        if !changes.is_empty() {
            parts.push(format!("{heading}:\n{}", table(changes)));
        }
    }
    if let Some(ended) = reload.ended {
        parts.push(format!(
            "sessions ended, as their secret, key or realm counts no longer: {}",
            output::grouped(ended)
        ));
    }
    if !reload.certificates_kept.is_empty() {
        let kept = reload.certificates_kept.join("\n");
        parts.push(format!(
            "certificates that cannot be used; the previous ones stay in force:\n{kept}"
        ));
    }
    parts.join("\n\n")
}

fn table(changes: &[Change]) -> String {
    let mut table = Table::new(&[("key", Align::Left), ("was", Align::Left), ("is", Align::Left)]);
    for change in changes {
        table.row([change.key.clone(), change.old.clone(), change.new.clone()]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_is_in_force_and_what_is_not_yet() {
        let change = |key: &str| Change { key: key.into(), old: "1".into(), new: "2".into() };
        let reload = Reload {
            applied: vec![change("quotas.channels")],
            needs_restart: vec![change("listen")],
            ended: None,
            certificates_kept: Vec::new(),
            refused: None,
        };
        assert_eq!(
            describe(&reload),
            "in force now:\nkey              was  is\nquotas.channels  1    2\n\n\
             in force after a restart:\nkey     was  is\nlisten  1    2"
        );
        assert_eq!(describe(&Reload::default()), "nothing has changed");
    }
}
