//! Differences that are chosen, with their reasons.

use std::net::IpAddr;

use super::configuration::{Configuration, Credential};
use super::observation::{Observation, Outcome};

/// A difference between coturn and this server that is intended.
#[derive(Clone, Copy, Debug)]
pub struct ChosenDifference {
    /// Its name.
    pub name: &'static str,
    /// The reason.
    pub reason: &'static str,
}

/// All chosen differences.
pub const CHOSEN: [ChosenDifference; 6] =
    [OPEN_RELAY, SPECIAL_PEERS, NO_REALM, UNUSUAL_NAMES, NO_NUMBER, UNREAD_RULE];

const OPEN_RELAY: ChosenDifference = ChosenDifference {
    name: "open relay",
    reason: "coturn relays for everyone if a file has no way to log in; such relays are found and abused within hours",
};

const SPECIAL_PEERS: ChosenDifference = ChosenDifference {
    name: "special peers",
    reason: "coturn relays into the operator's network unless it is denied; here such peers are to be allowed",
};

const NO_REALM: ChosenDifference = ChosenDifference {
    name: "no realm",
    reason: "without a realm coturn sends challenges with an empty one, which no client can answer; here the realm is the host's name",
};

const UNUSUAL_NAMES: ChosenDifference = ChosenDifference {
    name: "unusual names",
    reason: "coturn answers 400 to realms and names with blanks, quotes or backslashes; here they are served",
};

const NO_NUMBER: ChosenDifference = ChosenDifference {
    name: "no number",
    reason: "coturn reads 0 from a value that is no number, and 0 is no limit; here the server does not start",
};

const UNREAD_RULE: ChosenDifference = ChosenDifference {
    name: "unread rule",
    reason: "coturn ignores a rule for peers in quotes or with a comment behind it; here the rule is in force",
};

/// Differences between coturn's answers and ours that are not chosen, each as a sentence; chosen
/// ones are added to `chosen`.
#[must_use]
pub fn unexplained(
    configuration: &Configuration,
    [theirs, ours]: [&Observation; 2],
    chosen: &mut Vec<ChosenDifference>,
) -> Vec<String> {
    let mut all = Vec::new();
    if theirs.is_up != ours.is_up {
        let is_no_number = ["a number is expected", "a port is expected"];
        if theirs.is_up && is_no_number.iter().any(|text| ours.output.contains(text)) {
            chosen.push(NO_NUMBER);
        } else {
            let up = |is_up| if is_up { "is up" } else { "is not up" };
            all.push(format!("coturn {}, this server {}", up(theirs.is_up), up(ours.is_up)));
        }
        return all;
    }
    let is_open = !theirs.allocations.is_empty()
        && theirs.allocations.iter().all(|one| matches!(one, Outcome::Granted(_)));
    if theirs.binding != ours.binding {
        if is_open && ours.binding.as_ref().is_some_and(is_refused) {
            chosen.push(OPEN_RELAY);
        } else {
            all.push(format!("Binding: {:?}, here {:?}", theirs.binding, ours.binding));
        }
    }
    for (index, (their, our)) in theirs.allocations.iter().zip(&ours.allocations).enumerate() {
        if kind(their) == kind(our) {
            continue;
        }
        match chosen_allocation(configuration, index, their) {
            Some(one) => chosen.push(one),
            None if is_open && !matches!(our, Outcome::Granted(_)) => chosen.push(OPEN_RELAY),
            None => all.push(format!("credential {index}: {their:?}, here {our:?}")),
        }
    }
    for (peer, their) in &theirs.peers {
        let Some(our) = ours.peers.get(peer) else { continue };
        if their == our {
            continue;
        }
        let is_denied = *our == Outcome::Refused(403);
        if is_special(*peer) && is_denied {
            chosen.push(SPECIAL_PEERS);
        } else if is_denied && configuration.has_unread_rule() {
            chosen.push(UNREAD_RULE);
        } else {
            all.push(format!("peer {peer}: {their:?}, here {our:?}"));
        }
    }
    all
}

/// The chosen difference behind an Allocate request that coturn does not answer.
fn chosen_allocation(
    configuration: &Configuration,
    index: usize,
    theirs: &Outcome,
) -> Option<ChosenDifference> {
    if !matches!(theirs, Outcome::Silence(_)) {
        return None;
    }
    let realm = configuration.realm();
    if realm.is_empty() {
        return Some(NO_REALM);
    }
    let is_unusual = |text: &str| text.contains([' ', '\t', '\'', '"', '\\']);
    let has_unusual_name = matches!(
        configuration.credentials.get(index),
        Some(Credential::User { name, .. }) if is_unusual(name)
    );
    (is_unusual(&realm) || has_unusual_name).then_some(UNUSUAL_NAMES)
}

fn is_refused(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Refused(_))
}

/// An outcome without what differs between servers of one host.
fn kind(outcome: &Outcome) -> String {
    if let Outcome::Granted(Some(address)) = outcome
        && address.to_string().starts_with("10.77.")
    {
        return "granted at an address of the host".to_owned();
    }
    format!("{outcome:?}")
}

/// Peers that are in no public network.
fn is_special(peer: IpAddr) -> bool {
    let IpAddr::V4(peer) = peer else { return false };
    peer.is_private()
        || peer.is_loopback()
        || peer.is_link_local()
        || peer.is_multicast()
        || peer.octets()[0] == 100
}
