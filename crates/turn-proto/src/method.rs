//! Methods of requests, one file each. Each method takes only the stores that it needs. For Refresh
//! by mobility ticket see `mobility`.

pub(crate) mod allocate;
pub(crate) mod authorize;
pub(crate) mod binding;
pub(crate) mod channel_bind;
pub(crate) mod classic;
pub(crate) mod connect;
pub(crate) mod connection_attempt;
pub(crate) mod connection_bind;
pub(crate) mod create_permission;
pub(crate) mod discovery;
pub(crate) mod forbidden_peer;
pub(crate) mod open_relay;
pub(crate) mod refresh;
