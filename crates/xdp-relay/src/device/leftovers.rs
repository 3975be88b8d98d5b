//! Removal of programs that killed servers left at tc.
//!
//! Before Linux 6.6 a program at tc is attached by a filter. The kernel keeps the filter, with the
//! program's maps, after the process has exited. Each server therefore reserves a number
//! ([`PresenceMark`]) and uses the number in the handle of the filters. If no living process holds
//! the number of a filter, the filter is a leftover.

use std::io;

use linux_net::netlink::{self, Attribute, Request, Socket};

use super::Device;
use super::presence::PresenceMark;

/// Upper half of the handles of this server's filters: "TP".
const OURS: u16 = 0x5450;

/// Parents of filters: `TC_H_CLSACT` with `TC_H_MIN_INGRESS` and with `TC_H_MIN_EGRESS`.
const PARENTS: [u32; 2] = [0xffff_fff2, 0xffff_fff3];

/// Size of `struct tcmsg` in bytes.
const FILTER_HEADER: usize = 20;

// Constants of linux/rtnetlink.h and linux/pkt_cls.h that the C library's bindings partly lack.
const RTM_DELTFILTER: u16 = 45;
const RTM_GETTFILTER: u16 = 46;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_NAME: u16 = 7;

/// Returns the handle of the filters of a server with this mark: upper and lower half.
pub(crate) fn handle(mark: &PresenceMark) -> (u16, u16) {
    (OURS, mark.number())
}

/// Removes leftovers of killed servers from devices. `programs` names the programs at ingress and
/// at egress. Returns the names of the devices, without duplicates.
///
/// # Errors
/// The kernel does not answer on netlink sockets.
pub(crate) fn sweep(devices: &[Device], programs: [&str; 2]) -> io::Result<Vec<String>> {
    let mut socket = Socket::open(libc::NETLINK_ROUTE)?;
    let mut swept = Vec::new();
    for device in devices {
        let mut removed = 0;
        for (parent, program) in PARENTS.into_iter().zip(programs) {
            removed += sweep_place(&mut socket, device, parent, program);
        }
        if removed > 0 {
            swept.push(device.name.clone());
        }
    }
    Ok(swept)
}

/// Removes the leftovers of a program at one parent of a device. Returns the number of removed
/// filters.
fn sweep_place(socket: &mut Socket, device: &Device, parent: u32, program: &str) -> usize {
    let mut header = [0; FILTER_HEADER];
    header[4..8].copy_from_slice(&device.index.to_ne_bytes());
    header[12..16].copy_from_slice(&parent.to_ne_bytes());
    // The error for a device without filters depends on the kernel.
    let filters = socket.ask(&Request::dump(RTM_GETTFILTER, &header)).unwrap_or_default();
    let mut removed = 0;
    for filter in filters.iter().filter_map(|answer| read_filter(answer, program)) {
        let (upper, lower) = ((filter.handle >> 16) as u16, filter.handle as u16);
        if upper != OURS || PresenceMark::is_taken(lower) {
            continue;
        }
        let mut request = Request::one(RTM_DELTFILTER, &filter.header);
        request.attribute_text(TCA_KIND, "bpf");
        // Another server that starts at this moment may have removed the filter already.
        removed += usize::from(socket.ask(&request).is_ok());
    }
    removed
}

/// Filter that runs a program.
struct Filter {
    /// Header of the kernel's answer, which identifies the filter in the request for deletion.
    header: [u8; FILTER_HEADER],
    handle: u32,
}

/// Decodes a filter that runs a program with this name. Returns `None` for other filters.
fn read_filter(answer: &[u8], program: &str) -> Option<Filter> {
    let (header, attributes) = answer.split_first_chunk::<FILTER_HEADER>()?;
    let mut is_bpf = false;
    let mut is_named = false;
    for Attribute { kind, value } in netlink::attributes(attributes) {
        match kind {
            TCA_KIND => is_bpf = netlink::text(value) == "bpf",
            TCA_OPTIONS => {
                is_named = netlink::attributes(value).any(|option| {
                    option.kind == TCA_BPF_NAME && netlink::text(option.value) == program
                });
            }
            _ => {}
        }
    }
    let handle = netlink::number(&header[8..])?;
    (is_bpf && is_named && handle != 0).then_some(Filter { header: *header, handle })
}

#[cfg(test)]
mod tests;
