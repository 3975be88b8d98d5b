//! The compiled programs, and their maps as they are made.

use std::error::Error;
use std::os::fd::AsFd as _;
use std::time::Duration;

use aya::maps::{Map, MapData, PerCpuArray};
use aya::programs::{Program, SchedClassifier, Xdp};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};

use crate::layout::{BUCKET_WORDS, DOOR_WORDS, SHOW_GRAIN_BITS, WORKERS_MAX, cell};
use crate::shared::Shared;
use crate::trouble::Trouble;

static RELAY: &[u8] =
    include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/relay.bpf.o"));

/// The programs' names: for drivers and the generic hook of XDP, and for tc.
pub(crate) const XDP: &str = "relay_xdp";
pub(crate) const TC: &str = "relay_tc";

/// What the programs are made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Making {
    /// Channels that there is room for.
    pub(crate) flows: u32,
    /// The device that the way out is looked up from; 0: the one a packet came by.
    pub(crate) look_up_from: u32,
    /// How often a packet of each direction of a flow is left to the sockets.
    pub(crate) show_every: Duration,
}

/// The programs with their maps; nothing is attached.
pub(crate) struct Object {
    pub(crate) ebpf: Ebpf,
    pub(crate) routes: MapData,
    pub(crate) links: MapData,
    pub(crate) passes: PerCpuArray<MapData, u64>,
    pub(crate) cells: Shared,
    pub(crate) buckets: Shared,
    pub(crate) doors: Shared,
    pub(crate) leases: Shared,
    /// Cells of a flow.
    pub(crate) processors: u32,
}

impl Object {
    pub(crate) fn make(making: Making) -> Result<Self, Trouble> {
        let processors = aya::util::nr_cpus().map_err(|(_, error)| Trouble::Kernel(error))?;
        let processors = u32::try_from(processors).unwrap_or(1);
        let Making { flows, look_up_from, show_every } = making;
        let cells = flows * processors;
        let grains = show_every.as_nanos() >> SHOW_GRAIN_BITS;
        let show_every = u32::try_from(grains).unwrap_or(u32::MAX);
        let mut loader = EbpfLoader::new();
        // The programs use no type of the kernel: none needs to be relocated.
        loader.btf(None);
        loader.override_global("processors", &processors, true);
        loader.override_global("look_up_from", &look_up_from, true);
        loader.override_global("show_every", &show_every, true);
        loader.map_max_entries("routes", 2 * flows);
        loader.map_max_entries("cells", cells);
        loader.map_max_entries("buckets", flows);
        let mut ebpf = loader.load(RELAY).map_err(Trouble::of)?;
        // Loaded before their maps are taken: they refer to them.
        program::<Xdp>(&mut ebpf, XDP)?.load().map_err(Trouble::of)?;
        program::<SchedClassifier>(&mut ebpf, TC)?.load().map_err(Trouble::of)?;
        let shared = |ebpf: &mut Ebpf, name: &'static str, words: usize| {
            let Some(Map::Array(data)) = ebpf.take_map(name) else {
                return Err(Trouble::Missing(name));
            };
            Shared::map(data.fd().as_fd(), words).map_err(Trouble::Kernel)
        };
        let cells = shared(&mut ebpf, "cells", cells as usize * cell::WORDS)?;
        let buckets = shared(&mut ebpf, "buckets", flows as usize * BUCKET_WORDS)?;
        let doors = shared(&mut ebpf, "doors", 2 * DOOR_WORDS)?;
        let leases = shared(&mut ebpf, "leases", WORKERS_MAX)?;
        let Some(Map::HashMap(routes)) = ebpf.take_map("routes") else {
            return Err(Trouble::Missing("routes"));
        };
        let Some(Map::HashMap(links)) = ebpf.take_map("links") else {
            return Err(Trouble::Missing("links"));
        };
        let passes = ebpf.take_map("passes").ok_or(Trouble::Missing("passes"))?;
        let passes = PerCpuArray::try_from(passes).map_err(Trouble::of)?;
        Ok(Self { ebpf, routes, links, passes, cells, buckets, doors, leases, processors })
    }
}

/// A program of the object.
pub(crate) fn program<'a, P>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut P, Trouble>
where
    &'a mut P: TryFrom<&'a mut Program, Error: Error + Send + Sync + 'static>,
{
    let program = ebpf.program_mut(name).ok_or(Trouble::Missing(name))?;
    program.try_into().map_err(Trouble::of)
}
