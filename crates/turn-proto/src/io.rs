//! Plain inputs and outputs of the server. Nothing here knows of its state.

pub(crate) mod command;
pub(crate) mod event;
pub(crate) mod notice;
pub(crate) mod queued_packet;
pub(crate) mod request;
pub(crate) mod responder;
pub(crate) mod route;
pub(crate) mod verdict;
pub(crate) mod worker;
