//! `turnpike tune`: host settings for high packet rates. The crate `host-tuning` contains the
//! logic. This module determines the server's needs, requests a confirmation, and formats the
//! output.

mod apply;
mod check;
mod revert;

use anyhow::anyhow;
use host_tuning::{Entry, Host, Item, StateError, Survey, Wants};
use settings::Settings;

use crate::boot::{Descriptors, relayed_most};
use crate::cli::{self, PathOptions};
use crate::failure::{Failure, Result};
use crate::own_addresses::host_addresses;
use crate::{cores, paths};

pub(crate) fn run(paths: &PathOptions, args: &cli::Tune) -> Result<()> {
    match args {
        cli::Tune::Check(args) => check::run(paths, args),
        cli::Tune::Apply(args) => apply::run(paths, args),
        cli::Tune::Revert(args) => revert::run(args),
    }
}

impl cli::TuneItems {
    /// Returns true if an item is selected.
    fn takes(&self, name: &str) -> bool {
        let among = |entries: &[&Entry]| entries.iter().any(|entry| entry.name == name);
        (self.only.is_empty() || among(&self.only)) && !among(&self.skip)
    }
}

/// Returns the needs of a server with this configuration.
fn wants(paths: &PathOptions) -> Result<Wants> {
    let settings: Settings = paths::load(paths)?.settings;
    // A host may be tuned before it has a relay address. One address is assumed then.
    let relay = settings.relay_addresses(&host_addresses()?).len().max(1);
    let workers = cores::cores(settings.workers.count, settings.workers.pin).len();
    let mut listen_ports: Vec<u16> =
        settings.listeners().iter().map(std::net::SocketAddr::port).collect();
    listen_ports.sort_unstable();
    listen_ports.dedup();
    Ok(Wants {
        receive_buffer: settings.sockets.receive_buffer.get(),
        send_buffer: settings.sockets.send_buffer.get(),
        relay_ports: (settings.relay.ports.min, settings.relay.ports.max),
        listen_ports,
        workers: workers as u64,
        relayed: relayed_most(&settings, relay),
        files: Descriptors::wanted(&settings, relay, workers).files(),
    })
}

/// Examines the host, and retains the selected items.
fn survey(
    host: &Host,
    wants: &Wants,
    interfaces: &[String],
    items: &cli::TuneItems,
) -> Result<Survey> {
    let found = host_tuning::survey(host, wants, interfaces)
        .map_err(|error| Failure::usage(anyhow!(error)).hint("`ip link` lists the interfaces"))?;
    let taken = |item: &Item| items.takes(item.entry.name);
    Ok(Survey { items: found.items.into_iter().filter(taken).collect(), ..found })
}

/// Fails if this process lacks the privileges to change the host.
fn need_privilege(host: &Host, what: &str) -> Result<()> {
    match host_tuning::missing_privilege(host) {
        None => Ok(()),
        Some(missing) => Err(Failure::failed(anyhow!("{what} needs {missing}"))
            .hint("`turnpike tune check` shows what would be done, and needs nothing")),
    }
}

/// Converts an error of the state file to a failure with advice.
fn unusable(error: StateError) -> Failure {
    let hint = match &error {
        StateError::Io { .. } => {
            "what was there before has to be noted before anything is changed: name a file that can \
             be written with --state"
        }
        StateError::Foreign { .. } => "name another file with --state, or move this one away",
        StateError::Busy { .. } => "wait until it has ended",
    };
    Failure::failed(error).hint(hint)
}

/// Formats a count with a noun: `1 value`, `2 values`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_chosen_by_name() {
        let entries = |names: &[&str]| {
            names.iter().map(|name| host_tuning::find(name).unwrap()).collect::<Vec<_>>()
        };
        let items = cli::TuneItems { only: entries(&[]), skip: entries(&["gro"]) };
        assert!(items.takes("rps") && !items.takes("gro"));
        let items = cli::TuneItems { only: entries(&["gro", "rps"]), skip: entries(&["gro"]) };
        assert!(items.takes("rps") && !items.takes("gro") && !items.takes("xps"));
    }

    #[test]
    fn a_configuration_says_what_is_wanted() {
        let directory = crate::testing::Directory::new("tune");
        let file = directory.path().join("t.toml");
        let text = "listen = [\"127.0.0.1:3478\", \"[::1]:3478\"]\n\
                    [auth]\nsecret = \"north-of-the-wall\"\n\
                    [relay]\naddresses = [\"192.0.2.1\"]\nports = \"50000-50999\"\n\
                    [sockets]\nreceive_buffer = \"8 MiB\"\n[workers]\ncount = 3\n";
        std::fs::write(&file, text).unwrap();
        let paths = PathOptions { config: Some(file), ..PathOptions::default() };
        let wants = wants(&paths).unwrap();
        let expected = Wants {
            receive_buffer: 8 << 20,
            send_buffer: 4 << 20,
            relay_ports: (50_000, 50_999),
            listen_ports: vec![3478],
            workers: 3,
            relayed: 1000,
            files: 41_256,
        };
        assert_eq!(wants, expected);
    }
}
