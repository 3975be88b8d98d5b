//! The reasons of refusals, drops and ends: one name in log, metric, JSON and page; a meaning, and
//! advice.

mod drops;
mod ends;
mod refusals;

use turn_proto::{DropReason, EndReason, PeerRefusal, Refusal};

use crate::{AssociationEnd, AssociationRefusal, StreamEnd, StreamRefusal};

/// A reason for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The subject that it is of.
    pub subject: Subject,
    /// Its name, the same everywhere.
    pub name: &'static str,
    /// The STUN error code that the client is told, where it is told one.
    pub code: Option<u16>,
    /// Meaning.
    pub meaning: &'static str,
    /// Advice; empty where nothing is to be done.
    pub advice: &'static str,
}

turn_types::labels! {
    /// The subject of a reason.
    Subject {
        /// A request that was answered with an error.
        Request => "request",
        /// A packet for which nothing was sent.
        Packet => "packet",
        /// An allocation that ended.
        Allocation => "allocation",
        /// A connection of a client (TCP, TLS) that was not accepted.
        ConnectionRefused => "connection_refused",
        /// A connection of a client (TCP, TLS) that ended.
        Connection => "connection",
        /// A DTLS session that did not begin.
        SessionRefused => "dtls_session_refused",
        /// A DTLS session that ended.
        Session => "dtls_session",
        /// A connection of a peer (RFC 6062) that was closed as it came.
        Peer => "peer_connection",
    }
}

/// The reason of a refused request.
#[must_use]
pub const fn of_refusal(refusal: Refusal) -> Reason {
    refusals::reason(refusal)
}

/// The reason of a dropped packet.
#[must_use]
pub fn of_drop(drop: DropReason) -> Reason {
    let subject = Subject::Packet;
    let (name, meaning) = (drop.label(), drop.meaning());
    Reason { subject, name, code: None, meaning, advice: drops::advice(drop) }
}

/// The reasons of a subject.
#[must_use]
pub fn of(subject: Subject) -> Vec<Reason> {
    let reason = |name, meaning, advice| Reason { subject, name, code: None, meaning, advice };
    match subject {
        Subject::Request => Refusal::ALL.iter().map(|&one| refusals::reason(one)).collect(),
        Subject::Packet => DropReason::ALL.iter().map(|&one| of_drop(one)).collect(),
        Subject::Allocation => EndReason::ALL
            .iter()
            .map(|&one| reason(one.label(), one.meaning(), ends::allocation(one)))
            .collect(),
        Subject::ConnectionRefused => StreamRefusal::ALL
            .iter()
            .map(|&one| reason(one.label(), one.meaning(), ends::connection_refused(one)))
            .collect(),
        Subject::Connection => StreamEnd::ALL
            .iter()
            .map(|&one| reason(one.label(), one.meaning(), ends::connection(one)))
            .collect(),
        Subject::SessionRefused => AssociationRefusal::ALL
            .iter()
            .map(|&one| reason(one.label(), one.meaning(), ends::session_refused(one)))
            .collect(),
        Subject::Session => AssociationEnd::ALL
            .iter()
            .map(|&one| reason(one.label(), one.meaning(), ends::session(one)))
            .collect(),
        Subject::Peer => PeerRefusal::ALL
            .iter()
            .map(|&one| reason(one.label(), one.meaning(), ends::peer(one)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_reason_of_a_subject_has_a_name_of_its_own_and_a_meaning() {
        for &subject in Subject::ALL {
            let all = of(subject);
            let names: BTreeSet<_> = all.iter().map(|reason| reason.name).collect();
            assert_eq!(names.len(), all.len(), "{subject:?}");
            for reason in all {
                assert!(reason.meaning.ends_with('.'), "{reason:?}");
                assert!(reason.advice.is_empty() || reason.advice.ends_with('.'), "{reason:?}");
            }
        }
    }
}
