//! Sending the frames of a run.

use std::fmt;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use aya::Ebpf;
use aya::programs::{ProgramError, TestRun as _, Xdp};
use aya::{TestRunAttrs, TestRunOptions};

use super::FrameFlow;
use super::shared::{Place, Shared, State};
use super::template::{Shape, template};
use crate::packet::HEADER;

/// Frames per batch of the kernel, well below the 256 that the far end of a veth link queues.
const BATCH: u32 = 64;

/// The longest packet: with its headers it fits a link of 1500 bytes.
const SIZE_MAX: u16 = 1400;

const REFUSED: &str =
    "the kernel sends no frames made by a program (Linux 5.18 and CAP_NET_ADMIN are wanted)";

/// Words of [`State`].
const MISSED: usize = 14;
const MADE: usize = 18;
const MEASURED: usize = 19;

/// Frames of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRun {
    /// The run, not 0.
    pub run: u32,
    /// Payload bytes of each packet, [`HEADER`] to 1400.
    pub size: u16,
    /// Packets of a flow when it has its turn, at least 1.
    pub burst: u32,
    /// The measured time, by the monotonic clock in nanoseconds.
    pub window: Range<u64>,
    /// The schedule.
    pub pace: Pace,
}

/// Schedule of frames. Times are of the monotonic clock, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Frames leave only within this time.
    pub time: Range<u64>,
    /// Interval of clumps.
    pub clump: u64,
    /// From one burst to the next, in 1/256 ns; 0 is as fast as it goes.
    pub step: u64,
}

impl Pace {
    /// At once, whenever asked for.
    pub const AT_ONCE: Self = Self { time: 0..u64::MAX, clump: 1, step: 0 };
}

/// Frames made since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// All of them.
    pub all: u64,
    /// Frames of the measured time.
    pub measured: u64,
    /// Skipped bursts of the measured time, because the core was preempted.
    pub missed: u64,
}

/// Makes the frames of some flows and sends them by the link of its port.
///
/// Frames leave from the calling core, in the network namespace of the link. A frame that the link
/// does not take, because the queue of the other end is full, was sent and is lost, as with a
/// network card.
pub struct Source {
    shared: Arc<Shared>,
    place: Place,
    flows: Vec<FrameFlow>,
    shape: Shape,
    frame: Vec<u8>,
}

impl fmt::Debug for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Source").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.shared.leave(&self.place);
    }
}

impl Source {
    pub(super) fn new(
        shared: Arc<Shared>,
        place: Place,
        flows: &[FrameFlow],
        shape: Shape,
    ) -> Self {
        Self { shared, place, flows: flows.to_vec(), shape, frame: Vec::new() }
    }

    /// Begins a run: sequence numbers of every flow start from 0.
    ///
    /// # Errors
    /// The size is out of its range, or the burst is 0.
    pub fn begin(&mut self, run: &SourceRun) -> Result<()> {
        if usize::from(run.size) < HEADER || run.size > SIZE_MAX {
            bail!("a packet has {HEADER} to {SIZE_MAX} bytes, not {}", run.size);
        }
        if run.burst == 0 {
            bail!("a flow that has its turn sends at least one packet");
        }
        let mut maps = self.shared.maps();
        for (index, flow) in self.place.templates.clone().zip(&self.flows) {
            let template = template(flow, self.shape, run.size, run.run);
            maps.templates.set(index, template, 0).context("cannot write a flow's headers")?;
        }
        let given = [
            u64::from(self.shared.interface),
            u64::from(self.place.templates.start),
            self.flows.len() as u64,
            u64::from(run.burst),
            self.shape.headers() as u64,
            self.shape.udp_at() as u64,
            self.shape.packet_at() as u64,
            run.window.start,
            run.window.end,
            run.pace.time.start,
            run.pace.time.end,
            run.pace.clump,
            run.pace.step,
        ];
        let mut state: State = [0; 22];
        state[..given.len()].copy_from_slice(&given);
        maps.states.set(self.place.slot, state, 0).context("cannot write the run")?;
        drop(maps);
        self.frame = vec![0; self.metadata() + self.shape.frame(run.size)];
        Ok(())
    }

    /// Bytes of metadata, by which the program knows the source.
    fn metadata(&self) -> usize {
        4 * (self.place.slot as usize + 1)
    }

    /// Makes `count` frames and sends them, back to back. Flows go on taking turns where the last
    /// call ended. A frame that may not leave yet is not made, and counts all the same: with a
    /// pace, a call is that many looks at the clock.
    ///
    /// # Errors
    /// No run was begun, the calling thread may not, or the kernel is older than Linux 5.18.
    pub fn inject(&mut self, count: u32) -> Result<()> {
        match send(&self.shared.object, "port", (&self.frame, self.metadata()), count) {
            Ok(()) => Ok(()),
            // A signal ends the call early, with some of the frames sent.
            Err(ProgramError::SyscallError(error))
                if error.io_error.kind() == ErrorKind::Interrupted =>
            {
                Ok(())
            }
            Err(error) => Err(error).context(REFUSED),
        }
    }

    /// Frames made since the run began.
    ///
    /// # Errors
    /// The kernel does not let us read our own map.
    pub fn made(&self) -> Result<Made> {
        let state = self.shared.maps().states.get(&self.place.slot, 0);
        let state = state.context("cannot read how many frames were made")?;
        Ok(Made { all: state[MADE], measured: state[MEASURED], missed: state[MISSED] })
    }
}

/// Runs a program on `count` copies of a frame that begins with metadata, and applies its verdicts.
pub(super) fn send(
    object: &Ebpf,
    program: &str,
    (frame, metadata): (&[u8], usize),
    count: u32,
) -> Result<(), ProgramError> {
    let Some(program) = object.program(program) else {
        return Err(ProgramError::NotLoaded);
    };
    let program: &Xdp = program.try_into()?;
    let context = context(frame, metadata);
    let mut options = TestRunOptions::new();
    options.data_in = Some(frame);
    options.ctx_in = Some(&context);
    options.repeat = count;
    options.attrs = TestRunAttrs::new().xdp_live_frames(BATCH.min(count));
    program.test_run(options).map(|_| ())
}

/// `struct xdp_md`: where data begins and ends behind the metadata; the rest is the kernel's
/// choice.
fn context(frame: &[u8], metadata: usize) -> [u8; 24] {
    let mut context = [0; 24];
    // A frame is shorter than a page.
    context[..4].copy_from_slice(&(metadata as u32).to_ne_bytes());
    context[4..8].copy_from_slice(&(frame.len() as u32).to_ne_bytes());
    context
}

#[cfg(test)]
mod tests;
