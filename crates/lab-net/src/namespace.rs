//! Network namespaces of threads.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::check;

/// Creates a network namespace without a name. It lasts as long as the file, or a socket or thread
/// in it, and so never outlives the process. Other programs reach it by the path
/// `/proc/PID/fd/NUMBER` of the file.
///
/// # Errors
/// `PermissionDenied` without `CAP_SYS_ADMIN`.
pub fn new_network_namespace() -> io::Result<File> {
    // A thread of its own: the caller stays where it is.
    let made = thread::Builder::new().name("namespace".into()).spawn(|| {
        // SAFETY: takes no pointers.
        check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
        File::open("/proc/thread-self/ns/net")
    })?;
    made.join().unwrap_or_else(|_| Err(io::Error::other("the thread that made it panicked")))
}

/// Moves the calling thread alone into a network namespace: a [new one](new_network_namespace), or
/// an open file such as `/run/netns/NAME`. Sockets stay in the namespace where they were opened,
/// whichever thread uses them later.
///
/// # Errors
/// `PermissionDenied` without `CAP_SYS_ADMIN`; `InvalidInput` for a file that is no network
/// namespace.
pub fn enter_network_namespace(namespace: impl AsFd) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_namespace_is_empty_and_entered_by_one_thread_alone() {
        let namespace = match new_network_namespace() {
            Ok(namespace) => namespace,
            // Without privileges there is nothing more to see.
            Err(error) => return assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        };
        let bind = || std::net::UdpSocket::bind("127.0.0.1:0");
        thread::spawn(move || {
            enter_network_namespace(&namespace).unwrap();
            // Its loopback is down, so even that way leads nowhere.
            let to = bind().unwrap().local_addr().unwrap();
            assert!(bind().unwrap().send_to(b"x", to).is_err());
        })
        .join()
        .unwrap();
        let to = bind().unwrap().local_addr().unwrap();
        assert!(bind().unwrap().send_to(b"x", to).is_ok());
    }

    #[test]
    fn a_file_that_is_no_namespace_is_refused() {
        let file = File::open("/proc/self/stat").unwrap();
        let error = enter_network_namespace(&file).unwrap_err();
        // Which of the two is looked at first is the kernel's affair.
        let kinds = [io::ErrorKind::InvalidInput, io::ErrorKind::PermissionDenied];
        assert!(kinds.contains(&error.kind()), "{error:?}");
    }
}
