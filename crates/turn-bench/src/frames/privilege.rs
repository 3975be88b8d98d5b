//! Availability of the backend of frames.

use std::{fmt, io};

use anyhow::Error;
use aya::programs::TestRun as _;
use aya::{TestRunAttrs, TestRunOptions};
use xdp_relay::device::{kernel_is_older_than, kernel_release, missing_capabilities};

use super::object;

/// The first Linux with live frames.
const LIVE_FRAMES: (u32, u32) = (5, 18);

/// Reason why frames are not available.
#[derive(Debug)]
pub enum Unavailable {
    /// Missing privileges: the capabilities, or none where something else forbids BPF.
    Privileges(Vec<&'static str>),
    /// The kernel is too old: its release.
    Kernel(String),
    /// An unexpected failure.
    Failed(Error),
}

impl fmt::Display for Unavailable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Privileges(missing) if missing.is_empty() => {
                write!(out, "the system forbids BPF programs here, even with their capabilities")
            }
            Self::Privileges(missing) => {
                let missing = missing.join(" and ");
                write!(out, "frames want {missing}, which this process lacks (run it as root)")
            }
            Self::Kernel(release) => {
                write!(out, "frames want Linux 5.18 or newer, this is {release}")
            }
            Self::Failed(error) => write!(out, "{error:#}"),
        }
    }
}

impl std::error::Error for Unavailable {}

/// Tries out whether this process can use frames.
///
/// # Errors
/// The missing requirement.
pub fn available() -> Result<(), Unavailable> {
    let mut object = object::open(object::FORWARD).map_err(refused)?;
    let program = object::load(&mut object, "forward").map_err(refused)?;
    // A frame that is of no run passes, and as it has no address of this host it ends there.
    let frame = [0; 64];
    let mut options = TestRunOptions::new();
    options.data_in = Some(&frame);
    options.attrs = TestRunAttrs::new().xdp_live_frames(1);
    program.test_run(options).map(drop).map_err(|error| refused(error.into()))
}

fn refused(error: Error) -> Unavailable {
    let number = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<io::Error>())
        .and_then(io::Error::raw_os_error);
    let missing = missing_capabilities();
    match number {
        Some(libc::EPERM) => Unavailable::Privileges(missing),
        // The kernel's check of programs says this where they may do less than they want.
        Some(libc::EACCES) if !missing.is_empty() => Unavailable::Privileges(missing),
        _ if kernel_is_older_than(LIVE_FRAMES) => Unavailable::Kernel(kernel_release()),
        _ => Unavailable::Failed(error),
    }
}
