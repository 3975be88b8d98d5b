//! The compiled BPF programs.

use anyhow::{Context, Result};
use aya::maps::{Array, MapData};
use aya::programs::Xdp;
use aya::{Ebpf, EbpfLoader, Pod, include_bytes_aligned};

/// Counts received frames and makes those that are sent.
pub(super) static PORT: &[u8] =
    include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/port.bpf.o"));
/// Tries a link.
pub(super) static PROBE: &[u8] =
    include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/probe.bpf.o"));
/// Forwards.
pub(super) static FORWARD: &[u8] =
    include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/forward.bpf.o"));

/// An object with its maps made.
pub(super) fn open(bytes: &[u8]) -> Result<Ebpf> {
    let mut loader = EbpfLoader::new();
    // The programs use no type of the kernel: none needs to be relocated.
    loader.btf(None);
    loader.load(bytes).context("cannot make the maps of a BPF program")
}

/// A program of an object, loaded.
pub(super) fn load<'a>(object: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp> {
    let program = program(object, name)?;
    program.load().with_context(|| format!("cannot load the BPF program {name}"))?;
    Ok(program)
}

/// A program of an object.
pub(super) fn program<'a>(object: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp> {
    let program =
        object.program_mut(name).with_context(|| format!("there is no BPF program {name}"))?;
    Ok(program.try_into()?)
}

/// A map of an object, taken out of it.
pub(super) fn array<V: Pod>(object: &mut Ebpf, name: &str) -> Result<Array<MapData, V>> {
    let map = object.take_map(name).with_context(|| format!("there is no map {name}"))?;
    Ok(Array::try_from(map)?)
}
