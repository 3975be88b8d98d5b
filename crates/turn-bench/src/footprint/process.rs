//! Memory and descriptors of another process, and the process of a socket, by `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context as _, Result, bail};

use crate::outcome::ProcessMemory;
use crate::traffic::Transport;

/// The memory and descriptors of a process.
///
/// # Errors
/// There is no such process, or it may not be looked at.
pub(super) fn memory(pid: u32) -> Result<ProcessMemory> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let advice = "of the server; looking into it wants its user or root, on the server's own host";
    let text = fs::read_to_string(&path).with_context(|| format!("{path} {advice}"))?;
    let path = format!("/proc/{pid}/fd");
    let descriptors = fs::read_dir(&path).with_context(|| format!("{path} {advice}"))?.count();
    let bytes = |name| field(&text, name).with_context(|| format!("no {name} in smaps_rollup"));
    Ok(ProcessMemory {
        rss: bytes("Rss:")?,
        pss: bytes("Pss:")?,
        anonymous: bytes("Anonymous:")?,
        descriptors: descriptors as u64,
        kernel: None,
    })
}

/// The name of a process.
pub(super) fn name(pid: u32) -> Result<String> {
    let path = format!("/proc/{pid}/comm");
    let name = fs::read_to_string(&path).with_context(|| format!("no process {pid} here"))?;
    Ok(name.trim().to_owned())
}

/// A line of `smaps_rollup` such as `Rss:   1234 kB`, in bytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The state of a TCP socket that listens, as the kernel prints it.
const LISTENS: &str = "0A";

/// The process that listens on this address of this host, for UDP or TCP.
///
/// # Errors
/// None, several, or one that may not be looked at.
pub(super) fn listener(server: SocketAddr, transport: Transport) -> Result<u32> {
    let protocol = if transport.is_stream() { "TCP" } else { "UDP" };
    let inodes = sockets_at(server, transport)?;
    if inodes.is_empty() {
        bail!(
            "nothing listens on {protocol} {server} in this network namespace: is the server on another \
             host, or in a namespace of its own? then say --pid there"
        );
    }
    let owners = owners(&inodes)?;
    let names: Vec<_> = owners.iter().map(|(pid, name)| format!("{pid} ({name})")).collect();
    match owners.first_key_value() {
        Some((pid, _)) if owners.len() == 1 => Ok(*pid),
        Some(_) => {
            bail!(
                "several processes listen on {protocol} {server}: {}; say --pid",
                names.join(", ")
            )
        }
        None => bail!(
            "the process of the socket at {protocol} {server} cannot be seen: give --pid, or be root"
        ),
    }
}

/// The inodes of the sockets that receive from this address.
fn sockets_at(server: SocketAddr, transport: Transport) -> Result<BTreeSet<u64>> {
    let mut inodes = BTreeSet::new();
    let (paths, state) = if transport.is_stream() {
        (["/proc/self/net/tcp", "/proc/self/net/tcp6"], Some(LISTENS))
    } else {
        (["/proc/self/net/udp", "/proc/self/net/udp6"], None)
    };
    for path in paths {
        // Without IPv6 in the kernel the second one is missing.
        let Ok(table) = fs::read_to_string(path) else { continue };
        let lines = table.lines().skip(1);
        let lines = lines
            .filter(|line| state.is_none_or(|state| line.split_whitespace().nth(3) == Some(state)));
        inodes.extend(lines.filter_map(socket).filter_map(|(bound, inode)| {
            let takes = bound.ip() == server.ip() || bound.ip().is_unspecified();
            (takes && bound.port() == server.port()).then_some(inode)
        }));
    }
    Ok(inodes)
}

/// Address and inode in a line of `/proc/net/udp`.
fn socket(line: &str) -> Option<(SocketAddr, u64)> {
    let mut fields = line.split_whitespace();
    let (ip, port) = fields.nth(1)?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let inode = fields.nth(7)?.parse().ok()?;
    Some((SocketAddr::new(address(ip)?, port), inode))
}

/// An address as the kernel prints it: words of 32 bits in the byte order of the machine.
fn address(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(hex.get(at * 8..at * 8 + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let octets: [u8; 16] = words.concat().try_into().ok()?;
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

/// The processes that have one of these sockets, as far as they may be looked at.
fn owners(inodes: &BTreeSet<u64>) -> Result<BTreeMap<u32, String>> {
    let mut owners = BTreeMap::new();
    for entry in fs::read_dir("/proc").context("/proc")? {
        let Some(pid) = entry.ok().and_then(|entry| entry.file_name().to_str()?.parse().ok())
        else {
            continue;
        };
        // Processes may end meanwhile, and those of other users are inaccessible.
        let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        let has = |entry: fs::DirEntry| {
            let target = fs::read_link(entry.path()).ok()?;
            let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            inodes.contains(&inode.parse().ok()?).then_some(())
        };
        if descriptors.flatten().any(|entry| has(entry).is_some())
            && let Ok(name) = name(pid)
        {
            owners.insert(pid, name);
        }
    }
    Ok(owners)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "55d0-7ffe ---p 00000000 00:00 0 [rollup]\nRss:            3720 kB\n\
                    Pss:             612 kB\nPss_Anon:         400 kB\nAnonymous:       404 kB\n";
        assert_eq!(field(text, "Rss:"), Some(3720 * 1024));
        assert_eq!(field(text, "Pss:"), Some(612 * 1024));
        assert_eq!(field(text, "Anonymous:"), Some(404 * 1024));
        assert_eq!(field(text, "Swap:"), None);
    }

    #[test]
    fn our_own_memory_can_be_seen_to_grow() {
        let before = memory(std::process::id()).unwrap();
        let block = vec![1_u8; 8 << 20];
        let after = memory(std::process::id()).unwrap();
        assert!(after.anonymous - before.anonymous >= block.len() as u64 - 65_536, "{after:?}");
        assert!(after.rss >= after.anonymous && after.descriptors > 2);
    }

    #[test]
    fn a_line_of_the_table_names_address_and_inode() {
        if cfg!(target_endian = "big") {
            return;
        }
        let line = "  123: 0100007F:0D96 00000000:0000 07 00000000:00000000 00:00000000 00000000 \
                    0        0 98765 2 0000000000000000 0";
        assert_eq!(socket(line), Some(("127.0.0.1:3478".parse().unwrap(), 98765)));
        assert_eq!(address("00000000000000000000000001000000"), "::1".parse().ok());
        assert_eq!(address("0100007"), None);
    }

    #[test]
    fn whoever_listens_is_found() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        assert_eq!(listener(address, Transport::Udp).unwrap(), std::process::id());
        drop(socket);
        let said = listener(address, Transport::Udp).unwrap_err().to_string();
        assert!(said.contains("nothing listens on UDP"), "{said}");
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        assert_eq!(listener(address, Transport::Tls).unwrap(), std::process::id());
        let connected = std::net::TcpStream::connect(address).unwrap();
        let said =
            listener(connected.local_addr().unwrap(), Transport::Tcp).unwrap_err().to_string();
        assert!(said.contains("nothing listens on TCP"), "{said}");
    }
}
