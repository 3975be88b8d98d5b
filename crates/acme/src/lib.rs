//! Certificates from a certificate authority, by ACME (RFC 8555): an account is kept, the names are
//! verified by HTTP-01 (RFC 8555 §8.3) or TLS-ALPN-01 (RFC 8737) at the server's own ports, and the
//! certificate is stored.
//!
//! The caller decides when ([`Store::renewal`]), and reads the stored file.

mod error;
mod http;
mod http_failure;
pub mod limits;
mod order;
mod problem;
mod store;

pub use error::AcmeError;
pub use order::{Challenge, Order};
pub use outgoing_http::Roots;
pub use store::{Renewal, Store};
