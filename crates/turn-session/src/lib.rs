//! What lies between the bytes of a connection and the messages in them, as values: bytes in, bytes
//! out, no sockets and no clock.
//!
//! - [`proxy_protocol`] says who is behind a load balancer, before all else.
//! - [`dtls`] answers strangers without keeping anything of them, and is the server's end of DTLS for the others.
//! - [`OutQueue`] holds what the other end has not taken yet, within a bound.
//! - [`Tls`] is the server's end of TLS, with the [`Certificates`] in force.
//! - [`classify_request`] tells what a web client wants.
//! - [`detect_protocol`] tells by the first bytes what a connection is used for: one port is for all of it.
#![forbid(unsafe_code)]

mod address_pair;
mod certificates;
pub mod dtls;
mod first_bytes;
mod http;
mod out_queue;
pub mod proxy_protocol;
mod tls;

pub use address_pair::AddressPair;
pub use certificates::{Certificate, CertificateError, Certificates, ClientAuthorities};
pub use first_bytes::{StreamProtocol, detect_protocol};
pub use http::{HttpRequest, classify_request};
pub use out_queue::{OutQueue, Outgoing, QueueFull};
pub use tls::{Tls, TlsConfig, TlsError, tls_config};
