//! The programs in the kernel, and the devices they are on.

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

/// A device, as the programs see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The interface.
    pub index: u32,
    /// Its address: frames to others are not for us.
    pub mac: [u8; 6],
    /// Packets received by XDP may leave by it.
    pub leave_xdp: bool,
    /// Packets received by tc may leave by it.
    pub leave_tc: bool,
    /// Frames that XDP gets by it may have partial checksums: the programs complete them. Only if
    /// each frame is a single datagram, and leaves by a driver: in the driver of a veth.
    pub partial_at_xdp: bool,
}

/// The programs and their maps. When this value is dropped, devices are as they were before.
pub struct KernelPath {
    ebpf: Ebpf,
    self_test_map: RouteMap,
    self_test_keys: Option<(Pair, [RouteKey; 2])>,
    can_fill_rings: bool,
    /// Rings made.
    rings: AtomicU64,
    /// Rings that are entered when the programs are loaded, while calls wait; `None`: they are.
    later: Mutex<Option<Vec<(WorkerId, Ring)>>>,
    links: Array<MapData, LinkValue>,
    known: BTreeMap<u32, Link>,
    passes: PerCpuArray<MapData, u64>,
    /// Counts of the self-test, by index.
    passes_of_test: [u64; PARTIAL as usize + 1],
    /// From the first program at XDP on; `None` where the kernel does not let them be seen.
    redirects_lost: Option<PerCpuArray<MapData, u64>>,
    common: Arc<Common>,
    flows: u32,
    /// Attached programs, by device number.
    programs: Vec<(u32, AttachedProgram)>,
    /// Changes of the attached programs.
    changes: u64,
    /// Identifies filters of this process as those of a living one.
    mark: Option<PresenceMark>,
    _pins: Option<Pins>,
}

impl fmt::Debug for KernelPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("KernelPath").field("flows", &self.flows).finish_non_exhaustive()
    }
}

impl KernelPath {
    /// Makes maps and loads the programs; nothing is attached yet.
    ///
    /// # Errors
    /// The kernel refuses: too old, no privilege, no memory.
    pub fn make(options: Options) -> Result<Self, KernelPathError> {
        let make = |can_fill_rings| {
            let mut path = Self::of(Object::make(options, can_fill_rings)?, options.flows)?;
            path.load()?;
            Ok(path)
        };
        make(true).or_else(|_| make(false))
    }

    /// Makes maps; the programs are to be [loaded](Self::load) later.
    ///
    /// # Errors
    /// The kernel refuses: too old, no privilege, no memory.
    pub(crate) fn prepare(options: Options) -> Result<Self, KernelPathError> {
        Self::of(Object::make(options, can_fill_rings())?, options.flows)
    }

    /// Loads the programs.
    ///
    /// # Errors
    /// The kernel refuses.
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
            // Without a mark any number is used, and the filter stays after a kill.
            mark: PresenceMark::take().ok(),
            _pins: pins,
        })
    }

    /// The routes of a worker, which alone writes them.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn routes(&self, worker: WorkerId) -> Result<Routes, KernelPathError> {
        let ring = self.can_fill_rings.then(|| self.ring_of_routes(worker)).transpose()?;
        self.rings.fetch_add(u64::from(self.can_fill_rings), Relaxed);
        Routes::new(worker, Arc::clone(&self.common), map(&self.ebpf, ROUTES)?, ring)
    }

    /// Creates a worker's ring, which is entered when there are programs to fill it.
    fn ring_of_routes(&self, worker: WorkerId) -> Result<Ring, KernelPathError> {
        let mut later = self.later.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(later) = &mut *later else { return self.ring(worker, RING_BYTES) };
        let ring = Ring::make(RING_BYTES)?;
        later.push((worker, ring.copy()?));
        Ok(ring)
    }

    /// Creates a worker's ring, in place of an earlier one.
    pub(crate) fn ring(&self, worker: WorkerId, bytes: u32) -> Result<Ring, KernelPathError> {
        let ring = Ring::make(bytes)?;
        ring.enter(worker, duplicate(map(&self.ebpf, RINGS)?)?)?;
        Ok(ring)
    }

    /// The programs can fill rings.
    pub(crate) const fn can_fill_rings(&self) -> bool {
        self.can_fill_rings
    }

    /// Adds or updates a device.
    ///
    /// # Errors
    /// Its number is too high ([`limits::LINKS_MAX`](crate::limits::LINKS_MAX)).
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

    /// A descriptor of the leases.
    ///
    /// # Errors
    /// No descriptors left.
    pub(crate) fn copy_leases(&self) -> Result<OwnedFd, KernelPathError> {
        let leases = map(&self.ebpf, LEASES)?.fd().as_fd();
        leases.try_clone_to_owned().map_err(KernelPathError::Kernel)
    }

    /// Leaves the routes as they are when the workers end.
    pub(crate) fn leave_routes(&self) {
        self.common.left.store(true, Relaxed);
    }

    /// As a server that was killed.
    #[cfg(test)]
    pub(crate) fn drop_mark(&mut self) {
        self.mark = None;
    }

    /// Packets of known routes that were left to user space since the start, by reason.
    #[must_use]
    pub fn passed(&self) -> Vec<(&'static str, u64)> {
        (0..).zip(PASSES).map(|(index, name)| (name, self.sum_of_passes(index))).collect()
    }

    /// Packets with partial checksums that the programs relayed or delivered since the start: those
    /// of senders on the same machine.
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

    /// Takes all counts until now for those of the self-test: no device has a program yet.
    pub(crate) fn forget_passes(&mut self) {
        self.passes_of_test = std::array::from_fn(|index| self.count_of_pass(index as u32));
    }

    /// Frames that programs of XDP on this host, these and others, redirected and that did not
    /// leave, since one of these was attached: a driver had no queue for them or no room. `None`:
    /// none was, or the kernel does not let them be seen.
    #[must_use]
    pub fn redirects_lost(&self) -> Option<u64> {
        Some(self.redirects_lost.as_ref()?.get(&0, 0).ok()?.iter().sum())
    }

    /// Bytes of memory that the maps take, whether flows use them or not: with the rings of workers
    /// that have [routes](Self::routes).
    #[must_use]
    pub fn memory(&self) -> u64 {
        // Of an entry of the kernel's hash tables, beside key and value.
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

    /// Installs routes of no worker, in place of the previous ones.
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

    /// Times and next hops of the last packets that left by the stack, to the peer and to the
    /// client.
    pub(crate) fn self_test_proofs(&self) -> Option<[(u64, u64); 2]> {
        let (pair, _) = self.self_test_keys?;
        let entries = &self.common.entries;
        Some([entries.proof(pair.to_peer()), entries.proof(pair.to_client())])
    }

    /// Runs the tap on an outbound frame, without sending anything; returns the run time.
    ///
    /// # Errors
    /// As of [`Self::run`].
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

    /// Withdraws them.
    pub(crate) fn uninstall(&mut self, now: Instant) {
        let Some((pair, keys)) = self.self_test_keys.take() else { return };
        for key in keys {
            // An absent key is no error here.
            drop(self.self_test_map.remove(&key));
        }
        self.common.entries.put_back(now, pair);
    }

    /// Runs the program of a hook on a frame, `times` times, without sending anything. The inbound
    /// device is the loopback, whose address is zero.
    ///
    /// # Errors
    /// The kernel does not support it (before Linux 5.18 for some options), or the frame is
    /// malformed.
    pub fn run(&self, hook: Hook, frame: &[u8], times: u32) -> Result<RunResult, KernelPathError> {
        self.run_as(hook, frame, times, FrameContext::Alone)
    }

    /// The same for a frame that comes with something.
    ///
    /// # Errors
    /// As of [`Self::run`].
    pub fn run_as(
        &self,
        hook: Hook,
        frame: &[u8],
        times: u32,
        comes: FrameContext,
    ) -> Result<RunResult, KernelPathError> {
        // Longest frame after repeated runs: XDP has this headroom.
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
