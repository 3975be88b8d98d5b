//! The kernel's binary interface as safe values: socket addresses, control messages, `errno`,
//! buffers that the kernel reads and writes, and system calls that several files use.

pub(crate) mod address;
pub(crate) mod cmsg;
pub(crate) mod errno;
pub(crate) mod heap;
pub(crate) mod socket;
pub(crate) mod sys;
