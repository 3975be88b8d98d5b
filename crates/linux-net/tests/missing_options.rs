//! Kernels and sandboxes that lack a socket option.

use std::io;

use linux_net::{UdpOptions, UdpSocket};

/// Installs a seccomp filter for the calling thread that rejects one option of `SOL_SOCKET` with
/// "protocol not available".
fn forbid(option: libc::c_int) {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let statement = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    // Offsets in `struct seccomp_data`, in little-endian order: the system call number, and the
    // second and third arguments.
    let is = |at: u32, value: u32, otherwise: u8| {
        [statement(LOAD, at), libc::sock_filter { code: EQUAL, jt: 0, jf: otherwise, k: value }]
    };
    let mut filter = Vec::new();
    filter.extend(is(0, libc::SYS_setsockopt as u32, 5));
    filter.extend(is(24, libc::SOL_SOCKET as u32, 3));
    filter.extend(is(32, option as u32, 1));
    filter.push(statement(RETURN, libc::SECCOMP_RET_ERRNO | libc::ENOPROTOOPT as u32));
    filter.push(statement(RETURN, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: takes no pointers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program and the filter that the program points at live until the call returns.
    let installed =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(installed, 0, "{}", io::Error::last_os_error());
}

#[test]
#[cfg(target_endian = "little")]
fn a_kernel_that_counts_no_losses_is_no_error() {
    // The filter applies only to this thread, which exits.
    let bind = || UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::default());
    let bound = std::thread::spawn(move || {
        forbid(libc::SO_RXQ_OVFL);
        bind()
    });
    let (_, applied) = bound.join().unwrap().unwrap();
    assert!(!applied.losses && applied.gro);
    let (_, applied) = bind().unwrap();
    assert!(applied.losses);
}
