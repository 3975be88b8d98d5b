//! Looking at a host: every item, with what is advised.

pub(crate) mod backlog;
pub(crate) mod buffers;
pub(crate) mod coalescing;
pub(crate) mod conntrack;
pub(crate) mod files;
pub(crate) mod interface;
pub(crate) mod irq;
pub(crate) mod offloads;
pub(crate) mod ports;
pub(crate) mod processors;
pub(crate) mod queues;
pub(crate) mod steering;
mod sysctl;

use crate::host::Host;
use crate::item::Item;
use crate::wants::Wants;

use interface::Interface;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// The interfaces that were looked at.
    pub interfaces: Vec<String>,
    /// What an operator should know of how they were chosen.
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
    let chosen = interface::choose(host, interfaces)?;
    let mut items = Vec::new();
    items.extend(buffers::look(host, wants));
    items.extend(backlog::look(host));
    items.extend(ports::look(host, wants));
    items.extend(conntrack::look(host, wants));
    items.extend(files::look(host, wants));
    items.extend(processors::look(host));
    for interface in &chosen.interfaces {
        items.extend(look_at(host, interface));
    }
    let interfaces = chosen.interfaces.into_iter().map(|interface| interface.name).collect();
    Ok(Survey { interfaces, notes: chosen.notes, items })
}

fn look_at(host: &Host, interface: &Interface) -> Vec<Item> {
    let mut items = queues::look(host, interface);
    items.extend(coalescing::look(host, interface));
    items.extend(offloads::look(host, interface));
    items.extend(irq::look(host, interface));
    items.extend(steering::look(host, interface));
    items.push(queues::tx_queue_length(host, interface));
    items.into_iter().map(|item| item.of(&interface.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::ALL;
    use crate::entry::{Area, By};
    use crate::item::{Scope, Verdict};
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
            let of_host = item.scope == Scope::Host;
            assert_eq!(of_host, item.entry.area == Area::Host, "{}", item.entry.name);
            match &item.verdict {
                Verdict::Change { changes, .. } => {
                    assert_eq!(item.entry.by, By::Us, "{}", item.entry.name);
                    for change in changes {
                        assert!(change.setting.allows(&change.to), "{change:?}");
                    }
                }
                Verdict::Good | Verdict::ByHand { .. } | Verdict::Cannot { .. } => {}
            }
        }
    }

    #[test]
    fn an_empty_host_is_looked_at_without_harm() {
        let fake = Fake::new();
        let survey = survey(fake.host(), &wants(), &[]).unwrap();
        assert!(survey.interfaces.is_empty());
        assert!(!survey.notes.is_empty());
        for item in survey.items {
            assert!(
                !matches!(item.verdict, Verdict::Change { .. }),
                "nothing can be set where nothing is: {item:?}"
            );
        }
    }
}
