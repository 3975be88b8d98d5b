//! Parked state: the state and open sockets that an exiting process stores with the service manager
//! for the successor.
//!
//! The state is a file in memory (memfd), sealed against changes. The keys in the state are
//! therefore never written to a disk. The sockets are in flight in a Unix socket pair whose sending
//! end is closed. The service manager thus stores two descriptors, regardless of the number of
//! allocations.
//!
//! A received message disappears from the Unix socket, even if the receiving process is killed.
//! Each message has a label with a number. From the numbers the successor detects missing messages,
//! and does not assign descriptors to the wrong allocations.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};
use rustix::net::sockopt;
use state_format::Value;

use super::passing::{
    DESCRIPTORS_MAX, Inlet, Outlet, read_message, receive_descriptors, receive_part, send_part,
    write_message,
};

/// Send buffer of the Unix socket, in bytes, limited by `net.core.wmem_max`. Linux's default limit
/// suffices for some hundred thousand descriptors.
const ROOM: usize = 4 << 20;

/// Seals of a complete state file: its contents and size can no longer change.
const SEALS: SealFlags =
    SealFlags::SEAL.union(SealFlags::WRITE).union(SealFlags::SHRINK).union(SealFlags::GROW);

/// State and sockets of an exited process, for the successor.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) state: OwnedFd,
    pub(crate) sockets: OwnedFd,
}

/// State and sockets that are being written.
#[derive(Debug)]
pub(super) struct Parking {
    state: File,
    sender: UnixStream,
    sockets: UnixStream,
    label: Label,
}

/// Label of a message that carries descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Label {
    /// Inode number of the state file that the message belongs to. The number is unique among the
    /// files in memory while the state file exists.
    state: u64,
    /// Number of preceding messages.
    number: u32,
}

impl Label {
    const LEN: usize = 12;

    /// Returns the label of the first message.
    fn first(state: &File) -> io::Result<Self> {
        Ok(Self { state: fstat(state)?.st_ino, number: 0 })
    }

    /// Returns the bytes of the label, and advances to the next message.
    fn next(&mut self) -> [u8; Self::LEN] {
        let Self { state, number } = *self;
        self.number += 1;
        let mut bytes = [0; Self::LEN];
        let (first, last) = bytes.split_at_mut(8);
        first.copy_from_slice(&state.to_le_bytes());
        last.copy_from_slice(&number.to_le_bytes());
        bytes
    }
}

impl Parking {
    pub(super) fn new() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let state = File::from(memfd_create("turnpike-state", flags)?);
        let (sender, sockets) = UnixStream::pair()?;
        // No process receives yet, so a message that exceeds the buffer must be an error.
        sender.set_nonblocking(true)?;
        sockopt::set_socket_send_buffer_size(&sender, ROOM)?;
        let label = Label::first(&state)?;
        Ok(Self { state, sender, sockets, label })
    }

    /// Seals the state after the last message.
    pub(super) fn seal(self) -> io::Result<Parked> {
        fcntl_add_seals(&self.state, SEALS)?;
        Ok(Parked { state: self.state.into(), sockets: self.sockets.into() })
    }
}

impl Outlet for Parking {
    fn send(&mut self, message: &impl Value) -> io::Result<()> {
        write_message(&mut self.state, message)
    }

    fn send_descriptors(&mut self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        for part in descriptors.chunks(DESCRIPTORS_MAX) {
            send_part(&self.sender, &self.label.next(), part)?;
        }
        Ok(())
    }
}

/// Parked state of a predecessor, while being read. Dropping the value closes the sockets that no
/// process has received.
#[derive(Debug)]
pub(super) struct Found {
    state: File,
    /// Number of bytes read so far.
    at: u64,
    sockets: Sockets,
    label: Label,
}

/// Receiving end of the Unix socket with sockets in flight. The service manager also has a
/// descriptor of this Unix socket, so sockets in flight would remain open. Dropping this value
/// receives and closes them.
#[derive(Debug)]
struct Sockets(UnixStream);

impl Sockets {
    fn new(sockets: OwnedFd) -> io::Result<Self> {
        let sockets = UnixStream::from(sockets);
        sockets.set_nonblocking(true)?;
        Ok(Self(sockets))
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        while receive_part(&self.0, &mut [0; Label::LEN]).is_ok() {}
    }
}

/// Closes the sockets that are in flight to a successor, without reading the state.
pub(crate) fn close(sockets: OwnedFd) -> io::Result<()> {
    Sockets::new(sockets).map(drop)
}

impl Found {
    /// Opens parked state.
    ///
    /// # Errors
    /// The file is not sealed: another process could alter the state. Or a system call failed.
    pub(super) fn open(Parked { state, sockets }: Parked) -> io::Result<Self> {
        // Constructed before the first check that can fail: dropping the value closes the sockets.
        let (sockets, state) = (Sockets::new(sockets)?, File::from(state));
        let label = Label::first(&state)?;
        let found = Self { state, at: 0, sockets, label };
        if !fcntl_get_seals(&found.state)?.contains(SEALS) {
            return Err(io::Error::new(ErrorKind::InvalidData, "the state is not sealed"));
        }
        Ok(found)
    }
}

impl Read for Found {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        // The file position is shared with the service manager, and has an arbitrary value.
        let read = self.state.read_at(bytes, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Inlet for Found {
    fn receive<T: Value>(&mut self) -> io::Result<T> {
        let cut_off = |error: io::Error| {
            let is_cut_off = error.kind() == ErrorKind::UnexpectedEof;
            if is_cut_off { io::Error::other("it is cut off") } else { error }
        };
        read_message(self).map_err(cut_off)
    }

    fn receive_descriptors(&mut self, count: usize) -> io::Result<Vec<OwnedFd>> {
        let missing = |error: io::Error| {
            let is_missing =
                [ErrorKind::UnexpectedEof, ErrorKind::WouldBlock].contains(&error.kind());
            if is_missing { io::Error::other("sockets are missing") } else { error }
        };
        let Self { sockets, label, .. } = self;
        let receive = || {
            let mut received = [0; Label::LEN];
            let part = receive_part(&sockets.0, &mut received)?;
            if received == label.next() { Ok(part) } else { Err(incomplete()) }
        };
        receive_descriptors(count, receive).map_err(missing)
    }
}

fn incomplete() -> io::Error {
    let what = "a process that was killed has begun to take its sockets";
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd as _;

    use super::super::messages::Step;
    use super::*;

    fn socket() -> UdpSocket {
        UdpSocket::bind("127.0.0.1:0").unwrap()
    }

    fn parked(sockets: &[UdpSocket]) -> Parked {
        let mut parking = Parking::new().unwrap();
        parking.send(&Step::Pause).unwrap();
        let fds: Vec<_> = sockets.iter().map(|socket| socket.as_fd()).collect();
        parking.send_descriptors(&fds).unwrap();
        parking.send(&Step::Commit).unwrap();
        parking.seal().unwrap()
    }

    fn copy(parked: &Parked) -> Parked {
        let copy = |fd: &OwnedFd| fd.try_clone().unwrap();
        Parked { state: copy(&parked.state), sockets: copy(&parked.sockets) }
    }

    fn is_free(address: std::net::SocketAddr) -> bool {
        UdpSocket::bind(address).is_ok()
    }

    #[test]
    fn what_is_parked_is_found_and_a_datagram_waits_in_its_socket() {
        let sockets: Vec<UdpSocket> = (0..600).map(|_| socket()).collect();
        let addresses: Vec<_> = sockets.iter().map(|one| one.local_addr().unwrap()).collect();
        let parked = parked(&sockets);
        drop(sockets);
        socket().send_to(b"late", addresses[599]).unwrap();
        let mut found = Found::open(parked).unwrap();
        assert_eq!(found.receive::<Step>().unwrap(), Step::Pause);
        let sockets = found.receive_descriptors(600).unwrap();
        let sockets: Vec<UdpSocket> = sockets.into_iter().map(UdpSocket::from).collect();
        let there: Vec<_> = sockets.iter().map(|one| one.local_addr().unwrap()).collect();
        assert_eq!(there, addresses);
        assert_eq!(found.receive::<Step>().unwrap(), Step::Commit);
        let mut bytes = [0; 8];
        assert_eq!(sockets[599].recv(&mut bytes).unwrap(), 4);
        // Neither the state nor the sockets contain more.
        assert!(found.receive::<Step>().unwrap_err().to_string().contains("cut off"));
        assert!(found.receive_descriptors(1).unwrap_err().to_string().contains("missing"));
    }

    #[test]
    fn sockets_that_nobody_takes_are_closed_although_the_manager_has_a_copy() {
        let sockets: Vec<UdpSocket> = (0..600).map(|_| socket()).collect();
        let address = sockets[599].local_addr().unwrap();
        let parked = parked(&sockets);
        drop(sockets);
        assert!(!is_free(address));
        drop(Found::open(copy(&parked)).unwrap());
        assert!(is_free(address));
    }

    /// A killed process has received some of the sockets. The remaining sockets suffice in number,
    /// but are not the requested sockets.
    #[test]
    fn sockets_behind_missing_ones_are_not_taken_for_these() {
        let sockets: Vec<UdpSocket> = (0..2).map(|_| socket()).collect();
        let address = sockets[1].local_addr().unwrap();
        let mut parking = Parking::new().unwrap();
        for socket in &sockets {
            parking.send_descriptors(&[socket.as_fd()]).unwrap();
        }
        drop(sockets);
        let parked = parking.seal().unwrap();
        let killed = UnixStream::from(copy(&parked).sockets);
        drop(receive_part(&killed, &mut [0; Label::LEN]).unwrap());
        let mut found = Found::open(copy(&parked)).unwrap();
        let refused = found.receive_descriptors(1).unwrap_err();
        assert!(refused.to_string().contains("was killed"), "{refused}");
        drop(found);
        assert!(is_free(address));
    }

    #[test]
    fn sockets_of_another_state_are_not_taken() {
        let socket = socket();
        let [first, second] = [(); 2].map(|()| {
            let mut parking = Parking::new().unwrap();
            parking.send_descriptors(&[socket.as_fd()]).unwrap();
            parking.seal().unwrap()
        });
        let mixed = Parked { state: first.state, sockets: second.sockets };
        assert!(Found::open(mixed).unwrap().receive_descriptors(1).is_err());
    }

    #[test]
    fn sockets_without_a_state_are_closed() {
        let socket = socket();
        let address = socket.local_addr().unwrap();
        let parked = parked(&[socket]);
        assert!(!is_free(address));
        close(copy(&parked).sockets).unwrap();
        assert!(is_free(address));
    }

    #[test]
    fn a_state_that_could_be_altered_is_refused_and_its_sockets_are_closed() {
        let socket = socket();
        let address = socket.local_addr().unwrap();
        let mut parking = Parking::new().unwrap();
        parking.send_descriptors(&[socket.as_fd()]).unwrap();
        drop(socket);
        let Parking { state, sockets, .. } = parking;
        let parked = Parked { state: state.into(), sockets: sockets.into() };
        let error = Found::open(copy(&parked)).unwrap_err();
        assert!(error.to_string().contains("not sealed"), "{error}");
        assert!(is_free(address));
        // A sealed state cannot be written.
        let sealed = self::parked(&[]);
        assert!(File::from(sealed.state).write_at(b"x", 0).is_err());
    }
}
