//! What to measure.

use std::ops::RangeInclusive;
use std::time::Duration;

use clap::Args;

use super::Strategy;
use super::sessions::SESSIONS_MAX;
use crate::arguments::{self, OutputArgs};
use crate::packet::HEADER;
use crate::traffic::Shape;

/// Measures ways to relay UDP without TURN: what this machine can do before TURN is in the way.
///
/// A client registers an id, peers send packets that begin with it, the relay sends them on to the
/// client. The relay has cores of its own (the last of those allowed), and clients and peers the
/// others; two at least. With privileges the ends are in network namespaces of their own, with a
/// link between them, and the relay's cores pay for what the relay receives and sends. Without, all
/// is on the loopback, where the sender's core pays for receiving too: figures of the two are not
/// comparable.
///
/// The peers always have packets on their way, but no more than the relay has room for, so that
/// what is delivered is what the relay can do.
#[derive(Clone, Debug, Args)]
pub struct LabOptions {
    /// Only this way to relay; may be given more than once. All of them otherwise.
    #[arg(long = "strategy", value_enum, value_name = "STRATEGY")]
    pub strategies: Vec<Strategy>,
    /// Threads of the relay, each on a core of its own.
    #[arg(long, default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,
    /// Sessions, each with a client and a peer of its own.
    #[arg(long, default_value_t = 100, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=SESSIONS_MAX as i64))]
    pub sessions: u32,
    /// Payload bytes of a packet, without the 8 of its session id.
    #[arg(long, default_value_t = 200, value_name = "BYTES",
        value_parser = clap::value_parser!(u16).range(HEADER as i64..=1400))]
    pub size: u16,
    /// How many packets a session sends when it has its turn.
    #[arg(long, value_enum, default_value_t = Shape::Video)]
    pub shape: Shape,
    /// How long each run is measured, in seconds.
    #[arg(long, default_value = "3", value_name = "SECONDS", value_parser = seconds)]
    pub seconds: Duration,
    /// Runs of each strategy. They take turns; the run in the middle is shown.
    #[arg(long, default_value_t = 3, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=99))]
    pub rounds: u16,
    /// Packets on their way at once, over all sessions. By default as many as the sockets have room
    /// for, 1024 at most.
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..))]
    pub window: Option<u32>,
    /// Use the loopback even where namespaces could be made.
    #[arg(long)]
    pub loopback: bool,
    /// Where the outcome goes.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Do not say on standard error how far it is.
    #[arg(long)]
    pub quiet: bool,
}

/// A shorter run would measure its own beginning and end; a longer one tells nothing new.
const SECONDS: RangeInclusive<f64> = 0.1..=600.0;

fn seconds(text: &str) -> Result<Duration, String> {
    let time = arguments::seconds(text)?;
    if SECONDS.contains(&time.as_secs_f64()) {
        Ok(time)
    } else {
        Err(format!("{} to {} seconds", SECONDS.start(), SECONDS.end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_bounds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["", "x", "0", "-1", "601", "NaN", "inf"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
