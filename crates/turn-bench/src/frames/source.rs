//! Puts the frames of a run on a link.

use std::fmt;
use std::io::ErrorKind;
use std::ops::Range;

use anyhow::{Context, Result, bail};
use aya::Ebpf;
use aya::maps::{Array, MapData};
use aya::programs::{ProgramError, TestRun as _, Xdp};
use aya::{TestRunAttrs, TestRunOptions};

use super::attach::interface_number;
use super::template::{Shape, Template, template};
use super::{FrameFlow, object};
use crate::packet::HEADER;

/// Frames that the kernel makes before it sends them on. The far end of a veth link holds 256 that
/// wait: what a link takes at once stays well below.
const BATCH: u32 = 64;

/// The longest packet: with its headers it fits a link of 1500 bytes.
const SIZE_MAX: u16 = 1400;

const REFUSED: &str =
    "the kernel sends no frames made by a program (Linux 5.18 and CAP_NET_ADMIN are wanted)";

/// `struct state` of `bpf/source.bpf.c`: eight words are given, five come back.
type State = [u64; 13];
const MADE: usize = 11;
const MEASURED: usize = 12;

/// Which frames are made.
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
}

/// Frames made since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// All of them.
    pub all: u64,
    /// Those whose time is within the measured time.
    pub measured: u64,
}

/// Makes the frames of some flows and sends them by one link.
///
/// Frames leave from the core that calls. A frame that the link does not take (the other end has
/// not fetched what came before) was sent and is lost, as with a network card.
pub struct Source {
    object: Ebpf,
    templates: Array<MapData, Template>,
    states: Array<MapData, State>,
    interface: u32,
    flows: Vec<FrameFlow>,
    shape: Shape,
    frame: Vec<u8>,
}

impl fmt::Debug for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Source")
            .field("interface", &self.interface)
            .field("flows", &self.flows.len())
            .finish_non_exhaustive()
    }
}

impl Source {
    /// Loads what makes frames for these flows, which take turns in this order. Whether frames
    /// arrive at all says [`probe`](super::probe).
    ///
    /// # Errors
    /// Privileges are missing, there is no such interface, there is no flow, or the flows are not
    /// of one family or not all with (or without) a channel.
    pub fn open(interface: &str, flows: &[FrameFlow]) -> Result<Self> {
        let shape = Shape::of(flows)?;
        let interface = interface_number(interface)?;
        let count = u32::try_from(flows.len()).context("more flows than a map can hold")?;
        let mut object = object::open(object::SOURCE, &[("templates", count)])?;
        object::load(&mut object, "source")?;
        let templates = take_map(&mut object, "templates")?;
        let states = take_map(&mut object, "states")?;
        let (flows, frame) = (flows.to_vec(), Vec::new());
        Ok(Self { object, templates, states, interface, flows, shape, frame })
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
        for (index, flow) in (0..).zip(&self.flows) {
            let template = template(flow, self.shape, run.size, run.run);
            self.templates.set(index, template, 0).context("cannot write a flow's headers")?;
        }
        let state = [
            u64::from(self.interface),
            self.flows.len() as u64,
            u64::from(run.burst),
            self.shape.headers() as u64,
            self.shape.udp_at() as u64,
            self.shape.packet_at() as u64,
            run.window.start,
            run.window.end,
            0,
            0,
            0,
            0,
            0,
        ];
        self.states.set(0, state, 0).context("cannot write what a run is")?;
        self.frame = vec![0; self.shape.frame(run.size)];
        Ok(())
    }

    /// Makes `count` frames and sends them, back to back. Flows go on taking turns where the last
    /// call ended.
    ///
    /// # Errors
    /// No run was begun, or the kernel is older than Linux 5.18.
    pub fn inject(&mut self, count: u32) -> Result<()> {
        let goal = self.made()?.all + u64::from(count);
        let mut left = count;
        while left > 0 {
            match send(&self.object, "source", &self.frame, left) {
                Ok(()) => return Ok(()),
                // A signal ends the call early, with some of the frames sent.
                Err(ProgramError::SyscallError(error))
                    if error.io_error.kind() == ErrorKind::Interrupted =>
                {
                    let made = self.made()?.all;
                    left = u32::try_from(goal.saturating_sub(made)).unwrap_or(0);
                }
                Err(error) => return Err(error).context(REFUSED),
            }
        }
        Ok(())
    }

    /// Frames made since the run began.
    ///
    /// # Errors
    /// The kernel does not let us read our own map.
    pub fn made(&self) -> Result<Made> {
        let state = self.states.get(&0, 0).context("cannot read how many frames were made")?;
        Ok(Made { all: state[MADE], measured: state[MEASURED] })
    }
}

/// Runs a program on so many copies of a frame, and does with each what it says.
pub(super) fn send(
    object: &Ebpf,
    program: &str,
    frame: &[u8],
    count: u32,
) -> Result<(), ProgramError> {
    let Some(program) = object.program(program) else {
        return Err(ProgramError::NotLoaded);
    };
    let program: &Xdp = program.try_into()?;
    let mut options = TestRunOptions::new();
    options.data_in = Some(frame);
    options.repeat = count;
    options.attrs = TestRunAttrs::new().xdp_live_frames(BATCH.min(count));
    program.test_run(options).map(|_| ())
}

fn take_map<V: aya::Pod>(object: &mut Ebpf, name: &str) -> Result<Array<MapData, V>> {
    let map = object.take_map(name).with_context(|| format!("there is no map {name}"))?;
    Ok(Array::try_from(map)?)
}

#[cfg(test)]
mod tests;
