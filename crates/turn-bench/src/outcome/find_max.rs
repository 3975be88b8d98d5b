//! The result of a search for the highest rate.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Traffic;

/// The highest rate that was delivered, and how it was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FindMax {
    /// The part of the packets that might be lost, 0 to 1.
    pub loss_max: f64,
    /// How long each try measured.
    pub step: Duration,
    /// What the rate is the limit of.
    pub limit: Limit,
    /// Every run that was made, in this order, the confirming one last.
    pub points: Vec<Point>,
    /// The run that shows the rate.
    pub confirmed: Traffic,
}

/// What a highest rate is the limit of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The server, or the way to it: a little more was lost, or over streams came too late or was
    /// held back.
    Server,
    /// Whoever sends: nothing was lost at all that it could send.
    Generator,
    /// Nothing: in no confirming run was so little lost.
    Unconfirmed,
}

/// What one run offered and what arrived of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Packets per second that were sent.
    pub offered: f64,
    /// Packets per second that arrived.
    pub delivered: f64,
    /// The part that did not, 0 to 1.
    pub loss: f64,
    /// Over streams: the part that clients were to send and could not, 0 to 1
    /// ([`Traffic::held_back`]).
    #[serde(default)]
    pub held_back: f64,
}
