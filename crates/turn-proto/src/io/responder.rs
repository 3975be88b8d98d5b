//! Writing of responses, with the attributes that every response has (RFC 8489 §§6.3.1, 9.2.4).

use alloc::sync::Arc;
use core::time::Duration;

use stun_wire::{
    AttributeType, Class, Message, MessageBuilder, Method, TransactionId, reason_phrase,
};
use turn_types::ClientPath;

use super::notice::RefusedRequest;
use super::refusal::Refusal;
use super::verdict::{DropReason, ReplyBuffer, Verdict};
use crate::credentials::Integrity;
use crate::policy::alternates::Alternate;

/// Parts of a request needed for the response. Stored while the request waits.
#[derive(Clone, Debug)]
pub(crate) struct Responder {
    pub(crate) path: ClientPath,
    pub(crate) method: Method,
    pub(crate) transaction: TransactionId,
    /// True if the request had a FINGERPRINT. The response then has a FINGERPRINT.
    fingerprint: bool,
    pub(crate) user: Option<Arc<str>>,
    account: Option<Arc<str>>,
    /// MESSAGE-INTEGRITY of responses to an authenticated request.
    integrity: Option<Integrity>,
    /// SOFTWARE of responses to an authenticated request.
    software: Option<Arc<str>>,
}

impl Responder {
    pub(crate) fn new(path: &ClientPath, message: &Message<'_>) -> Self {
        Self {
            path: *path,
            method: message.method(),
            transaction: message.transaction_id(),
            fingerprint: message.has_fingerprint(),
            user: None,
            account: None,
            integrity: None,
            software: None,
        }
    }

    /// Sets the user of a request without MESSAGE-INTEGRITY in the responses.
    pub(crate) fn named(mut self, user: Option<Arc<str>>) -> Self {
        self.user = user;
        self
    }

    /// Sets the account of the user, or of the name claimed by an unknown client.
    pub(crate) fn of_account(mut self, account: Option<Arc<str>>) -> Self {
        self.account = account;
        self
    }

    /// Adds MESSAGE-INTEGRITY to the responses, and SOFTWARE only together with MESSAGE-INTEGRITY.
    pub(crate) fn authenticated(
        mut self,
        user: Arc<str>,
        integrity: Option<Integrity>,
        software: Option<&Arc<str>>,
    ) -> Self {
        self.user = Some(user);
        self.software = software.filter(|_| integrity.is_some()).cloned();
        self.integrity = integrity;
        self
    }

    /// Returns the record of the refused request.
    pub(crate) fn refused(&self, reason: Refusal) -> RefusedRequest {
        let Self { path, method, ref user, ref account, .. } = *self;
        let (user, account) = (user.clone(), account.clone());
        let (claimed, peer, share) = (None, None, None);
        RefusedRequest { path, method, user, claimed, account, peer, share, reason }
    }

    /// Returns true if responses carry MESSAGE-INTEGRITY.
    pub(crate) const fn has_integrity(&self) -> bool {
        self.integrity.is_some()
    }

    /// Writes a success response with the attributes appended by `write`.
    pub(crate) fn success(
        &self,
        reply: &mut ReplyBuffer,
        write: impl FnOnce(&mut MessageBuilder<'_>),
    ) -> Verdict {
        let mut builder = MessageBuilder::new(reply, Class::Success, self.method, self.transaction);
        write(&mut builder);
        self.finish(builder, false)
    }

    /// Writes an error response with ERROR-CODE and the attributes appended by `write`.
    pub(crate) fn error(
        &self,
        reply: &mut ReplyBuffer,
        reason: Refusal,
        write: impl FnOnce(&mut MessageBuilder<'_>),
    ) -> Verdict {
        let mut builder = MessageBuilder::new(reply, Class::Error, self.method, self.transaction);
        builder.error_code(reason.code(), reason_phrase(reason.code()));
        write(&mut builder);
        self.finish(builder, true)
    }

    fn finish(&self, mut builder: MessageBuilder<'_>, error: bool) -> Verdict {
        if let Some(software) = &self.software {
            builder.software(software);
        }
        let len = match (&self.integrity, self.fingerprint) {
            (Some(with), true) => builder.integrity(with.kind, &with.key).fingerprint(),
            (Some(with), false) => builder.integrity(with.kind, &with.key).finish(),
            (None, true) => builder.fingerprint(),
            (None, false) => builder.finish(),
        };
        match len.and_then(|len| u16::try_from(len).ok()) {
            Some(len) => Verdict::Reply { len, error },
            // Not reached: settings limit the lengths of realm, software and domain.
            None => Verdict::Drop(DropReason::TooLong),
        }
    }
}

/// Returns LIFETIME for a duration, in whole seconds, rounded up.
pub(crate) fn whole_seconds(lifetime: Duration) -> u32 {
    let up = lifetime.as_secs() + u64::from(lifetime.subsec_nanos() > 0);
    u32::try_from(up).unwrap_or(u32::MAX)
}

/// Writes ALTERNATE-SERVER of the request's family, which must be first (RFC 8489 §10), then of the
/// other family. Writes ALTERNATE-DOMAIN if there is a certificate to compare with the domain.
pub(crate) fn write_alternate(builder: &mut MessageBuilder<'_>, alternate: Alternate<'_>) {
    builder.address(AttributeType::ALTERNATE_SERVER, alternate.first);
    if let Some(second) = alternate.second {
        builder.address(AttributeType::ALTERNATE_SERVER, second);
    }
    if let Some(domain) = alternate.domain {
        builder.alternate_domain(domain);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that refreshes after the rounded LIFETIME is late by less than a second. LIFETIME
    /// is 0 only if no time remains.
    #[test]
    fn a_lifetime_is_told_in_whole_seconds_rounded_up() {
        let told = [(0, 0), (0, 1), (599, 999_999_999), (600, 0), (600, 1), (u64::MAX, 0)]
            .map(|(secs, nanos)| whole_seconds(Duration::new(secs, nanos)));
        assert_eq!(told, [0, 1, 600, 600, 601, u32::MAX]);
    }
}
