//! Test runs of the programs on given frames, without sending anything: inputs and results.

use std::time::Duration;

use crate::device::Hook;

/// Metadata of an outbound frame, for a run of the tap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EgressContext {
    /// Index of the outbound interface. 0 means the loopback.
    pub by: u32,
    /// Index of the inbound interface. 0 means that this host sent the frame.
    pub came_by: u32,
    /// Number of datagrams after segmentation, and payload bytes of each datagram. Zeros mean a
    /// single datagram.
    pub segments: (u32, u32),
}

/// Metadata of a frame for a run of a relaying program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameContext {
    /// The frame has no metadata.
    #[default]
    Alone,
    /// The frame is a merge of several datagrams: number of datagrams, and payload bytes of each
    /// datagram. For [`Hook::Tc`].
    Merged(u32, u32),
    /// The frame follows driver metadata: number of bytes, a multiple of 4, up to 216. The metadata
    /// reduces the headroom. For [`Hook::Xdp`].
    Behind(u32),
}

/// Result of running a program on a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunResult {
    /// Verdict of the program.
    pub verdict: Verdict,
    /// Frame after the run.
    pub frame: Vec<u8>,
    /// Mean run time.
    pub each: Duration,
}

/// Verdict of a program on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The frame passes to user space, unchanged.
    Pass,
    /// The frame leaves by another device, or by the inbound device.
    Redirect,
    /// The frame is dropped, because it exceeds the bandwidth of the allocation, or was delivered
    /// to a worker's ring.
    Drop,
    /// The frame matched a route of the self-test, and would have left.
    Tried,
    /// The program returned another number.
    Other(u32),
}

/// Size of `struct __sk_buff` in bytes, followed by offsets of fields.
const SKB_LEN: usize = 192;
const SKB_CAME_BY: usize = 36;
const SKB_INTERFACE: usize = 40;
const SKB_SEGMENTS: usize = 164;
const SKB_SEGMENT_LEN: usize = 176;

impl EgressContext {
    /// Builds a `struct __sk_buff` as the context of a run.
    pub(super) fn context(self) -> Vec<u8> {
        let mut skb = vec![0; SKB_LEN];
        for (at, value) in [
            (SKB_CAME_BY, self.came_by),
            (SKB_INTERFACE, self.by),
            (SKB_SEGMENTS, self.segments.0),
            (SKB_SEGMENT_LEN, self.segments.1),
        ] {
            skb[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        skb
    }
}

impl FrameContext {
    /// Builds a `struct __sk_buff` or `struct xdp_md` as the context of a run. Empty if the frame
    /// has no metadata.
    pub(super) fn context(self, len: usize) -> Vec<u8> {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        match self {
            Self::Alone => Vec::new(),
            Self::Merged(segments, bytes) => {
                EgressContext { segments: (segments, bytes), ..EgressContext::default() }.context()
            }
            // Start and end of the frame, start of the metadata, devices.
            Self::Behind(bytes) => {
                [bytes, len, 0, 0, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect()
            }
        }
    }
}

impl Verdict {
    pub(super) const fn of(hook: Hook, number: u32) -> Self {
        // XDP_DROP, XDP_PASS, XDP_REDIRECT; TC_ACT_UNSPEC, TC_ACT_SHOT, TC_ACT_REDIRECT; XDP_TX and
        // TC_ACT_PIPE.
        match (hook, number) {
            (Hook::Tc, u32::MAX) | (Hook::Xdp | Hook::XdpGeneric, 2) => Self::Pass,
            (Hook::Tc, 2) | (Hook::Xdp | Hook::XdpGeneric, 1) => Self::Drop,
            (Hook::Tc, 7) | (Hook::Xdp | Hook::XdpGeneric, 4) => Self::Redirect,
            (_, 3) => Self::Tried,
            (_, other) => Self::Other(other),
        }
    }
}
