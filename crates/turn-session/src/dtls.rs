//! The server's end of DTLS 1.2 (RFC 6347, RFC 7350), as values: datagrams in, datagrams out, no
//! sockets.
//!
//! ```text
//! client                                     server
//! ClientHello                  ------------>           CookieHandler: stateless answer
//!                              <------------  HelloVerifyRequest (cookie)
//! ClientHello (cookie)         ------------>           CookieHandler: verified; an engine starts
//!                              <------------  ServerHello .. ServerHelloDone
//! ClientKeyExchange .. Finished ----------->           engine
//!                              <------------  ChangeCipherSpec, Finished
//! ```
//!
//! Before a client returns the cookie, and so shows that it receives at its address, the server
//! keeps no state and sends nothing larger than it received (RFC 6347 §4.2.1). Each verified
//! session has a [`DtlsEngine`].

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

/// Most bytes that a datagram adds to its plaintext: the header, an explicit nonce and a tag (RFC
/// 6347 §4.1, RFC 5288 §3), with a margin.
pub const OVERHEAD_MAX: usize = 64;

/// Longest plaintext of a record (RFC 6347 §4.1.1).
pub const PLAINTEXT_MAX: usize = 1 << 14;
