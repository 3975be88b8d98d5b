//! The server's side of DTLS 1.2 (RFC 6347, RFC 7350), as values: datagrams in, datagrams out, no
//! sockets.
//!
//! ```text
//! client                                     server
//! ClientHello                  ------------>           CookieHandler: stateless answer
//!                              <------------  HelloVerifyRequest (cookie)
//! ClientHello (cookie)         ------------>           CookieHandler: verified; an engine starts
//!                              <------------  ServerHello .. ServerHelloDone
//! ClientKeyExchange .. Finished ----------->           engine: OpenSSL
//!                              <------------  ChangeCipherSpec, Finished
//! data                         <----------->           engine: this crate's record layer
//! ```
//!
//! A client that returns the cookie proves that packets to its address arrive. Until then, the
//! server keeps no state and sends nothing larger than the client's datagram (RFC 6347 §4.2.1).
//!
//! Each verified session has a [`DtlsEngine`]. OpenSSL performs the handshake, and the record layer
//! of this crate uses the resulting keys. The [state](DtlsState) of an established session can move
//! to another process.

mod association;
mod context;
mod cookie;
mod cookie_handler;
mod engine;
mod handshake;
mod hello;
mod keys;
mod limits;
mod pieces;
mod protection;
mod record;
mod record_filter;
mod replay;
mod session;
mod state;

pub use association::resume;
pub use context::DtlsConfig;
pub use cookie::Cookies;
pub use cookie_handler::{ANSWER_MAX, Answer, CookieHandler, HelloOutcome};
pub use engine::{DtlsEnd, DtlsEngine, Exchange, NotSent, Refused};
pub use handshake::DtlsError;
pub use hello::{HELLO_MAX, Hello, HelloError};
pub use pieces::{HelloPiece, PartialHello};
pub use record::{begins_handshake, is_dtls};
pub use state::DtlsState;

/// Maximum number of bytes that protection adds to a plaintext: header, explicit nonce and tag (RFC
/// 6347 §4.1, RFC 5288 §3), with a margin.
pub const OVERHEAD_MAX: usize = 64;

/// Maximum length of a record's plaintext in bytes (RFC 6347 §4.1.1).
pub const PLAINTEXT_MAX: usize = 1 << 14;
