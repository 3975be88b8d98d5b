//! The attaching of programs to devices: as links of the kernel where it has them, and by netlink
//! otherwise.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use aya::programs::tc::{NlOptions, SchedClassifierLinkId, TcAttachOptions, TcHandle};
use aya::programs::xdp::XdpLinkId;
use aya::programs::{SchedClassifier, TcAttachType, Xdp, XdpMode, tc};

use super::KernelPath;
use crate::bpf::layout::LinkValue;
use crate::bpf::link::{self, Place};
use crate::bpf::object::{TAP, TC, XDP, count_losses, program};
use crate::device::Hook;
use crate::device::leftovers::handle;
use crate::error::KernelPathError;

/// A program on a device.
pub(crate) enum AttachedProgram {
    Xdp(On<XdpLinkId>),
    Tc(On<SchedClassifierLinkId>),
    Tap(On<SchedClassifierLinkId>),
}

/// The way in which a program is attached.
pub(crate) enum On<Id> {
    /// By a link, until its descriptor is closed.
    Link(OwnedFd),
    /// By netlink, until it is detached: in older kernels.
    Netlink(Id),
}

impl AttachedProgram {
    fn link(&self) -> Option<&OwnedFd> {
        match self {
            Self::Xdp(On::Link(link)) | Self::Tc(On::Link(link)) | Self::Tap(On::Link(link)) => {
                Some(link)
            }
            Self::Xdp(On::Netlink(_)) | Self::Tc(On::Netlink(_)) | Self::Tap(On::Netlink(_)) => {
                None
            }
        }
    }
}

impl KernelPath {
    /// Removes devices that are gone: no packet arrives or leaves by them. The loopback stays.
    pub(crate) fn keep(&mut self, there: impl Fn(u32) -> bool) {
        let Self { known, links, .. } = self;
        known.retain(|index, _| {
            let stays = there(*index);
            if !stays {
                // It was written there before; and one that is gone has no packets.
                drop(links.set(*index, LinkValue::UNKNOWN, 0));
            }
            stays
        });
        let (stay, gone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.programs).into_iter().partition(|(index, _)| there(*index));
        self.programs = stay;
        self.changes += gone.len() as u64;
        for (_, programs) in gone {
            // The device took its program with it; this closes the handle.
            drop(self.take_down(programs));
        }
        self.update_by_tc();
    }

    fn take_down(&mut self, programs: AttachedProgram) -> Result<(), KernelPathError> {
        match programs {
            AttachedProgram::Xdp(On::Netlink(id)) => {
                program::<Xdp>(&mut self.ebpf, XDP)?.detach(id).map_err(KernelPathError::of)
            }
            AttachedProgram::Tc(On::Netlink(id)) => program::<SchedClassifier>(&mut self.ebpf, TC)?
                .detach(id)
                .map_err(KernelPathError::of),
            AttachedProgram::Tap(On::Netlink(id)) => {
                program::<SchedClassifier>(&mut self.ebpf, TAP)?
                    .detach(id)
                    .map_err(KernelPathError::of)
            }
            AttachedProgram::Xdp(On::Link(link))
            | AttachedProgram::Tc(On::Link(link))
            | AttachedProgram::Tap(On::Link(link)) => {
                // Another process may have a descriptor too, for the case that this one dies.
                link::detach(link.as_fd()).map_err(KernelPathError::Kernel)
            }
        }
    }

    /// Changes of the attached programs until now.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Descriptors by which the programs stay on their devices without this value; `None` if one is
    /// attached in another way.
    ///
    /// # Errors
    /// No descriptors left.
    pub(crate) fn copy_links(&self) -> io::Result<Option<Vec<OwnedFd>>> {
        let links = self.programs.iter().map(|(_, programs)| programs.link());
        let Some(links) = links.collect::<Option<Vec<_>>>() else { return Ok(None) };
        links.into_iter().map(OwnedFd::try_clone).collect::<io::Result<_>>().map(Some)
    }

    fn update_by_tc(&self) {
        let by_tc =
            self.programs.iter().any(|(_, programs)| matches!(programs, AttachedProgram::Tc(_)));
        self.common.by_tc.store(by_tc, Relaxed);
    }

    /// Attaches the program of a hook to a device, until this value is dropped.
    ///
    /// # Errors
    /// The driver does not support it, or another program is attached.
    pub fn attach(
        &mut self,
        interface: &str,
        index: u32,
        hook: Hook,
    ) -> Result<(), KernelPathError> {
        let programs = match hook {
            Hook::Xdp => self.attach_xdp(index, (Place::Xdp, XdpMode::Driver))?,
            Hook::XdpGeneric => self.attach_xdp(index, (Place::XdpGeneric, XdpMode::Skb))?,
            Hook::Tc => match self.attach_link(TC, index, Place::Ingress) {
                Ok(link) => AttachedProgram::Tc(On::Link(link)),
                // Before Linux 6.6.
                Err(_) => self.attach_filter(interface)?,
            },
        };
        // tc takes names, and another device may have the name meanwhile.
        if linux_net::interface_index(interface).is_ok_and(|found| found != index) {
            self.take_down(programs)?;
            return Err(KernelPathError::Kernel(io::Error::from_raw_os_error(libc::ENODEV)));
        }
        self.changes += 1;
        self.programs.push((index, programs));
        self.update_by_tc();
        Ok(())
    }

    fn attach_xdp(
        &mut self,
        index: u32,
        (place, mode): (Place, XdpMode),
    ) -> Result<AttachedProgram, KernelPathError> {
        let attached = match self.attach_link(XDP, index, place) {
            Ok(link) => On::Link(link),
            // Before Linux 5.9; otherwise it says the same.
            Err(_) => {
                let program: &mut Xdp = program(&mut self.ebpf, XDP)?;
                let attached = program.attach_to_if_index(index, mode);
                On::Netlink(attached.map_err(KernelPathError::of)?)
            }
        };
        if self.redirects_lost.is_none() {
            // A refusal of the kernel costs a figure, and no packet.
            self.redirects_lost = count_losses(&mut self.ebpf).ok();
        }
        Ok(AttachedProgram::Xdp(attached))
    }

    fn attach_link(
        &self,
        name: &'static str,
        index: u32,
        place: Place,
    ) -> Result<OwnedFd, KernelPathError> {
        let program = self.ebpf.program(name).ok_or(KernelPathError::Missing(name))?;
        let program = program.fd().map_err(KernelPathError::of)?;
        link::attach(program.as_fd(), index, place).map_err(KernelPathError::Kernel)
    }

    /// By a filter of a queueing discipline, which may be there already.
    pub(crate) fn attach_filter(
        &mut self,
        interface: &str,
    ) -> Result<AttachedProgram, KernelPathError> {
        let options = self.filter_on(interface);
        let program: &mut SchedClassifier = program(&mut self.ebpf, TC)?;
        let filter = program.attach_with_options(interface, TcAttachType::Ingress, options);
        filter.map(|id| AttachedProgram::Tc(On::Netlink(id))).map_err(KernelPathError::of)
    }

    /// Makes room for filters on a device. Returns how one of this process is put there.
    fn filter_on(&self, interface: &str) -> TcAttachOptions {
        drop(tc::qdisc_add_clsact(interface));
        let handle = self.mark.as_ref().map(handle).unwrap_or_default();
        let handle = TcHandle::new(handle.0, handle.1);
        TcAttachOptions::Netlink(NlOptions { handle, ..NlOptions::default() })
    }

    /// Attaches the tap to a device, until this value is dropped.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn tap(&mut self, interface: &str, index: u32) -> Result<(), KernelPathError> {
        let programs = match self.attach_link(TAP, index, Place::Egress) {
            Ok(link) => AttachedProgram::Tap(On::Link(link)),
            // Before Linux 6.6, as for ingress.
            Err(_) => self.tap_by_filter(interface)?,
        };
        if linux_net::interface_index(interface).is_ok_and(|found| found != index) {
            self.take_down(programs)?;
            return Err(KernelPathError::Kernel(io::Error::from_raw_os_error(libc::ENODEV)));
        }
        self.changes += 1;
        self.programs.push((index, programs));
        Ok(())
    }

    /// Detaches the tap from a device.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn untap(&mut self, index: u32) -> Result<(), KernelPathError> {
        let is_it = |(on, programs): &(u32, AttachedProgram)| {
            *on == index && matches!(programs, AttachedProgram::Tap(_))
        };
        match self.programs.iter().position(is_it) {
            Some(at) => {
                self.changes += 1;
                let (_, programs) = self.programs.swap_remove(at);
                self.take_down(programs)
            }
            None => Ok(()),
        }
    }

    pub(crate) fn tap_by_filter(
        &mut self,
        interface: &str,
    ) -> Result<AttachedProgram, KernelPathError> {
        let options = self.filter_on(interface);
        let program: &mut SchedClassifier = program(&mut self.ebpf, TAP)?;
        let filter = program.attach_with_options(interface, TcAttachType::Egress, options);
        filter.map(|id| AttachedProgram::Tap(On::Netlink(id))).map_err(KernelPathError::of)
    }

    /// True if the device has a tap: without one no direction is ever proven there.
    pub(crate) fn is_tapped(&self, index: u32) -> bool {
        self.programs
            .iter()
            .any(|(on, programs)| *on == index && matches!(programs, AttachedProgram::Tap(_)))
    }
}
