//! Application of operators' revocations: the workers refuse the credential, and its sessions end.

use std::sync::Arc;

use control::{
    ControlError, Handle, OperatorError, OperatorErrorKind, Revocable, Revocation, RevokeReport,
    RevokeWish, RevokedKind, SessionFilter, SessionNames,
};
use linux_net::Clock;
use turn_proto::Policy;
use turn_types::Realm;

use crate::boot;
use crate::file_writer::Written;
use crate::reload::InForce;
use crate::revocations::{end_after, end_of_name};

impl InForce {
    /// Refuses a credential from now on, and closes the credential's sessions. Another thread
    /// writes the file.
    ///
    /// # Errors
    /// The revocation is invalid or the table is full, or a worker does not respond.
    pub(crate) async fn revoke(
        &mut self,
        handle: &Handle,
        wish: RevokeWish,
    ) -> Result<(RevokeReport, Written), OperatorError> {
        let what = &wish.what;
        let now = Clock::now();
        let until = match (wish.lasts, what.kind) {
            (Some(lasts), _) => end_after(now.unix.0, lasts),
            (None, RevokedKind::Name) => {
                end_of_name(&what.name, self.policy.auth.separator, now.unix.0)
            }
            (None, RevokedKind::Secret | RevokedKind::TokenKey) => None,
        };
        let revocation = self.revocations.add(&self.policy, &wish, now, until)?;
        let sessions = sessions(handle, &revocation).await;
        self.put_revocations(handle, (*self.policy).clone()).await.map_err(unanswered)?;
        let ended = match revocation.kind {
            RevokedKind::Name | RevokedKind::TokenKey => sessions,
            RevokedKind::Secret => {
                let realm = Realm::from(revocation.realm.as_str());
                handle.workers.end_unaccepted(Some(&realm)).await
            }
        };
        let ended = ended.map_err(unanswered)?;
        let Revocation { realm, name, .. } = &revocation;
        if revocation.kind == RevokedKind::Name {
            // No hand-over takes place during a change.
            let _ = handle.forget_user(realm, name);
        }
        tracing::info!(
            kind = ?revocation.kind, realm, name, ended, until = revocation.until_unix, "revoked"
        );
        Ok((RevokeReport { revocation, ended }, self.revocations.store()))
    }

    /// Removes a revocation. Another thread writes the file.
    ///
    /// # Errors
    /// The credential is not revoked, the rules cannot be built, or a worker does not respond.
    pub(crate) async fn restore(
        &mut self,
        handle: &Handle,
        what: &Revocable,
    ) -> Result<(Revocation, Written), OperatorError> {
        let revocation = self.revocations.remove(&self.policy, what)?;
        // The rules in effect do not contain revoked secrets, so the rules are built again from the
        // settings.
        let (own_key, workers) = (self.policy.ticket_key, handle.workers.count());
        let rules = boot::rules(&self.settings, &self.own, own_key, Some(&self.policy), workers);
        let rules = rules.map_err(|failure| {
            failed(format!("the rules could not be made again: {}", failure.reason()), "reload")
        })?;
        self.put_revocations(handle, rules).await.map_err(unanswered)?;
        let Revocation { realm, name, .. } = &revocation;
        tracing::info!(kind = ?revocation.kind, realm, name, "a revocation was taken back");
        Ok((revocation, self.revocations.store()))
    }

    /// Removes expired revocations. Returns the write of the file, or `None` if no revocation has
    /// expired.
    pub(crate) async fn prune_revocations(&mut self, handle: &Handle) -> Option<Written> {
        if !self.revocations.prune(Clock::now()) {
            return None;
        }
        if self.put_revocations(handle, (*self.policy).clone()).await.is_err() {
            tracing::warn!("revocations whose time is over may still be in force: reload");
        }
        Some(self.revocations.store())
    }

    async fn put_revocations(
        &mut self,
        handle: &Handle,
        rules: Policy,
    ) -> Result<(), ControlError> {
        let policy = Arc::new(self.revocations.put_in(rules));
        self.policy = Arc::clone(&policy);
        handle.workers.apply(policy).await
    }
}

/// Waits until the file contains a change, and returns the report of the change.
///
/// # Errors
/// The change failed, or is in effect but could not be stored.
pub(crate) async fn stored<Report>(
    changed: Result<(Report, Written), OperatorError>,
) -> Result<Report, OperatorError> {
    let (report, written) = changed?;
    written.wait().await.map_err(|error| {
        failed(
            format!("this is in force, and could not be stored: {error}"),
            "a restart or an upgrade forgets it: see that data.directory can be written, and repeat the command",
        )
    })?;
    Ok(report)
}

/// Returns the number of live sessions of a name or a token key.
async fn sessions(handle: &Handle, revocation: &Revocation) -> Result<u64, ControlError> {
    let names = match revocation.kind {
        RevokedKind::Name => SessionNames::Revocable,
        RevokedKind::TokenKey => SessionNames::TokenKey,
        RevokedKind::Secret => return Ok(0),
    };
    let filter = SessionFilter { user: Some(revocation.name.clone()), names, after: None };
    let all = handle.workers.all_sessions(&filter).await?;
    let in_realm = all.iter().filter(|session| *session.record.realm == *revocation.realm);
    Ok(in_realm.count() as u64)
}

fn unanswered(error: ControlError) -> OperatorError {
    failed(error.to_string(), "some workers may not know it yet: repeat the command")
}

fn failed(error: String, hint: &str) -> OperatorError {
    OperatorError { kind: OperatorErrorKind::Failed, error, hint: hint.to_owned() }
}
