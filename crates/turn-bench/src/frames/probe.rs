//! Whether frames arrive at the other end of a link.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use aya::maps::Array;

use super::Link;
use super::attach::interface_number;
use super::object::{self, array};
use super::source::send;

/// A frame to all, the shortest, of a type that is free for experiments (IEEE 802, clause 9.2.4):
/// nobody does anything with it.
const FRAME: usize = 60;
const TO_ALL: [u8; 6] = [0xff; 6];
const TYPE: [u8; 2] = [0x88, 0xb5];

/// More than a link sends of itself in the time the probe takes.
const FRAMES: u32 = 64;

/// How long the link may take to count them.
const LIMIT: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Sends frames that mean nothing to anybody by a veth link, and looks whether it took them.
///
/// The kernel says nothing when it did not: frames for the other end vanish unless that end polls,
/// as it does with an XDP program on it, or with GRO. Other drivers count in their own time and
/// way, and are believed.
///
/// # Errors
/// What to do at the other end; privileges are missing.
pub fn probe(link: &Link) -> Result<()> {
    if !link.veth {
        return Ok(());
    }
    let mut object = object::open(object::PROBE)?;
    object::load(&mut object, "probe")?;
    let mut interfaces: Array<_, u32> = array(&mut object, "interfaces")?;
    let number = interface_number(&link.interface)?;
    interfaces.set(0, number, 0).context("cannot write by which link frames leave")?;

    let mut frame = [0; FRAME];
    frame[..6].copy_from_slice(&TO_ALL);
    frame[6..12].copy_from_slice(&link.mac.0);
    frame[12..14].copy_from_slice(&TYPE);
    let goal = link.sent()? + u64::from(FRAMES);
    send(&object, "probe", (&frame, 0), FRAMES).context("cannot send frames")?;
    let deadline = Instant::now() + LIMIT;
    while link.sent()? < goal {
        if Instant::now() > deadline {
            bail!(
                "frames sent by {} do not arrive: the other end of this veth link takes none until it polls; where that end is, run `ethtool -K INTERFACE gro on`",
                link.interface
            );
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
