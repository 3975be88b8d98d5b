//! Messages between workers, and the bounded queues for these messages.

mod channels;
mod handover;
mod message;

pub(crate) use channels::WorkerReceiver;
pub use channels::{WorkerChannels, WorkerEndpoint};
pub(crate) use message::{MovedSockets, WorkerMessage};
