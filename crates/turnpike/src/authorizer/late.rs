//! Late answers about clients that `authorizer.when_silent` has served.

use std::collections::HashSet;
use std::net::IpAddr;

use control::{ControlError, Session, SessionFilter};
use turn_proto::{AllocationRecord, Applicant, Authorization, GrantLimits};
use turn_types::{Instant, Transport};

use super::Asking;

/// Transport and client addresses of an account's sessions.
pub(super) struct AccountSessions {
    clients: HashSet<(Transport, IpAddr)>,
    /// Creation time of the latest session that has moved since its creation (RFC 8016).
    moved: Option<Instant>,
}

impl AccountSessions {
    /// Returns true if a session may belong to a client that was served since the question was
    /// `opened`.
    pub(super) fn has(&self, applicant: &Applicant, opened: Instant) -> bool {
        self.clients.contains(&(applicant.transport, applicant.client.ip()))
            || self.moved.is_some_and(|created| created >= opened)
    }
}

impl Asking {
    /// Acts on a late answer about a client that was served since the question was `opened`.
    /// After a refusal the client's sessions are closed, and limits are applied to the sessions.
    pub(super) async fn act_late(
        &self,
        applicant: &Applicant,
        opened: Instant,
        answer: &Authorization,
    ) {
        match answer {
            Authorization::Denied => self.end_sessions(applicant, opened).await,
            Authorization::Granted(limits) if !limits.is_empty() => {
                self.limit_sessions(applicant, opened, limits).await;
            }
            Authorization::Granted(_)
            | Authorization::Unavailable
            | Authorization::Unusable
            | Authorization::Overloaded => {}
        }
    }

    /// Closes the sessions of a client that a late answer denies. The client may have moved.
    pub(super) async fn end_sessions(&self, applicant: &Applicant, opened: Instant) {
        // The search covers all sessions, so late answers are processed one at a time.
        let _turn = self.ending.lock().await;
        let ended = async {
            let mut ended = 0;
            for record in self.sessions_of(applicant, opened).await? {
                ended += u64::from(self.workers.end_session(record.id).await?);
            }
            Ok::<_, ControlError>(ended)
        };
        let Applicant { user, client, .. } = applicant;
        match ended.await {
            Ok(0) => {}
            Ok(ended) => tracing::info!(
                user = &**user, %client, ended,
                "the authorizer denies late: sessions that when_silent has served are ended"
            ),
            Err(error) => tracing::warn!(
                user = &**user, %client, %error,
                "the authorizer denies late, and sessions could not be ended"
            ),
        }
    }

    /// Applies limits to the sessions of a client. If the account has more than the permitted
    /// number of sessions, at all addresses, the client's latest sessions are closed.
    async fn limit_sessions(&self, applicant: &Applicant, opened: Instant, limits: &GrantLimits) {
        let _turn = self.ending.lock().await;
        let limited = async {
            let mut sessions = self.sessions_of(applicant, opened).await?;
            sessions.sort_by_key(|record| std::cmp::Reverse(record.created));
            let excess = match limits.allocations {
                Some(most) => self.number_of(applicant).await?.saturating_sub(most.get() as usize),
                None => 0,
            };
            for (number, record) in sessions.iter().enumerate() {
                if number < excess {
                    self.workers.end_session(record.id).await?;
                } else {
                    self.workers.limit_session(record.id, limits).await?;
                }
            }
            Ok::<_, ControlError>(sessions.len())
        };
        let Applicant { user, client, .. } = applicant;
        match limited.await {
            Ok(0) => {}
            Ok(limited) => tracing::info!(
                user = &**user, %client, limited,
                "the authorizer sets limits late: sessions that when_silent has served have them"
            ),
            Err(error) => tracing::warn!(
                user = &**user, %client, %error,
                "the authorizer sets limits late, and sessions could not be limited"
            ),
        }
    }

    /// Returns the number of sessions of the account, with any of its credentials.
    async fn number_of(&self, applicant: &Applicant) -> Result<usize, ControlError> {
        Ok(self.records_of_account(applicant).await?.count())
    }

    /// Returns the transports and addresses of the account's sessions, with any of its credentials.
    pub(super) async fn account_sessions(
        &self,
        applicant: &Applicant,
    ) -> Result<AccountSessions, ControlError> {
        let _turn = self.ending.lock().await;
        let mut sessions = AccountSessions { clients: HashSet::new(), moved: None };
        for AllocationRecord { five_tuple: path, has_moved, created, .. } in
            self.records_of_account(applicant).await?
        {
            sessions.clients.insert((path.transport, path.client.ip()));
            sessions.moved = sessions.moved.max(has_moved.then_some(created));
        }
        Ok(sessions)
    }

    async fn records_of_account(
        &self,
        applicant: &Applicant,
    ) -> Result<impl Iterator<Item = AllocationRecord> + use<>, ControlError> {
        let Applicant { realm, account, .. } = applicant.clone();
        let user = Some((*account).to_owned());
        let filter = SessionFilter { user, ..SessionFilter::default() };
        let sessions = self.workers.all_sessions(&filter).await?.into_iter();
        let records = sessions.map(|Session { record, .. }| record);
        Ok(records.filter(move |record| record.realm == realm && record.account == account))
    }

    /// Returns the sessions of a client, at any worker.
    async fn sessions_of(
        &self,
        applicant: &Applicant,
        opened: Instant,
    ) -> Result<Vec<AllocationRecord>, ControlError> {
        let user = Some((*applicant.user).to_owned());
        let filter = SessionFilter { user, ..SessionFilter::default() };
        let sessions = self.workers.all_sessions(&filter).await?.into_iter();
        let records = sessions.map(|Session { record, .. }| record);
        Ok(records.filter(|record| is_of(record, applicant, opened)).collect())
    }
}

/// Returns true for a session of a client. A client with a session created since the question was
/// `opened` may have moved (RFC 8016).
fn is_of(record: &AllocationRecord, applicant: &Applicant, opened: Instant) -> bool {
    let Applicant { realm, account, transport, client, .. } = applicant;
    let path = record.five_tuple;
    let is_same_client = path.transport == *transport && path.client.ip() == client.ip();
    let has_moved = record.has_moved && record.created >= opened;
    let is_same_account = record.realm == *realm && record.account == *account;
    is_same_account && (is_same_client || has_moved)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use turn_types::ClientAddr;

    use super::*;

    #[test]
    fn who_is_denied_late_may_have_moved() {
        let before = AllocationRecord::sample();
        let applicant = Applicant {
            realm: before.realm.clone(),
            user: before.user.clone(),
            account: before.account.clone(),
            transport: before.five_tuple.transport,
            client: before.five_tuple.client,
        };
        let [opened, created] = [10, 11].map(|second| Instant::ZERO + Duration::from_secs(second));
        assert!(is_of(&before, &applicant, opened), "at the same address");
        let mut other = before.clone();
        other.five_tuple.client = ClientAddr(([198, 51, 100, 1], 4000).into());
        other.five_tuple.transport = Transport::Tcp;
        assert!(!is_of(&AllocationRecord { created, ..other.clone() }, &applicant, opened));
        let moved = AllocationRecord { has_moved: true, ..other };
        assert!(!is_of(&moved, &applicant, opened), "an earlier one, which the service permitted");
        let moved = AllocationRecord { created, ..moved };
        assert!(is_of(&moved, &applicant, opened));
        assert!(!is_of(&AllocationRecord { realm: "another".into(), ..moved }, &applicant, opened));
        let token = AllocationRecord { account: "key#2".into(), ..before };
        assert!(!is_of(&token, &applicant, opened), "another access token of the key");
    }
}
