//! Encoding of messages, and transfer of descriptors, between the processes of a hand-over.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use state_format::{Value, read_document, write_document};

/// Maximum number of descriptors in one message: the kernel's `SCM_MAX_FD`.
pub(super) const DESCRIPTORS_MAX: usize = 253;

/// Maximum length of a message in bytes: enough for some million allocations of one worker.
const MESSAGE_BYTES_MAX: u32 = 1 << 30;

/// Sender of messages and descriptors to a successor or keeper.
pub(super) trait Outlet {
    fn send(&mut self, message: &impl Value) -> io::Result<()>;

    fn send_descriptors(&mut self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()>;
}

/// Receiver of messages and descriptors from a predecessor or keeper.
pub(super) trait Inlet {
    fn receive<T: Value>(&mut self) -> io::Result<T>;

    /// Receives `count` descriptors in sending order.
    fn receive_descriptors(&mut self, count: usize) -> io::Result<Vec<OwnedFd>>;
}

/// Writes a message, preceded by its length.
pub(super) fn write_message(out: &mut impl Write, message: &impl Value) -> io::Result<()> {
    let bytes = write_document(message);
    let len = u32::try_from(bytes.len()).ok().filter(|len| *len <= MESSAGE_BYTES_MAX);
    let len = len.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "it is too long"))?;
    out.write_all(&len.to_le_bytes())?;
    out.write_all(&bytes)
}

/// Reads a message written by [`write_message`].
pub(super) fn read_message<T: Value>(input: &mut impl Read) -> io::Result<T> {
    let mut len = [0; 4];
    input.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len);
    if len > MESSAGE_BYTES_MAX {
        return Err(io::Error::new(ErrorKind::InvalidData, "a message is too long"));
    }
    let mut bytes = Vec::new();
    input.take(len.into()).read_to_end(&mut bytes)?;
    if bytes.len() < len as usize {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    read_document(&bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

/// Sends the descriptors of `part`, up to [`DESCRIPTORS_MAX`], in one message with the bytes of
/// `label`. The label must not be empty: a stream socket carries descriptors only with data.
pub(super) fn send_part(
    stream: &UnixStream,
    label: &[u8],
    part: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(part));
    sendmsg(stream, &[IoSlice::new(label)], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// Receives `count` descriptors, from messages that `receive` returns.
pub(super) fn receive_descriptors(
    count: usize,
    mut receive: impl FnMut() -> io::Result<Vec<OwnedFd>>,
) -> io::Result<Vec<OwnedFd>> {
    let mut all = Vec::new();
    while all.len() < count {
        let part = receive()?;
        let fits = !part.is_empty() && all.len() + part.len() <= count;
        if !fits {
            let what = "descriptors are missing, or there are too many";
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        }
        all.extend(part);
    }
    Ok(all)
}

/// Receives the descriptors of one message, and writes the accompanying bytes to `label`.
pub(super) fn receive_part(stream: &UnixStream, label: &mut [u8]) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(label)];
    let received = recvmsg(stream.as_fd(), &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            descriptors.extend(some);
        }
    }
    if received.bytes == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        let what = "this process has no descriptors left (the limit of open files)";
        return Err(io::Error::other(what));
    }
    Ok(descriptors)
}
