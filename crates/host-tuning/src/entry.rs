//! An item, apart from any host.

use crate::host::Host;
use crate::interface::Interface;
use crate::item::Looked;
use crate::items::Wants;
use crate::setting::EthtoolValue;

/// Scope of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Area {
    /// The host: one value for all interfaces.
    Host,
    /// A network interface: a value each.
    Interface,
}

/// Actor for an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// `apply` sets it.
    Us,
    /// The operator does.
    Hand,
}

/// Way to look at an item.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Look {
    /// The sysctl of the item's name, of any value.
    Shown,
    /// The sysctl of the item's name, and its least value.
    AtLeast(fn(&Host, &Wants) -> u64),
    /// The same for connection tracking, where it is in use.
    Tracked(Option<fn(&Host, &Wants) -> u64>),
    /// Anything else of the host.
    Host(fn(&Host, &Wants) -> Looked),
    /// A feature in `ethtool -k` that should be on.
    Feature(EthtoolValue),
    /// The feature of the item's name in `ethtool -k`, which should be off.
    NoFeature,
    /// Anything else of a card.
    Card(fn(&Host, &Interface) -> Looked),
    /// Anything else of an interface, whether it has a card or not.
    Interface(fn(&Host, &Interface) -> Looked),
}

/// An item, apart from any host.
#[derive(Debug)]
pub struct Entry {
    /// Name, on the command line too; of a sysctl its own.
    pub name: &'static str,
    /// Actor.
    pub by: By,
    /// Advice as a rule: a few words.
    pub rule: &'static str,
    /// Reason: one sentence.
    pub why: &'static str,
    pub(crate) look: Look,
}

impl Entry {
    /// Scope.
    #[must_use]
    pub const fn area(&self) -> Area {
        match self.look {
            Look::Shown | Look::AtLeast(_) | Look::Tracked(_) | Look::Host(_) => Area::Host,
            Look::Feature(_) | Look::NoFeature | Look::Card(_) | Look::Interface(_) => {
                Area::Interface
            }
        }
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Entry {}
