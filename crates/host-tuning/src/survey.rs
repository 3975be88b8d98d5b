//! Looking at a host: every item, with its value and the advice.

use std::fmt;

use crate::catalogue::ALL;
use crate::entry::{Area, Entry, Look};
use crate::host::Host;
use crate::interface::{Interface, choose};
use crate::item::{Looked, Verdict, cannot};
use crate::items::{Wants, conntrack, features, sysctl};

/// Place of an item's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The host.
    Host,
    /// An interface.
    Interface(String),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Interface(name) => f.write_str(name),
        }
    }
}

/// An item on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its entry in the catalogue.
    pub entry: &'static Entry,
    /// Place of its value.
    pub scope: Scope,
    /// Its value, for people; empty where it is unknown.
    pub now: String,
    /// The advice.
    pub verdict: Verdict,
}

/// Result of looking at a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// The interfaces that were looked at.
    pub interfaces: Vec<String>,
    /// Notes on their choice.
    pub notes: Vec<String>,
    /// Every item, those of the host first.
    pub items: Vec<Item>,
}

/// Looks at a host, and at the interfaces of these names; without names, at those of the default
/// routes. Nothing is changed.
///
/// # Errors
/// There is no interface of such a name.
pub fn survey(host: &Host, wants: &Wants, interfaces: &[String]) -> Result<Survey, String> {
    let chosen = choose(host, interfaces)?;
    let item = |entry: &'static Entry, scope, looked: Looked| {
        let (Ok(found) | Err(found)) = looked;
        Item { entry, scope, now: found.now, verdict: found.verdict }
    };
    let of = |area| ALL.iter().filter(move |entry| entry.area() == area);
    let mut items: Vec<Item> =
        of(Area::Host).map(|entry| item(entry, Scope::Host, of_host(host, wants, entry))).collect();
    for interface in &chosen.interfaces {
        let scope = Scope::Interface(interface.name.clone());
        items.extend(
            of(Area::Interface)
                .map(|entry| item(entry, scope.clone(), of_interface(host, interface, entry))),
        );
    }
    let interfaces = chosen.interfaces.into_iter().map(|interface| interface.name).collect();
    Ok(Survey { interfaces, notes: chosen.notes, items })
}

fn of_host(host: &Host, wants: &Wants, entry: &Entry) -> Looked {
    match entry.look {
        Look::Shown => sysctl::shown(host, entry.name),
        Look::AtLeast(least) => sysctl::at_least(host, entry.name, least(host, wants)),
        Look::Tracked(least) => {
            conntrack::sysctl(host, entry.name, least.map(|least| least(host, wants)))
        }
        Look::Host(look) => look(host, wants),
        Look::Feature(_) | Look::NoFeature | Look::Card(_) | Look::Interface(_) => {
            Err(cannot("", "it is an interface's"))
        }
    }
}

fn of_interface(host: &Host, interface: &Interface, entry: &Entry) -> Looked {
    if let Look::Interface(look) = entry.look {
        return look(host, interface);
    }
    if let Some(reason) = interface.no_card {
        return Err(cannot("", reason));
    }
    match entry.look {
        Look::Feature(value) => features::wanted(interface, value),
        Look::NoFeature => features::unwanted(interface, entry.name),
        Look::Card(look) | Look::Interface(look) => look(host, interface),
        Look::Shown | Look::AtLeast(_) | Look::Tracked(_) | Look::Host(_) => {
            Err(cannot("", "it is the host's"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::By;
    use crate::testing::{Fake, wants};

    #[test]
    fn every_entry_is_looked_at_in_the_order_of_the_catalogue() {
        let fake = Fake::whole();
        let survey = survey(fake.host(), &wants(), &[]).unwrap();
        assert_eq!(survey.interfaces, ["eth0"]);
        let found: Vec<&str> = survey.items.iter().map(|item| item.entry.name).collect();
        let listed: Vec<&str> = ALL.iter().map(|entry| entry.name).collect();
        assert_eq!(found, listed);
        for item in &survey.items {
            assert_eq!(item.scope == Scope::Host, item.entry.area() == Area::Host, "{item:?}");
            let Verdict::Change { changes, .. } = &item.verdict else { continue };
            assert_eq!(item.entry.by, By::Us, "{item:?}");
            assert!(changes.iter().all(|change| change.setting.allows(&change.to)), "{item:?}");
        }
    }

    #[test]
    fn an_empty_host_is_looked_at_without_harm() {
        let fake = Fake::new();
        let survey = survey(fake.host(), &wants(), &[]).unwrap();
        assert!(survey.interfaces.is_empty() && !survey.notes.is_empty());
        let sets = |item: &&Item| matches!(item.verdict, Verdict::Change { .. });
        assert_eq!(survey.items.iter().find(sets), None, "nothing can be set where nothing is");
    }
}
