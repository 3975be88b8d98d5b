//! A test that frames arrive at the other end of a link.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use aya::maps::Array;

use super::Link;
use super::attach::interface_number;
use super::object::{self, array};
use super::source::send;

/// The shortest frame, to all, of the EtherType for local experiments (IEEE 802, clause 9.2.4),
/// which is ignored.
const FRAME: usize = 60;
const TO_ALL: [u8; 6] = [0xff; 6];
const TYPE: [u8; 2] = [0x88, 0xb5];

/// More than a link sends of itself in the time the probe takes.
const FRAMES: u32 = 64;

/// Time for the link to count them.
const LIMIT: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Sends experimental frames by a veth link, and checks that it took them.
///
/// The kernel reports no error otherwise: frames vanish unless the other end polls (NAPI), as it
/// does with an XDP program or GRO. Links of other drivers are not tested.
///
/// # Errors
/// Advice for the other end; missing privileges.
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
