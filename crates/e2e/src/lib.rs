//! The real binary in network namespaces, with third-party clients.
//!
//! A [`Lab`] is three hosts in a row: client, server, peer. The client reaches the peer only
//! through the server. Each test makes its own lab; everything in it ends with the value.
#![forbid(unsafe_code)]

mod browser;
mod call;
mod caller;
pub mod certificates;
mod clients;
pub mod drop_in;
mod echo_call;
mod echo_peer;
mod lab;
mod machine;
mod nat;
mod rounds;
pub mod said;
mod secure;
mod server;
mod tool;
mod uclient;

pub use browser::Browser;
pub use call::{Call, Sent, Stop};
pub use caller::{Caller, Data};
pub use certificates::Certificates;
pub use clients::{
    aioice, chromium, coturn, helm, pebble, pion, pion_run, pion_run_to, prometheus,
};
pub use echo_call::EchoCall;
pub use echo_peer::{ECHO_PORT, echo_peer};
pub use lab::{Addresses, Host, Lab};
pub use machine::{Machine, debian_packed};
pub use nat::{Dependence, INSIDE, Nat};
pub use rounds::Rounds;
pub use secure::SecureScene;
pub use server::{Account, Config, Operator, Server, binary};
pub use test_support::{require, skip};
pub use tool::{Running, Tool, repository};
pub use uclient::{assert_conflict_is_refused, assert_echoed, uclient};
