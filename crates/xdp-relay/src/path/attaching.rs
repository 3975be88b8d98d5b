//! Attachment of programs to devices: by BPF links if the kernel supports them, and otherwise by
//! netlink.

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

/// Program on a device.
pub(crate) enum AttachedProgram {
    Xdp(On<XdpLinkId>),
    Tc(On<SchedClassifierLinkId>),
    Tap(On<SchedClassifierLinkId>),
}

/// Method by which a program is attached.
pub(crate) enum On<Id> {
    /// The program is attached by a link, until the last descriptor of the link is closed.
    Link(OwnedFd),
    /// The program is attached by netlink, until it is detached. Used on older kernels.
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
    /// Removes all devices for which `there` returns false. No packet of a removed device is
    /// relayed, and the programs on the device are detached.
    pub(crate) fn keep(&mut self, there: impl Fn(u32) -> bool) {
        let Self { known, links, .. } = self;
        known.retain(|index, _| {
            let stays = there(*index);
            if !stays {
                // The index was written before, so the write succeeds. A missing device has no
                // packets.
                drop(links.set(*index, LinkValue::UNKNOWN, 0));
            }
            stays
        });
        let (stay, gone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.programs).into_iter().partition(|(index, _)| there(*index));
        self.programs = stay;
        self.changes += gone.len() as u64;
        for (_, programs) in gone {
            // If the device no longer exists, the program is already detached, and this call only
            // closes the handle.
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
                // Another process may have a descriptor too, in case this process dies.
                link::detach(link.as_fd()).map_err(KernelPathError::Kernel)
            }
        }
    }

    /// Returns the number of changes of the attached programs so far.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Copies the descriptors that keep the programs on the devices without this value. Returns
    /// `None` if a program is attached without a link.
    ///
    /// # Errors
    /// The process has no descriptors left.
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
    /// The driver does not support the hook, or another program is attached.
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
                // Links at tc are missing before Linux 6.6.
                Err(_) => self.attach_filter(interface)?,
            },
        };
        // tc identifies devices by name, and another device may have received the name.
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
            // Links at XDP are missing before Linux 5.9. For other reasons netlink returns an equal
            // error.
            Err(_) => {
                let program: &mut Xdp = program(&mut self.ebpf, XDP)?;
                let attached = program.attach_to_if_index(index, mode);
                On::Netlink(attached.map_err(KernelPathError::of)?)
            }
        };
        if self.redirects_lost.is_none() {
            // A refusal of the kernel only means that the figure is missing.
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

    /// Attaches the program by a filter of a queueing discipline, which is added if missing.
    pub(crate) fn attach_filter(
        &mut self,
        interface: &str,
    ) -> Result<AttachedProgram, KernelPathError> {
        let options = self.filter_on(interface);
        let program: &mut SchedClassifier = program(&mut self.ebpf, TC)?;
        let filter = program.attach_with_options(interface, TcAttachType::Ingress, options);
        filter.map(|id| AttachedProgram::Tc(On::Netlink(id))).map_err(KernelPathError::of)
    }

    /// Adds the queueing discipline for filters to a device. Returns the options for a filter of
    /// this process.
    fn filter_on(&self, interface: &str) -> TcAttachOptions {
        drop(tc::qdisc_add_clsact(interface));
        let handle = self.mark.as_ref().map(handle).unwrap_or_default();
        let handle = TcHandle::new(handle.0, handle.1);
        TcAttachOptions::Netlink(NlOptions { handle, ..NlOptions::default() })
    }

    /// Attaches the tap to a device, until this value is dropped.
    ///
    /// # Errors
    /// The kernel refuses the program.
    pub fn tap(&mut self, interface: &str, index: u32) -> Result<(), KernelPathError> {
        let programs = match self.attach_link(TAP, index, Place::Egress) {
            Ok(link) => AttachedProgram::Tap(On::Link(link)),
            // Links at tc are missing before Linux 6.6, as for ingress.
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

    /// Detaches the tap from a device, if the device has a tap.
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

    /// Returns true if the device has a tap. Without a tap no direction can be proven there.
    pub(crate) fn is_tapped(&self, index: u32) -> bool {
        self.programs
            .iter()
            .any(|(on, programs)| *on == index && matches!(programs, AttachedProgram::Tap(_)))
    }
}
