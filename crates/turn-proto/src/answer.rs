//! Writing answers: what each one carries whatever its method (RFC 8489 §§6.3.1, 9.2.4).

use alloc::sync::Arc;
use core::net::SocketAddr;

use stun_wire::{
    AttributeType, Class, Message, MessageBuilder, Method, TransactionId, reason_phrase,
};
use turn_types::{ClientPath, IpFamily, Transport};

use crate::auth::Seal;
use crate::notice::Refusal;
use crate::policy::{AlternateServer, Policy};
use crate::verdict::{DropReason, ReplyBuffer, Verdict};

/// All that an answer needs to know of its request; outlives the request when it waits.
#[derive(Clone, Debug)]
pub(crate) struct Responder {
    pub(crate) path: ClientPath,
    pub(crate) method: Method,
    pub(crate) transaction: TransactionId,
    /// The request had a FINGERPRINT: so has its answer.
    fingerprint: bool,
    pub(crate) user: Option<Arc<str>>,
    /// How answers to an authenticated request are sealed.
    seal: Option<Seal>,
}

impl Responder {
    pub(crate) fn new(path: &ClientPath, message: &Message<'_>) -> Self {
        Self {
            path: *path,
            method: message.method(),
            transaction: message.transaction_id(),
            fingerprint: message.has_fingerprint(),
            user: None,
            seal: None,
        }
    }

    /// As whom the request says it comes, if that is known.
    pub(crate) fn named(mut self, user: Option<Arc<str>>) -> Self {
        self.user = user;
        self
    }

    /// From now on answers are those to an authenticated request.
    pub(crate) fn authenticated(mut self, user: Arc<str>, seal: Option<Seal>) -> Self {
        self.user = Some(user);
        self.seal = seal;
        self
    }

    /// Whether answers go to somebody who has proved who they are.
    pub(crate) const fn is_sealed(&self) -> bool {
        self.seal.is_some()
    }

    /// A success response with what `write` puts in.
    pub(crate) fn success(
        &self,
        policy: &Policy,
        reply: &mut ReplyBuffer,
        write: impl FnOnce(&mut MessageBuilder<'_>),
    ) -> Verdict {
        let mut builder = MessageBuilder::new(reply, Class::Success, self.method, self.transaction);
        write(&mut builder);
        self.finish(policy, builder, false)
    }

    /// An error response with what `write` puts behind ERROR-CODE.
    pub(crate) fn error(
        &self,
        policy: &Policy,
        reply: &mut ReplyBuffer,
        reason: Refusal,
        write: impl FnOnce(&mut MessageBuilder<'_>),
    ) -> Verdict {
        let mut builder = MessageBuilder::new(reply, Class::Error, self.method, self.transaction);
        builder.error_code(reason.code(), reason_phrase(reason.code()));
        write(&mut builder);
        self.finish(policy, builder, true)
    }

    /// Strangers are not told what software this is.
    fn finish(&self, policy: &Policy, mut builder: MessageBuilder<'_>, error: bool) -> Verdict {
        if self.is_sealed()
            && let Some(software) = &policy.software
        {
            builder.software(software);
        }
        let len = match (&self.seal, self.fingerprint) {
            (Some(seal), true) => builder.integrity(seal.kind, &seal.key).fingerprint(),
            (Some(seal), false) => builder.integrity(seal.kind, &seal.key).finish(),
            (None, true) => builder.fingerprint(),
            (None, false) => builder.finish(),
        };
        match len.and_then(|len| u16::try_from(len).ok()) {
            Some(len) => Verdict::Reply { len, error },
            // Settings keep realm, software and domain short enough for this not to happen.
            None => Verdict::Drop(DropReason::TooLong),
        }
    }
}

/// Where a client of this family may be sent, if anywhere: the first ALTERNATE-SERVER must be of the
/// request's own family (RFC 8489 §10).
pub(crate) fn alternate_for(policy: &Policy, family: IpFamily) -> Option<&AlternateServer> {
    policy.alternate.as_ref().filter(|alternate| alternate_of(alternate, family).is_some())
}

/// ALTERNATE-SERVER of the request's family, then of the other; ALTERNATE-DOMAIN where there is a
/// certificate to compare it with.
pub(crate) fn write_alternate(
    builder: &mut MessageBuilder<'_>,
    alternate: &AlternateServer,
    path: &ClientPath,
) {
    let family = path.five_tuple.client.family();
    for family in [family, family.other()] {
        if let Some(addr) = alternate_of(alternate, family) {
            builder.address(AttributeType::ALTERNATE_SERVER, addr);
        }
    }
    if let Some(domain) = &alternate.domain
        && matches!(path.five_tuple.transport, Transport::Tls | Transport::Dtls)
    {
        builder.alternate_domain(domain);
    }
}

const fn alternate_of(alternate: &AlternateServer, family: IpFamily) -> Option<SocketAddr> {
    match family {
        IpFamily::V4 => alternate.v4,
        IpFamily::V6 => alternate.v6,
    }
}
