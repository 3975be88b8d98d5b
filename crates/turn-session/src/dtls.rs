//! The server's end of DTLS 1.2 (RFC 6347, RFC 7350), as values: datagrams in, datagrams out, no sockets.
//!
//! ```text
//! client                                     server
//! ClientHello                  ------------>           Front: answers, keeps nothing
//!                              <------------  HelloVerifyRequest (cookie)
//! ClientHello (cookie)         ------------>           Front: it is verified; an engine begins
//!                              <------------  ServerHello .. ServerHelloDone
//! ClientKeyExchange .. Finished ----------->           the engine's
//!                              <------------  ChangeCipherSpec, Finished
//! ```
//!
//! Until a client has shown by the cookie that it receives what is sent to its address, nothing is
//! remembered of it and nothing larger than what it sent goes there (RFC 6347 §4.2.1). What is behind
//! that is a [`DtlsEngine`], of which there is one for each association.

mod context;
mod cookie;
mod cookie_handler;
mod engine;
mod hello;
mod openssl;
mod record;
mod record_filter;

pub use context::DtlsConfig;
pub use cookie::Cookies;
pub use cookie_handler::{ANSWER_MAX, Answer, CookieHandler, HelloOutcome};
pub use engine::{DtlsEnd, DtlsEngine, Exchange, NotSent, Refused};
pub use hello::{HELLO_MAX, Hello, HelloError};
pub use openssl::DtlsError;
pub use record::{begins_handshake, is_dtls};

/// What a datagram is longer by than what it carries: the header, an explicit nonce and a tag (RFC 6347
/// §4.1, RFC 5288 §3), and some more.
pub const OVERHEAD_MAX: usize = 64;

/// What a record carries at most (RFC 6347 §4.1.1).
pub const PLAINTEXT_MAX: usize = 1 << 14;
