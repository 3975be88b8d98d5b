//! TURN clients over real sockets: a [`turn_client::Client`] and its socket or connection, one or
//! many.
//!
//! ```text
//! pool        many clients on one epoll
//! link        a client and its wire          endpoint  the server, the transport, socket options
//! wire        a UDP socket, or a connection
//! connection  one of the next two, shared by a thread that sends and one that receives
//! stream      TCP, plain or in TLS           dtls      a DTLS session over UDP
//! ```
//!
//! Nothing blocks: [`Wire::watch`] registers a wire with an epoll, and [`Pool::turn`] is the one
//! place that waits. Versions, cipher suites and the verification of certificates are the caller's,
//! in [`Transport`].

mod connection;
mod dtls;
mod endpoint;
mod link;
mod pool;
mod stream;
mod wire;

pub use connection::{Connection, RECEIVE_BYTES, SharedConnection};
pub use dtls::begin as begin_dtls;
pub use endpoint::{Endpoint, Transport};
pub use link::Link;
pub use pool::{Pool, PoolEvent};
pub use wire::Wire;
