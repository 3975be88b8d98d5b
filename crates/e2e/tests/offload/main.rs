//! The kernel path of the real binary: what it relays is what sockets would have relayed, and it ends
//! when they would have ended.

mod bursts;
mod clients;
mod connections;
mod devices;
mod ends;
mod frames;
mod paths;
mod pins;
mod privileges;
mod reloads;
mod rules;
mod scene;
mod stacked;
mod ways;

use scene::{Call, Scene, by_xdp_and_tc, wait_until};
