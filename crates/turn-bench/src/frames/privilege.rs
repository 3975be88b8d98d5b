//! Whether frames can be sent and counted here.

use std::{fmt, fs, io};

use anyhow::Error;
use aya::programs::TestRun as _;
use aya::{TestRunAttrs, TestRunOptions};

use super::object;

/// Why frames can be neither sent nor counted here.
#[derive(Debug)]
pub enum Unavailable {
    /// The process may not: the capabilities that it lacks, none where something else forbids it.
    Privileges(Vec<&'static str>),
    /// The kernel cannot: its release.
    Kernel(String),
    /// It should work, and does not.
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

/// Whether this process may do what frames want, tried rather than guessed.
///
/// # Errors
/// What is missing.
pub fn available() -> Result<(), Unavailable> {
    let mut object = object::open(object::REFLECT).map_err(refused)?;
    let program = object::load(&mut object, "reflect").map_err(refused)?;
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
    match number {
        Some(libc::EPERM) => Unavailable::Privileges(missing_capabilities()),
        _ if too_old() => Unavailable::Kernel(release()),
        _ => Unavailable::Failed(error),
    }
}

fn release() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

/// Whether the kernel is older than 5.18, which brought live frames.
fn too_old() -> bool {
    let release = release();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version < (5, 18)
}

/// Those of the capabilities that frames want and this process has not.
fn missing_capabilities() -> Vec<&'static str> {
    // Bits of linux/capability.h. CAP_SYS_ADMIN includes CAP_BPF.
    const NET_ADMIN: u32 = 12;
    const SYS_ADMIN: u32 = 21;
    const BPF: u32 = 39;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok())
        .unwrap_or(0);
    let has = |bit: u32| effective >> bit & 1 == 1;
    let mut missing = Vec::new();
    if !has(NET_ADMIN) {
        missing.push("CAP_NET_ADMIN");
    }
    if !has(BPF) && !has(SYS_ADMIN) {
        missing.push("CAP_BPF");
    }
    missing
}
