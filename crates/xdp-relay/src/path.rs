//! Kernel path: the programs in the kernel, the maps, and the devices that have programs.

mod attaching;
mod run;
mod self_test;

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aya::Ebpf;
use aya::maps::{Array, MapData, PerCpuArray};
use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions, Xdp};
use turn_types::{Instant, WorkerId};

use self::attaching::AttachedProgram;
use crate::bpf::entries::Pair;
use crate::bpf::layout::{
    LEAVE_TC, LEAVE_XDP, LINK_KNOWN, LINK_PARTIAL, LinkValue, PARTIAL, PASSES, PORT_FILTER_WORDS,
    RouteKey, SCRATCH_BYTES, WORKERS_MAX, bucket, cell, entry, punt_state,
};
use crate::bpf::object::{
    LEASES, Object, RINGS, ROUTES, TAP, TC, XDP, can_fill_rings, duplicate, load_programs, map,
};
use crate::bpf::pins::Pins;
use crate::bpf::shares::Shares;
use crate::bpf::slots::Slots;
use crate::device::Hook;
use crate::device::presence::PresenceMark;
use crate::error::KernelPathError;
use crate::limits::{LINKS_MAX, RING_BYTES};
use crate::options::Options;
use crate::routes::flow::Directions;
use crate::routes::ring::Ring;
use crate::routes::{Common, RouteMap, Routes, writer};

pub use run::{EgressContext, FrameContext, RunResult, Verdict};

/// Device for receiving and sending, as described to the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Index of the interface.
    pub index: u32,
    /// Link-layer address. Frames to other addresses are not for this host.
    pub mac: [u8; 6],
    /// True if packets received by XDP can leave by the device.
    pub leave_xdp: bool,
    /// True if packets received by tc can leave by the device.
    pub leave_tc: bool,
    /// True if frames received by XDP may have partial checksums, which the programs then complete.
    /// This requires that each frame is a single datagram and leaves through a driver, as in the
    /// driver of a veth.
    pub partial_at_xdp: bool,
}

/// Programs and maps of the kernel path. Dropping this value restores the previous state of the
/// devices.
pub struct KernelPath {
    ebpf: Ebpf,
    self_test_map: RouteMap,
    self_test_keys: Option<(Pair, [RouteKey; 2])>,
    can_fill_rings: bool,
    /// Number of created rings.
    rings: AtomicU64,
    /// Rings created before the programs are loaded. Loading enters the rings, since entering takes
    /// time and calls wait until workers have routes. `None` after loading.
    later: Mutex<Option<Vec<(WorkerId, Ring)>>>,
    links: Array<MapData, LinkValue>,
    known: BTreeMap<u32, Link>,
    passes: PerCpuArray<MapData, u64>,
    /// Counts that the self-test caused, by index.
    passes_of_test: [u64; PARTIAL as usize + 1],
    /// Count of lost redirects since the first attachment at XDP. `None` if no program was attached
    /// at XDP, or the kernel does not report such losses.
    redirects_lost: Option<PerCpuArray<MapData, u64>>,
    common: Arc<Common>,
    flows: u32,
    /// Attached programs, by device index.
    programs: Vec<(u32, AttachedProgram)>,
    /// Number of changes of the attached programs.
    changes: u64,
    /// Mark that identifies the filters of this process as filters of a living process.
    mark: Option<PresenceMark>,
    _pins: Option<Pins>,
}

impl fmt::Debug for KernelPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("KernelPath").field("flows", &self.flows).finish_non_exhaustive()
    }
}

impl KernelPath {
    /// Creates the maps and loads the programs. Nothing is attached yet.
    ///
    /// # Errors
    /// The kernel refuses: the kernel is too old, a privilege is missing, or memory is short.
    pub fn make(options: Options) -> Result<Self, KernelPathError> {
        let make = |can_fill_rings| {
            let mut path = Self::of(Object::make(options, can_fill_rings)?, options.flows)?;
            path.load()?;
            Ok(path)
        };
        make(true).or_else(|_| make(false))
    }

    /// Creates the maps. The programs must be [loaded](Self::load) later.
    ///
    /// # Errors
    /// The kernel refuses: the kernel is too old, a privilege is missing, or memory is short.
    pub(crate) fn prepare(options: Options) -> Result<Self, KernelPathError> {
        Self::of(Object::make(options, can_fill_rings())?, options.flows)
    }

    /// Loads the programs.
    ///
    /// # Errors
    /// The kernel refuses a program.
    pub(crate) fn load(&mut self) -> Result<(), KernelPathError> {
        load_programs(&mut self.ebpf)?;
        let later = self.later.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        for (worker, ring) in later.into_iter().flatten() {
            ring.enter(worker, duplicate(map(&self.ebpf, RINGS)?)?)?;
        }
        Ok(())
    }

    fn of(object: Object, flows: u32) -> Result<Self, KernelPathError> {
        let Object {
            ebpf,
            links,
            passes,
            entries,
            cells,
            buckets,
            port_filter,
            leases,
            processors,
            can_fill_rings,
            pins,
        } = object;
        let self_test_map = writer(map(&ebpf, ROUTES)?)?;
        let (slots, limits) = (Slots::new(flows), Slots::new(flows));
        let by_tc = AtomicBool::new(false);
        let common = Common {
            entries,
            cells,
            buckets,
            port_filter,
            leases,
            processors,
            by_tc,
            left: AtomicBool::new(false),
            flows: slots,
            limits,
            shares: Shares::new(flows),
        };
        let known = BTreeMap::new();
        Ok(Self {
            ebpf,
            self_test_map,
            self_test_keys: None,
            can_fill_rings,
            rings: AtomicU64::new(0),
            later: Mutex::new(Some(Vec::new())),
            links,
            known,
            passes,
            passes_of_test: [0; PARTIAL as usize + 1],
            redirects_lost: None,
            common: Arc::new(common),
            flows,
            programs: Vec::new(),
            changes: 0,
            // Without a mark the filters get any number, and remain if this process is killed.
            mark: PresenceMark::take().ok(),
            _pins: pins,
        })
    }

    /// Returns the routes of a worker. Only that worker writes the routes.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn routes(&self, worker: WorkerId) -> Result<Routes, KernelPathError> {
        let ring = self.can_fill_rings.then(|| self.ring_of_routes(worker)).transpose()?;
        self.rings.fetch_add(u64::from(self.can_fill_rings), Relaxed);
        Routes::new(worker, Arc::clone(&self.common), map(&self.ebpf, ROUTES)?, ring)
    }

    /// Creates a worker's ring. The ring is entered when programs exist that can fill it.
    fn ring_of_routes(&self, worker: WorkerId) -> Result<Ring, KernelPathError> {
        let mut later = self.later.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(later) = &mut *later else { return self.ring(worker, RING_BYTES) };
        let ring = Ring::make(RING_BYTES)?;
        later.push((worker, ring.copy()?));
        Ok(ring)
    }

    /// Creates a worker's ring, which replaces an earlier ring.
    pub(crate) fn ring(&self, worker: WorkerId, bytes: u32) -> Result<Ring, KernelPathError> {
        let ring = Ring::make(bytes)?;
        ring.enter(worker, duplicate(map(&self.ebpf, RINGS)?)?)?;
        Ok(ring)
    }

    /// Returns true if the programs can fill rings.
    pub(crate) const fn can_fill_rings(&self) -> bool {
        self.can_fill_rings
    }

    /// Adds or updates a device.
    ///
    /// # Errors
    /// The index is too high ([`limits::LINKS_MAX`](crate::limits::LINKS_MAX)).
    pub fn set_link(&mut self, link: Link) -> Result<(), KernelPathError> {
        if self.known.get(&link.index) == Some(&link) {
            return Ok(());
        }
        let leave = (u8::from(link.leave_xdp) * LEAVE_XDP) | (u8::from(link.leave_tc) * LEAVE_TC);
        let known = LINK_KNOWN | (u8::from(link.partial_at_xdp) * LINK_PARTIAL);
        let value = LinkValue { mac: link.mac, leave, known };
        self.links.set(link.index, value, 0).map_err(KernelPathError::of)?;
        self.known.insert(link.index, link);
        Ok(())
    }

    /// Returns a new descriptor of the map of leases.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub(crate) fn copy_leases(&self) -> Result<OwnedFd, KernelPathError> {
        let leases = map(&self.ebpf, LEASES)?.fd().as_fd();
        leases.try_clone_to_owned().map_err(KernelPathError::Kernel)
    }

    /// Preserves the routes when the workers exit.
    pub(crate) fn leave_routes(&self) {
        self.common.left.store(true, Relaxed);
    }

    /// Drops the presence mark, to simulate a killed server.
    #[cfg(test)]
    pub(crate) fn drop_mark(&mut self) {
        self.mark = None;
    }

    /// Returns the number of packets with a known route that passed to user space since the start,
    /// by reason.
    #[must_use]
    pub fn passed(&self) -> Vec<(&'static str, u64)> {
        (0..).zip(PASSES).map(|(index, name)| (name, self.sum_of_passes(index))).collect()
    }

    /// Returns the number of packets with partial checksums that the programs relayed or delivered
    /// since the start. Such packets have a sender on the same machine.
    #[must_use]
    pub fn partial_checksums(&self) -> u64 {
        self.sum_of_passes(PARTIAL)
    }

    fn sum_of_passes(&self, index: u32) -> u64 {
        let of_test = self.passes_of_test.get(index as usize).copied().unwrap_or_default();
        self.count_of_pass(index).saturating_sub(of_test)
    }

    fn count_of_pass(&self, index: u32) -> u64 {
        self.passes.get(&index, 0).map(|each| each.iter().sum()).unwrap_or_default()
    }

    /// Attributes all previous counts to the self-test. Called while no device has a program.
    pub(crate) fn forget_passes(&mut self) {
        self.passes_of_test = std::array::from_fn(|index| self.count_of_pass(index as u32));
    }

    /// Returns the number of frames that XDP programs of this host, including other programs,
    /// redirected and that did not leave. The reason is a driver without a queue or space for the
    /// frame. The count starts when the first program of this process is attached at XDP. Returns
    /// `None` before, or if the kernel does not report such frames.
    #[must_use]
    pub fn redirects_lost(&self) -> Option<u64> {
        Some(self.redirects_lost.as_ref()?.get(&0, 0).ok()?.iter().sum())
    }

    /// Returns the memory of the maps in bytes, in use or not. Includes the rings of workers that
    /// have [routes](Self::routes).
    #[must_use]
    pub fn memory(&self) -> u64 {
        // Bytes that the kernel's hash tables need for an entry, in addition to key and value.
        const ELEMENT: usize = 48;
        let key = size_of::<RouteKey>() + size_of::<u64>() + ELEMENT;
        let route = key + (entry::WORDS + punt_state::WORDS) * 8;
        let cells = self.common.processors as usize * cell::WORDS * 8;
        let flow = 2 * route + cells + bucket::WORDS * 8;
        let links = LINKS_MAX as usize * size_of::<LinkValue>();
        let scratches = self.common.processors as usize * SCRATCH_BYTES;
        let fixed = flow * self.flows as usize
            + links
            + scratches
            + 8 * (2 * PORT_FILTER_WORDS + 2 * WORKERS_MAX);
        fixed as u64 + self.rings.load(Relaxed) * u64::from(RING_BYTES)
    }

    pub(crate) fn common(&self) -> &Common {
        &self.common
    }

    /// Installs the routes of the self-test, which belong to no worker. Previous routes of the
    /// self-test are removed.
    pub(crate) fn install(
        &mut self,
        now: Instant,
        routes: &Directions,
    ) -> Result<(), KernelPathError> {
        self.uninstall(now);
        let entries = &self.common.entries;
        let pair = entries.take(now).ok_or(KernelPathError::Full)?;
        let Directions { to_peer, to_client } = *routes;
        self.self_test_keys = Some((pair, [to_peer.0, to_client.0]));
        let places = [
            (to_peer.0, entries.publish(pair.to_peer(), to_peer.0, to_peer.1)),
            (to_client.0, entries.publish(pair.to_client(), to_client.0, to_client.1)),
        ];
        for (key, place) in places {
            self.self_test_map.insert(key, place, 0).map_err(KernelPathError::of)?;
        }
        Ok(())
    }

    /// Returns times and next hops of the last packets that left through the stack, to the peer and
    /// to the client.
    pub(crate) fn self_test_proofs(&self) -> Option<[(u64, u64); 2]> {
        let (pair, _) = self.self_test_keys?;
        let entries = &self.common.entries;
        Some([entries.proof(pair.to_peer()), entries.proof(pair.to_client())])
    }

    /// Runs the tap on an outbound frame, without sending anything. Returns the run time.
    ///
    /// # Errors
    /// [`Self::run`] would fail.
    pub fn run_tap(
        &self,
        frame: &[u8],
        leaving: EgressContext,
    ) -> Result<Duration, KernelPathError> {
        let mut out = vec![0; frame.len()];
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.data_out = Some(&mut out);
        options.repeat = 1;
        let context = leaving.context();
        options.ctx_in = Some(&context);
        let program = self.ebpf.program(TAP).ok_or(KernelPathError::Missing("program"))?;
        let program: &SchedClassifier = program.try_into().map_err(KernelPathError::of)?;
        program.test_run(options).map(|ran| ran.duration).map_err(KernelPathError::of)
    }

    /// Withdraws the routes of the self-test.
    pub(crate) fn uninstall(&mut self, now: Instant) {
        let Some((pair, keys)) = self.self_test_keys.take() else { return };
        for key in keys {
            // An absent key is not an error here.
            drop(self.self_test_map.remove(&key));
        }
        self.common.entries.put_back(now, pair);
    }

    /// Runs the program of a hook on a frame, `times` times, without sending anything. The inbound
    /// device is the loopback, which has the address zero.
    ///
    /// # Errors
    /// The kernel does not support the run (before Linux 5.18 for some options), or the frame is
    /// malformed.
    pub fn run(&self, hook: Hook, frame: &[u8], times: u32) -> Result<RunResult, KernelPathError> {
        self.run_as(hook, frame, times, FrameContext::Alone)
    }

    /// Runs the program of a hook on a frame with metadata, like [`Self::run`].
    ///
    /// # Errors
    /// [`Self::run`] would fail.
    pub fn run_as(
        &self,
        hook: Hook,
        frame: &[u8],
        times: u32,
        comes: FrameContext,
    ) -> Result<RunResult, KernelPathError> {
        // Maximum growth of a frame in repeated runs, in bytes: the headroom of XDP.
        const ROOM: usize = 256;
        let mut out = vec![0; frame.len() + ROOM];
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.data_out = Some(&mut out);
        options.repeat = times;
        let context = comes.context(frame.len());
        options.ctx_in = (!context.is_empty()).then_some(&context);
        let name = if hook == Hook::Tc { TC } else { XDP };
        let program = self.ebpf.program(name).ok_or(KernelPathError::Missing("program"))?;
        let ran = if hook == Hook::Tc {
            let program: &SchedClassifier = program.try_into().map_err(KernelPathError::of)?;
            program.test_run(options)
        } else {
            let program: &Xdp = program.try_into().map_err(KernelPathError::of)?;
            program.test_run(options)
        };
        let ran = ran.map_err(KernelPathError::of)?;
        out.truncate(ran.data_size_out as usize);
        let verdict = Verdict::of(hook, ran.return_value);
        Ok(RunResult { verdict, frame: out, each: ran.duration })
    }
}
