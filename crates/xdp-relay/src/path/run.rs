//! Runs of the programs on given frames, without sending anything: what they get, and what they
//! say.

use std::time::Duration;

use crate::device::Hook;

/// A frame that leaves, for the program that sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EgressContext {
    /// By which interface; 0: the loopback.
    pub by: u32,
    /// Inbound interface; 0: sent by this host.
    pub came_by: u32,
    /// Number of datagrams to be segmented, and bytes of payload of each; zeros: one datagram.
    pub segments: (u32, u32),
}

/// Metadata of a frame that a program is run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameContext {
    /// No metadata.
    #[default]
    Alone,
    /// It is so many datagrams that the system merged, each with so many bytes of payload. For
    /// [`Hook::Tc`].
    Merged(u32, u32),
    /// Preceded by so many bytes of driver metadata, a multiple of 4, 216 at most. They reduce the
    /// headroom. For [`Hook::Xdp`].
    Behind(u32),
}

/// Result of running a program on a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunResult {
    /// Verdict of the program.
    pub verdict: Verdict,
    /// The frame as the program left it.
    pub frame: Vec<u8>,
    /// Mean run time.
    pub each: Duration,
}

/// Verdict on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Passed to user space, unchanged.
    Pass,
    /// It leaves by another device or by the same.
    Redirect,
    /// Dropped: over the bandwidth of its allocation, or delivered to a worker's ring.
    Drop,
    /// It was tried, and would have left.
    Tried,
    /// None of these.
    Other(u32),
}

/// Bytes of `struct __sk_buff`, and where some of its fields are.
const SKB_LEN: usize = 192;
const SKB_CAME_BY: usize = 36;
const SKB_INTERFACE: usize = 40;
const SKB_SEGMENTS: usize = 164;
const SKB_SEGMENT_LEN: usize = 176;

impl EgressContext {
    /// `struct __sk_buff` as the context of a run.
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
    /// `struct __sk_buff` or `struct xdp_md` as the context of a run; empty if there is none.
    pub(super) fn context(self, len: usize) -> Vec<u8> {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        match self {
            Self::Alone => Vec::new(),
            Self::Merged(segments, bytes) => {
                EgressContext { segments: (segments, bytes), ..EgressContext::default() }.context()
            }
            // Start and end of the frame; start of the metadata; devices.
            Self::Behind(bytes) => {
                [bytes, len, 0, 0, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect()
            }
        }
    }
}

impl Verdict {
    pub(super) const fn of(hook: Hook, number: u32) -> Self {
        // XDP_DROP, XDP_PASS, XDP_REDIRECT; TC_ACT_UNSPEC, TC_ACT_SHOT,
        // TC_ACT_REDIRECT; XDP_TX and TC_ACT_PIPE.
        match (hook, number) {
            (Hook::Tc, u32::MAX) | (Hook::Xdp | Hook::XdpGeneric, 2) => Self::Pass,
            (Hook::Tc, 2) | (Hook::Xdp | Hook::XdpGeneric, 1) => Self::Drop,
            (Hook::Tc, 7) | (Hook::Xdp | Hook::XdpGeneric, 4) => Self::Redirect,
            (_, 3) => Self::Tried,
            (_, other) => Self::Other(other),
        }
    }
}
