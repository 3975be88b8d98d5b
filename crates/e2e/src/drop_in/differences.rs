//! Differences that are chosen, with their reasons.

use std::net::IpAddr;

use super::configuration::{Configuration, Credential};
use super::observation::{Observation, Outcome};

/// A difference between coturn and this server that is intended.
#[derive(Clone, Copy, Debug)]
pub struct ChosenDifference {
    /// The name.
    pub name: &'static str,
    /// The reason.
    pub reason: &'static str,
}

/// All chosen differences.
pub const CHOSEN: [ChosenDifference; 16] = [
    OPEN_RELAY,
    SPECIAL_PEERS,
    NO_REALM,
    UNUSUAL_NAMES,
    NO_NUMBER,
    NO_PORT,
    UNREAD_RULE,
    LOST_RULE,
    USELESS_ADDRESS,
    SILENT_DATABASE,
    NO_UTF_8,
    EMPTY_SECRET,
    MAPPED_FAMILY,
    UNKNOWN_RULES,
    PUBLIC_ADDRESS,
    EARLIER_ACCOUNT,
];

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
    reason: "coturn ignores a rule for peers in quotes, with a comment behind it, or with a prefix length; here the rule is in force",
};

const LOST_RULE: ChosenDifference = ChosenDifference {
    name: "lost rule",
    reason: "coturn goes on without a rule for peers that it cannot read, and relays to what it was to protect; here the server does not start",
};

const NO_PORT: ChosenDifference = ChosenDifference {
    name: "no port",
    reason: "coturn starts with a last port below the first one, and answers no Allocate request; here the server does not start",
};

const USELESS_ADDRESS: ChosenDifference = ChosenDifference {
    name: "useless address",
    reason: "coturn tells clients a public address of another family, or 0.0.0.0, which no peer reaches; here it is one of the family",
};

const SILENT_DATABASE: ChosenDifference = ChosenDifference {
    name: "silent database",
    reason: "while a database does not answer, coturn tells clients that their credentials are wrong; here they get 500, and try again",
};

const NO_UTF_8: ChosenDifference = ChosenDifference {
    name: "no UTF-8",
    reason: "coturn sends a realm in another encoding, and serves no client by it; here the server does not start",
};

const EMPTY_SECRET: ChosenDifference = ChosenDifference {
    name: "empty secret",
    reason: "coturn takes an empty value for a secret, with which everybody can log in; here nobody can",
};

const MAPPED_FAMILY: ChosenDifference = ChosenDifference {
    name: "mapped family",
    reason: "where clients get a relay of their own family, coturn counts IPv4 clients at `::` as IPv6, and refuses them without an IPv6 relay; here they get IPv4",
};

const UNKNOWN_RULES: ChosenDifference = ChosenDifference {
    name: "unknown rules",
    reason: "coturn relays without the peer rules of a database that it cannot read; here no peer is reached until they were read once",
};

const PUBLIC_ADDRESS: ChosenDifference = ChosenDifference {
    name: "public address",
    reason: "at a wildcard coturn takes its public address for one of loopback, and refuses it as a peer; here two clients of the server reach each other",
};

const EARLIER_ACCOUNT: ChosenDifference = ChosenDifference {
    name: "earlier account",
    reason: "coturn ends at an unknown account of any proc-user or proc-group; here the last of them counts",
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
        match chosen_refusal(configuration, theirs, ours) {
            Some(one) => chosen.push(one),
            None => {
                let up = |is_up| if is_up { "is up" } else { "is not up" };
                all.push(format!("coturn {}, this server {}", up(theirs.is_up), up(ours.is_up)));
            }
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
        if kind(their) == kind(our) || are_of_pairs(configuration, [their, our]) {
            continue;
        }
        match chosen_allocation(configuration, index, [their, our]) {
            Some(one) => chosen.push(one),
            // Other refusals, such as 508, have another reason.
            None if is_open && matches!(our, Outcome::Refused(401) | Outcome::Silence(_)) => {
                chosen.push(OPEN_RELAY);
            }
            None if is_silent_database([their, our], &ours.output) => chosen.push(SILENT_DATABASE),
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
        } else if is_denied && ours.output.contains("the database, which has not been read yet") {
            chosen.push(UNKNOWN_RULES);
        } else if *our == Outcome::Granted(None) && configuration.is_public_of_any(*peer) {
            chosen.push(PUBLIC_ADDRESS);
        } else if *their == Outcome::Refused(443) && configuration.maps_families() {
            chosen.push(MAPPED_FAMILY);
        } else {
            all.push(format!("peer {peer}: {their:?}, here {our:?}"));
        }
    }
    all
}

/// The chosen difference of a failed start.
fn chosen_refusal(
    configuration: &Configuration,
    theirs: &Observation,
    ours: &Observation,
) -> Option<ChosenDifference> {
    let says = |text: &str| ours.output.contains(text);
    let grants = theirs.allocations.iter().any(|one| matches!(one, Outcome::Granted(_)));
    if !theirs.is_up {
        configuration.has_earlier_account().then_some(EARLIER_ACCOUNT)
    } else if says("a number is expected") || says("a port is expected") {
        Some(NO_NUMBER)
    } else if says("an address, first-last or a network is expected") {
        Some(LOST_RULE)
    } else if says("it is not UTF-8") && !grants {
        Some(NO_UTF_8)
    } else {
        (says("that may be relayed from") && !grants).then_some(NO_PORT)
    }
}

/// Returns true for public addresses of pairs. Servers choose different pairs.
fn are_of_pairs(configuration: &Configuration, outcomes: [&Outcome; 2]) -> bool {
    outcomes.iter().all(|outcome| {
        matches!(outcome, Outcome::Granted(Some(address)) if configuration.is_of_pair(*address))
    })
}

/// Returns true for refused credentials of coturn and a failed look-up here.
fn is_silent_database([theirs, ours]: [&Outcome; 2], output: &str) -> bool {
    *theirs == Outcome::Refused(401)
        && matches!(ours, Outcome::Silence(_))
        && output.contains("reason=\"user_database_unavailable\"")
}

/// The chosen difference of an Allocate request.
fn chosen_allocation(
    configuration: &Configuration,
    index: usize,
    [theirs, ours]: [&Outcome; 2],
) -> Option<ChosenDifference> {
    if let [Outcome::Granted(Some(their)), Outcome::Granted(Some(our))] = [theirs, ours] {
        let is_useless = their.is_unspecified() || their.is_ipv4() != our.is_ipv4();
        return is_useless.then_some(USELESS_ADDRESS);
    }
    if configuration.credentials.get(index) == Some(&Credential::Secret(Vec::new())) {
        return matches!(ours, Outcome::Refused(401)).then_some(EMPTY_SECRET);
    }
    if let [Outcome::Refused(440), Outcome::Granted(Some(IpAddr::V4(_)))] = [theirs, ours] {
        return configuration.maps_families().then_some(MAPPED_FAMILY);
    }
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
