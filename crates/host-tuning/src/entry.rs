//! An item, apart from any host.

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
    /// The operator does: it is told and never set.
    Hand,
}

/// An item, apart from any host.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name, on the command line too; of a sysctl its own.
    pub name: &'static str,
    /// Scope.
    pub area: Area,
    /// Actor.
    pub by: By,
    /// Advice as a rule: a few words.
    pub rule: &'static str,
    /// Why: one sentence.
    pub why: &'static str,
}
