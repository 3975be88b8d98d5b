//! Datagrams of clients and peers, and ICMP errors about sent datagrams.

mod icmp;
mod receive;

pub(crate) use icmp::serve_error_queue;
pub(crate) use receive::{DtlsDatagram, receive_from_clients, receive_from_peers};
