//! An item, apart from any host.

/// What an item is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Area {
    /// The host: one value for all interfaces.
    Host,
    /// A network interface: a value each.
    Interface,
}

/// Who acts on an item.
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
    /// What it is called, on the command line too; a sysctl's is the sysctl's own.
    pub name: &'static str,
    /// What it is about.
    pub area: Area,
    /// Who acts on it.
    pub by: By,
    /// What is advised, as a rule: a few words.
    pub rule: &'static str,
    /// Why: one sentence.
    pub why: &'static str,
}
