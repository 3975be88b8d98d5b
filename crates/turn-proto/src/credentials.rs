//! Proofs of identity as plain values: the grant, which is the result of authentication, and
//! mobility tickets.

pub(crate) mod grant;
pub(crate) mod ticket;

pub(crate) use self::grant::{Grant, Integrity, Keys, TokenKeyDigest, TokenKeys, UserKeys};
pub(crate) use self::ticket::{Ticket, TicketBody};
