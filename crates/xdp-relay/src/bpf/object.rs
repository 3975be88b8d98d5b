//! Compiled BPF programs, and the creation of their maps.

use std::error::Error;
use std::hash::{BuildHasher as _, RandomState};
use std::os::fd::AsFd as _;
use std::time::Duration;

use aya::maps::{Array, Map, MapData, PerCpuArray};
use aya::programs::{Program, ProgramType, RawTracePoint, SchedClassifier, Xdp};
use aya::sys::{BpfHelper, is_helper_supported};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};

use super::entries::Entries;
use super::layout::{LinkValue, PORT_FILTER_WORDS, WORKERS_MAX, bucket, cell};
use super::pins::Pins;
use super::shared::Shared;
use crate::error::KernelPathError;
use crate::limits::{LINKS_MAX, LOAD_ATTEMPTS};
use crate::options::Options;

static RELAY: &[u8] =
    include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/relay.bpf.o"));

/// Names of the relaying programs: for XDP (drivers and the generic hook), and for tc.
pub(crate) const XDP: &str = "relay_xdp";
pub(crate) const TC: &str = "relay_tc";

/// Name of the tap, the program that observes packets that leave the stack.
pub(crate) const TAP: &str = "tap";

/// Programs that count redirected frames that do not leave, and the tracepoint of each program.
const LOSSES: [(&str, &str); 2] =
    [("lost_at_device", "xdp_devmap_xmit"), ("lost_before", "xdp_redirect_err")];

/// Name of the map with the rings of all workers.
pub(crate) const RINGS: &str = "rings";

/// Name of the map with all routes.
pub(crate) const ROUTES: &str = "routes";

/// Name of the map with the leases of all workers.
pub(crate) const LEASES: &str = "leases";

/// Programs and maps. The programs are not [loaded](load_programs), and nothing is attached.
pub(crate) struct Object {
    pub(crate) ebpf: Ebpf,
    pub(crate) links: Array<MapData, LinkValue>,
    pub(crate) passes: PerCpuArray<MapData, u64>,
    pub(crate) entries: Entries,
    pub(crate) cells: Shared,
    pub(crate) buckets: Shared,
    pub(crate) port_filter: Shared,
    pub(crate) leases: Shared,
    /// Number of cells of a flow: one for each processor.
    pub(crate) processors: u32,
    /// True if the programs can fill rings (Linux 5.18).
    pub(crate) can_fill_rings: bool,
    /// Pins of the maps. `None` without a writable BPF file system.
    pub(crate) pins: Option<Pins>,
}

/// Names of the maps with which a successor of the process could continue.
const PINNED: [&str; 6] = [ROUTES, "entries", "cells", "buckets", "port_filter", LEASES];

impl Object {
    /// Creates the maps, for programs with or without the code that [fills rings](can_fill_rings).
    ///
    /// # Errors
    /// The kernel refuses: the kernel is too old, a privilege is missing, or memory is short.
    pub(crate) fn make(options: Options, can_fill_rings: bool) -> Result<Self, KernelPathError> {
        // Online processors are counted, because many more are possible. A processor that comes
        // online later has no cells.
        let online =
            aya::util::online_cpus().map_err(|(_, error)| KernelPathError::Kernel(error))?;
        let processors = online.into_iter().max().map_or(1, |last| last + 1);
        let Options { flows, look_up_from, proof } = options;
        let cells = flows.saturating_mul(processors);
        // The programs treat these times as signed numbers.
        let nanos = |time: Duration| time.as_nanos().min(i64::MAX as u128) as u64;
        let (holds, renew) = (nanos(proof.holds), nanos(proof.renew_every));
        let mut loader = EbpfLoader::new();
        // The programs use no type of the kernel, so no type must be relocated.
        loader.btf(None);
        loader.override_global("processors", &processors, true);
        loader.override_global("look_up_from", &look_up_from, true);
        loader.override_global("proof_holds", &holds, true);
        loader.override_global("renew_every", &renew, true);
        let (hands, seed) = (u32::from(can_fill_rings), seed());
        loader.override_global("can_fill_rings", &hands, true);
        loader.override_global("id_seed", &seed, true);
        loader.map_max_entries("routes", 2 * flows);
        loader.map_max_entries("entries", 2 * flows);
        loader.map_max_entries("punt_states", 2 * flows);
        loader.map_max_entries("cells", cells);
        loader.map_max_entries("buckets", flows);
        loader.map_max_entries("links", LINKS_MAX);
        let ebpf = loader.load(RELAY).map_err(KernelPathError::of)?;
        let shared = |name, words: usize| {
            Shared::map(map(&ebpf, name)?.fd().as_fd(), words).map_err(KernelPathError::Kernel)
        };
        let states = shared("punt_states", Entries::state_words(flows))?;
        let entries = shared("entries", Entries::words(flows))?;
        let entries = Entries::new(entries, states, flows, holds);
        let cells = shared("cells", cells as usize * cell::WORDS)?;
        let buckets = shared("buckets", flows as usize * bucket::WORDS)?;
        let port_filter = shared("port_filter", 2 * PORT_FILTER_WORDS)?;
        let leases = shared(LEASES, WORKERS_MAX)?;
        let links = Map::Array(duplicate(map(&ebpf, "links")?)?);
        let passes = Map::PerCpuArray(duplicate(map(&ebpf, "passes")?)?);
        let mut pinned = Vec::new();
        for name in PINNED {
            pinned.push((name, map(&ebpf, name)?));
        }
        let pins = Pins::make(&pinned);
        Ok(Self {
            links: links.try_into().map_err(KernelPathError::of)?,
            passes: passes.try_into().map_err(KernelPathError::of)?,
            entries,
            cells,
            buckets,
            port_filter,
            leases,
            processors,
            can_fill_rings,
            pins,
            ebpf,
        })
    }
}

/// Returns true if this kernel has the helpers for rings. An older kernel refuses programs that use
/// these helpers.
pub(crate) fn can_fill_rings() -> bool {
    is_helper_supported(ProgramType::Xdp, BpfHelper::BPF_FUNC_xdp_load_bytes).unwrap_or(false)
}

/// Loads the programs. The kernel verifies each program, which takes at least a tenth of a second.
///
/// # Errors
/// The kernel refuses a program.
pub(crate) fn load_programs(ebpf: &mut Ebpf) -> Result<(), KernelPathError> {
    load(|| program::<Xdp>(ebpf, XDP)?.load().map_err(KernelPathError::of))?;
    for name in [TC, TAP] {
        let mut load_one = || {
            let program: &mut SchedClassifier = program(ebpf, name)?;
            program.load().map_err(KernelPathError::of)
        };
        load(&mut load_one)?;
    }
    Ok(())
}

/// Loads a program. A signal to this thread interrupts the verification by the kernel. Loading is
/// then repeated.
fn load(mut program: impl FnMut() -> Result<(), KernelPathError>) -> Result<(), KernelPathError> {
    for _ in 1..LOAD_ATTEMPTS {
        match program() {
            Err(error) if error.os_error() == Some(libc::EAGAIN) => {}
            loaded => return loaded,
        }
    }
    program()
}

/// Attaches programs that count redirected frames that do not leave. Frames of all XDP programs of
/// the host are counted.
pub(crate) fn count_losses(ebpf: &mut Ebpf) -> Result<PerCpuArray<MapData, u64>, KernelPathError> {
    for (name, tracepoint) in LOSSES {
        let program: &mut RawTracePoint = program(ebpf, name)?;
        program.load().map_err(KernelPathError::of)?;
        program.attach(tracepoint).map_err(KernelPathError::of)?;
    }
    let count = duplicate(map(ebpf, "redirects_lost")?)?;
    Map::PerCpuArray(count).try_into().map_err(KernelPathError::of)
}

/// Returns a secret number.
fn seed() -> u32 {
    RandomState::new().hash_one(()) as u32
}

/// Returns a map of the object.
pub(crate) fn map<'a>(ebpf: &'a Ebpf, name: &'static str) -> Result<&'a MapData, KernelPathError> {
    match ebpf.map(name) {
        Some(
            Map::Array(data) | Map::HashMap(data) | Map::PerCpuArray(data) | Map::ArrayOfMaps(data),
        ) => Ok(data),
        _ => Err(KernelPathError::Missing(name)),
    }
}

/// Returns a handle of the map with a new descriptor.
pub(crate) fn duplicate(map: &MapData) -> Result<MapData, KernelPathError> {
    let fd = map.fd().as_fd().try_clone_to_owned().map_err(KernelPathError::Kernel)?;
    MapData::from_fd(fd).map_err(KernelPathError::of)
}

/// Returns a program of the object.
pub(crate) fn program<'a, P>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut P, KernelPathError>
where
    &'a mut P: TryFrom<&'a mut Program, Error: Error + Send + Sync + 'static>,
{
    let program = ebpf.program_mut(name).ok_or(KernelPathError::Missing(name))?;
    program.try_into().map_err(KernelPathError::of)
}

#[cfg(test)]
mod tests {
    use aya::util::KernelVersion;

    use super::*;
    use crate::device::missing_capabilities;
    use crate::options::Proof;

    #[test]
    fn programs_load_as_on_a_kernel_that_cannot_fill_rings() {
        if !missing_capabilities().is_empty() {
            // Tests of the programs report that they are skipped.
            return;
        }
        let options = Options { flows: 1024, look_up_from: 0, proof: Proof::SERVER };
        for can_fill_rings in [false, true] {
            let loaded = Object::make(options, can_fill_rings)
                .and_then(|mut object| load_programs(&mut object.ebpf));
            assert_eq!(loaded.map_err(|error| error.to_string()), Ok(()));
        }
        // The helpers exist since Linux 5.18.
        let version = KernelVersion::current().unwrap();
        assert!(can_fill_rings() || version < KernelVersion::new(5, 18, 0));
    }

    /// Maximum number of instructions of a program that the verifier may examine: the number on
    /// this kernel, and some reserve. Calls wait for the verification when a server restarts. A
    /// loop whose iterations differ for the verifier multiplies the number.
    const VERIFIED_MAX: u32 = 60_000;

    #[test]
    fn programs_are_verified_in_a_moment() {
        if !missing_capabilities().is_empty() {
            return;
        }
        let options = Options { flows: 1024, look_up_from: 0, proof: Proof::SERVER };
        let object = Object::make(options, can_fill_rings()).and_then(|mut object| {
            load_programs(&mut object.ebpf)?;
            Ok(object)
        });
        let object = object.unwrap_or_else(|error| panic!("{error}"));
        for name in [XDP, TC, TAP] {
            let info = match object.ebpf.program(name) {
                Some(Program::Xdp(program)) => program.info(),
                Some(Program::SchedClassifier(program)) => program.info(),
                _ => panic!("no {name}"),
            };
            // Linux reports the number since version 5.16.
            let verified = info
                .map_err(|error| error.to_string())
                .map(|info| info.verified_instruction_count());
            let verified = verified.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(verified.unwrap_or_default() < VERIFIED_MAX, "{name}: {verified:?}");
        }
    }
}
