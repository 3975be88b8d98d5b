//! What the fuzz targets run, as plain functions: the corpus is replayed through the same functions
//! by the ordinary tests of the crates.

pub mod connection;
pub mod dtls;
pub mod server;
pub mod wire;
