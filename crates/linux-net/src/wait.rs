//! Waiting for descriptors, and waking a thread that waits.

mod epoll;
mod waker;

pub use epoll::{Epoll, Event, Events, Interest};
pub use waker::{WakeReceiver, Waker};
