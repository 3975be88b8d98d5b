//! What lies between the bytes of a connection and the messages in them, as values: bytes in, bytes
//! out, no sockets and no clock.
//!
//! - [`proxy_protocol`] says who is behind a load balancer, before all else.
//! - [`dtls`] answers strangers without keeping anything of them, and is the server's end of DTLS for the others.
//! - [`OutQueue`] holds what the other end has not taken yet, within a bound.
//! - [`Tls`] is the server's end of TLS, with the [`Certificates`] in force.
//! - [`asks`] tells what a web client wants.
//! - [`speaks`] tells by the first bytes what a connection is used for: one port is for all of it.
#![forbid(unsafe_code)]

mod certificates;
pub mod dtls;
mod first_bytes;
mod http;
mod out_queue;
pub mod proxy_protocol;
mod tls;

pub use certificates::{
    Certificate, CertificateError, Certificates, ClientAuthorities, tls_config,
};
pub use first_bytes::{Speaks, speaks};
pub use http::{Asks, asks};
pub use out_queue::{OutQueue, Outgoing, Stuck};
pub use tls::{Tls, TlsConfig, TlsError};
