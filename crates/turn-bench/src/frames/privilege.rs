//! Whether frames can be sent and counted here.

use std::fs;

use aya::programs::{ProgramError, TestRun as _};
use aya::{TestRunAttrs, TestRunOptions};

use super::object;

/// Whether this process may do what frames want, tried rather than guessed.
///
/// # Errors
/// What is missing, in words.
pub fn available() -> Result<(), String> {
    let mut object = object::open(object::REFLECT, &[]).map_err(refused)?;
    let program = object::load(&mut object, "reflect").map_err(refused)?;
    // A frame that is of no run passes, and as it has no address of this host it ends there.
    let frame = [0; 64];
    let mut options = TestRunOptions::new();
    options.data_in = Some(&frame);
    options.attrs = TestRunAttrs::new().xdp_live_frames(1);
    match program.test_run(options) {
        Ok(_) => Ok(()),
        Err(error) => Err(too_old(&error)),
    }
}

fn refused(error: anyhow::Error) -> String {
    let missing = missing_capabilities();
    if missing.is_empty() {
        format!("{error:#}")
    } else {
        format!("frames want privileges that are missing: {} (run as root)", missing.join(", "))
    }
}

fn too_old(error: &ProgramError) -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("frames want Linux 5.18 or newer, this is {}: {error}", release.trim())
}

/// Those of the capabilities that frames want and this process has not.
fn missing_capabilities() -> Vec<&'static str> {
    const WANTED: [(&str, u32); 2] = [("CAP_NET_ADMIN", 12), ("CAP_BPF", 39)];
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok())
        .unwrap_or(0);
    // CAP_SYS_ADMIN includes CAP_BPF.
    let all = effective | (effective >> 21 & 1) << 39;
    WANTED.iter().filter(|(_, bit)| all >> bit & 1 == 0).map(|(name, _)| *name).collect()
}
