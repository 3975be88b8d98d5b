//! Session protocols between the bytes of a connection and its messages. Each is a value: bytes in,
//! bytes out, no sockets and no clock.
//!
//! - [`proxy_protocol`] reads the client's address from a load balancer's header.
//! - [`dtls`] answers unknown clients without state, and implements the server's side of DTLS for
//!   verified clients.
//! - [`OutQueue`] is a bounded queue of unsent bytes.
//! - [`Tls`] is the server's side of TLS, with the current [`Certificates`].
//! - [`classify_request`] recognises HTTP requests on a STUN port.
//! - [`detect_protocol`] recognises STUN, TLS and HTTP by the first byte: a single port serves all
//!   three.
#![forbid(unsafe_code)]

mod address_pair;
mod aead;
mod certificates;
pub mod dtls;
mod first_bytes;
mod http;
mod out_queue;
pub mod proxy_protocol;
mod tls;
mod tls_rules;

pub use address_pair::AddressPair;
pub use certificates::{
    Certificate, CertificateError, Certificates, Challenges, ClientAuthorities, with_usual_labels,
};
pub use first_bytes::{StreamProtocol, detect_protocol};
pub use http::{HttpRequest, classify_request};
pub use out_queue::{OutQueue, Outgoing, QueueFull, QueuedMessage};
pub use tls::{RECORDS_PER_TAKE, Tls, TlsConfig, TlsError, TlsState, https_config, tls_config};
pub use tls_rules::{CipherSuite, KeyExchange, TlsRules, TlsVersions};
