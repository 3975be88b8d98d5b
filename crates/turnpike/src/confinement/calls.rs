//! Confinement of system calls, by seccomp. The filter is a list of calls that a server never makes
//! and an attacker would. These calls fail with EPERM, as does every call of the x32 ABI. A call of
//! another architecture kills the process. See docs/adr/0010 for the reason against a list of
//! permitted calls.

use std::collections::BTreeMap;

use libc::{CLONE_THREAD, c_long};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

/// Calls that a server never makes. They affect other programs, other processes' memory, the
/// kernel's code and clock, namespaces, mounts and keys, or are frequent targets of kernel
/// exploits.
const REFUSED: &[c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_personality,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_memfd_secret,
    libc::SYS_mbind,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_set_mempolicy,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
];

/// Further refused calls that only x86-64 has. On aarch64 fork and vfork are clone(2), which
/// [`refused`] limits to threads.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[c_long] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS_sysfs,
    libc::SYS__sysctl,
    libc::SYS_modify_ldt,
    libc::SYS_iopl,
    libc::SYS_ioperm,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[c_long] = &[];

/// Address families of sockets that a server opens. All other families are refused.
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Confines the calling thread and its children. bpf(2) is permitted only if `kernel_path` is true,
/// because the kernel path loads BPF programs.
pub(super) fn confine(kernel_path: bool) -> Result<(), String> {
    let refused = filter(refused(kernel_path), libc::EPERM);
    // A filter cannot read the flags of clone3(2), which are in memory. After ENOSYS the C library
    // uses clone(2), whose flags are in a register.
    let unseen = filter(Ok([(libc::SYS_clone3, Vec::new())].into()), libc::ENOSYS);
    for program in [refused, unseen, Ok(x32_refused())] {
        let program = program.map_err(|error| error.to_string())?;
        // Applied to all threads. Except in tests, the process has one thread.
        seccompiler::apply_filter_all_threads(&program).map_err(|error| {
            format!("the kernel refuses ({error}); it needs CONFIG_SECCOMP_FILTER")
        })?;
    }
    Ok(())
}

/// Commands of bpf(2) that are permitted to threads without the right to load or attach programs
/// (linux/bpf.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BpfCommands {
    /// Commands for elements of open maps, in which a worker writes its routes:
    /// `BPF_MAP_LOOKUP_ELEM`, `BPF_MAP_UPDATE_ELEM`, `BPF_MAP_DELETE_ELEM`.
    Elements,
    /// Commands of [`Elements`](Self::Elements), and for the kernel path of a predecessor
    /// `BPF_OBJ_GET_INFO_BY_FD` and `BPF_LINK_DETACH`.
    ElementsAndLinks,
}

impl BpfCommands {
    const fn numbers(self) -> &'static [u64] {
        match self {
            Self::Elements => &[1, 2, 3],
            Self::ElementsAndLinks => &[1, 2, 3, 15, 34],
        }
    }
}

/// Limits bpf(2) in the calling thread and its later children.
pub(super) fn limit_bpf(commands: BpfCommands) -> Result<(), String> {
    let program = filter(limited(commands), libc::EPERM).map_err(|error| error.to_string())?;
    seccompiler::apply_filter(&program).map_err(|error| error.to_string())
}

fn limited(commands: BpfCommands) -> Result<Rules, seccompiler::BackendError> {
    let others = commands.numbers().iter().map(|number| condition(0, SeccompCmpOp::Ne, *number));
    let others = SeccompRule::new(others.collect::<Result<_, _>>()?)?;
    Ok([(libc::SYS_bpf, vec![others])].into())
}

/// Returns the filter for calls of the x32 ABI. The kernel reports them as calls of x86-64 with a
/// bit in the number, which the other filters do not contain. No call of another architecture has
/// this bit.
fn x32_refused() -> BpfProgram {
    const X32_BIT: u32 = 0x4000_0000;
    // Codes of linux/filter.h: load a word of seccomp_data, jump if bits are set, return.
    let [load, jump, end] = [0x20, 0x45, 0x06];
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    let step = |code, jt, k| sock_filter { code, jt, jf: 0, k };
    vec![
        // The number of the call is the first field.
        step(load, 0, 0),
        step(jump, 1, X32_BIT),
        step(end, 0, libc::SECCOMP_RET_ALLOW),
        step(end, 0, refuse),
    ]
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn refused(kernel_path: bool) -> Result<Rules, seccompiler::BackendError> {
    let mut rules: Rules =
        REFUSED.iter().chain(REFUSED_HERE).map(|call| (*call, Vec::new())).collect();
    if !kernel_path {
        rules.insert(libc::SYS_bpf, Vec::new());
    }
    // Only threads may be created: no processes and no namespaces.
    let thread = CLONE_THREAD as u64;
    let not_a_thread = condition(0, SeccompCmpOp::MaskedEq(thread), 0)?;
    let clone = vec![SeccompRule::new(vec![not_a_thread])?];
    rules.insert(libc::SYS_clone, clone);
    let others = FAMILIES.iter().map(|family| condition(0, SeccompCmpOp::Ne, *family as u64));
    let others = vec![SeccompRule::new(others.collect::<Result<_, _>>()?)?];
    rules.insert(libc::SYS_socket, others.clone());
    rules.insert(libc::SYS_socketpair, others);
    Ok(rules)
}

fn condition(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

fn filter(
    rules: Result<Rules, seccompiler::BackendError>,
    errno: i32,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    SeccompFilter::new(rules?, SeccompAction::Allow, refuse, arch)?.try_into()
}

#[cfg(test)]
mod tests {
    use super::{REFUSED as REFUSED_CALLS, *};

    /// Actions of linux/seccomp.h.
    const ALLOWED: u32 = libc::SECCOMP_RET_ALLOW;
    const REFUSED: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;

    /// Audit number of this machine's architecture, and of another architecture.
    const HERE: u32 = if cfg!(target_arch = "x86_64") { 0xC000_003E } else { 0xC000_00B7 };
    const ELSEWHERE: u32 = 0x4000_0003;

    /// Returns the result of a filter for a call with a first argument, as the kernel computes it.
    fn result(program: &BpfProgram, call: c_long, arch: u32, argument: u64) -> u32 {
        let word = |at| match at {
            0 => call as u32,
            4 => arch,
            16 => argument as u32,
            20 => (argument >> 32) as u32,
            other => panic!("a load of {other}"),
        };
        let (mut at, mut loaded) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            let jump = |is: bool| usize::from(if is { jt } else { jf });
            at += 1;
            match code {
                0x20 => loaded = word(k),
                0x05 => at += k as usize,
                0x06 => return k,
                0x15 => at += jump(loaded == k),
                0x25 => at += jump(loaded > k),
                0x35 => at += jump(loaded >= k),
                0x45 => at += jump(loaded & k != 0),
                0x54 => loaded &= k,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    #[test]
    fn calls_of_other_architectures_are_refused() {
        let refused = filter(refused(true), libc::EPERM).unwrap();
        assert_eq!(result(&refused, libc::SYS_getpid, HERE, 0), ALLOWED);
        assert_eq!(result(&refused, libc::SYS_ptrace, HERE, 0), REFUSED);
        let killed = libc::SECCOMP_RET_KILL_PROCESS;
        assert_eq!(result(&refused, libc::SYS_getpid, ELSEWHERE, 0), killed);
        let x32 = x32_refused();
        for call in [libc::SYS_getpid, libc::SYS_ptrace, libc::SYS_bpf, 520, 547] {
            assert_eq!(result(&x32, call, HERE, 0), ALLOWED);
            assert_eq!(result(&x32, call | 0x4000_0000, HERE, 0), REFUSED);
        }
    }

    /// Returns the errors of calls in a process that is started from a thread with these filters.
    #[cfg(target_arch = "x86_64")]
    fn errors(calls: &str, filters: &[BpfProgram]) -> Option<String> {
        let script = format!(
            "import ctypes\n\
             libc = ctypes.CDLL(None, use_errno=True)\n\
             libc.syscall.argtypes = [ctypes.c_long] * 4\n\
             for call in {calls}: print(libc.syscall(*call), ctypes.get_errno())"
        );
        let run = || {
            for filter in filters {
                seccompiler::apply_filter(filter).unwrap();
            }
            std::process::Command::new("python3").args(["-c", &script]).output()
        };
        let out = std::thread::scope(|scope| scope.spawn(run).join().unwrap());
        match out {
            Ok(out) => {
                assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
                Some(String::from_utf8(out.stdout).unwrap())
            }
            Err(error) => {
                test_support::skip(format!("python3 does not start: {error}"));
                None
            }
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_kernel_refuses_calls_that_are_filtered() {
        let getpid = libc::SYS_getpid | 0x4000_0000;
        // Program loading, and an element of a map that is not open.
        let bpf = libc::SYS_bpf;
        let calls = format!("[({getpid}, 0, 0, 0), ({bpf}, 5, 0, 0), ({bpf}, 1, 0, 0)]");
        let limited = filter(limited(BpfCommands::Elements), libc::EPERM).unwrap();
        let Some(filtered) = errors(&calls, &[x32_refused(), limited]) else { return };
        let filtered: Vec<&str> = filtered.lines().collect();
        let refused = format!("-1 {}", libc::EPERM);
        assert_eq!(filtered[..2], [&refused, &refused]);
        // The kernel has processed this call, and rejects the missing attributes.
        assert_ne!(filtered[2], refused);
    }

    #[test]
    fn bpf_is_limited_to_some_commands() {
        for (commands, permitted) in [
            (BpfCommands::Elements, &[1, 2, 3][..]),
            (BpfCommands::ElementsAndLinks, &[1, 2, 3, 15, 34]),
        ] {
            let program = filter(limited(commands), libc::EPERM).unwrap();
            for command in 0..64 {
                let wanted = if permitted.contains(&command) { ALLOWED } else { REFUSED };
                assert_eq!(result(&program, libc::SYS_bpf, HERE, command), wanted, "{command}");
                // The kernel reads only the lower half.
                let long = command | 1 << 40;
                assert_eq!(result(&program, libc::SYS_bpf, HERE, long), wanted, "{command}");
            }
            assert_eq!(result(&program, libc::SYS_openat, HERE, 5), ALLOWED);
        }
    }

    /// Numbers of linux/unistd.h, independent of libc's constants, for calls whose numbers differ
    /// between the two architectures: x86-64, aarch64.
    const NUMBERS: [(c_long, c_long, c_long); 8] = [
        (libc::SYS_execve, 59, 221),
        (libc::SYS_ptrace, 101, 117),
        (libc::SYS_mount, 165, 40),
        (libc::SYS_setuid, 105, 146),
        (libc::SYS_clone, 56, 220),
        (libc::SYS_socket, 41, 198),
        (libc::SYS_bpf, 321, 280),
        (libc::SYS_clone3, 435, 435),
    ];

    #[test]
    fn numbers_are_those_of_the_architecture() {
        for (call, x86_64, aarch64) in NUMBERS {
            assert_eq!(call, if cfg!(target_arch = "x86_64") { x86_64 } else { aarch64 });
        }
        let all: Vec<_> = REFUSED_CALLS.iter().chain(REFUSED_HERE).collect();
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(all.len(), distinct.len());
    }

    /// Calls of the packet path, the control plane and the C library, for both architectures.
    const MADE: [c_long; 50] = [
        libc::SYS_accept4,
        libc::SYS_bind,
        libc::SYS_brk,
        libc::SYS_capset,
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_close,
        libc::SYS_connect,
        libc::SYS_epoll_create1,
        libc::SYS_epoll_ctl,
        libc::SYS_epoll_pwait,
        libc::SYS_eventfd2,
        libc::SYS_exit_group,
        libc::SYS_fcntl,
        libc::SYS_fdatasync,
        libc::SYS_flock,
        libc::SYS_fsync,
        libc::SYS_futex,
        libc::SYS_getdents64,
        libc::SYS_getrandom,
        libc::SYS_getsockname,
        libc::SYS_getsockopt,
        libc::SYS_ioctl,
        libc::SYS_listen,
        libc::SYS_madvise,
        libc::SYS_memfd_create,
        libc::SYS_mmap,
        libc::SYS_mprotect,
        libc::SYS_munmap,
        libc::SYS_newfstatat,
        libc::SYS_openat,
        libc::SYS_pipe2,
        libc::SYS_ppoll,
        libc::SYS_prctl,
        libc::SYS_pread64,
        libc::SYS_pwrite64,
        libc::SYS_read,
        libc::SYS_recvmmsg,
        libc::SYS_recvmsg,
        libc::SYS_renameat2,
        libc::SYS_rseq,
        libc::SYS_rt_sigaction,
        libc::SYS_sched_setaffinity,
        libc::SYS_sendmmsg,
        libc::SYS_sendmsg,
        libc::SYS_setsockopt,
        libc::SYS_timerfd_settime,
        libc::SYS_unlinkat,
        libc::SYS_write,
        libc::SYS_writev,
    ];

    #[test]
    fn calls_of_the_server_are_permitted() {
        let program = filter(refused(false), libc::EPERM).unwrap();
        for call in MADE {
            assert_eq!(result(&program, call, HERE, 0), ALLOWED, "{call}");
        }
        for family in FAMILIES {
            assert_eq!(result(&program, libc::SYS_socket, HERE, family as u64), ALLOWED);
        }
        assert_eq!(result(&program, libc::SYS_socket, HERE, libc::AF_PACKET as u64), REFUSED);
        // The flags of a thread, and of fork.
        let thread = (CLONE_THREAD | libc::CLONE_VM) as u64;
        assert_eq!(result(&program, libc::SYS_clone, HERE, thread), ALLOWED);
        assert_eq!(result(&program, libc::SYS_clone, HERE, libc::SIGCHLD as u64), REFUSED);
        for call in REFUSED_CALLS.iter().chain(REFUSED_HERE) {
            assert_eq!(result(&program, *call, HERE, 0), REFUSED, "{call}");
        }
    }

    #[test]
    fn the_filters_are_programs_that_the_kernel_takes() {
        // BPF_MAXINSNS.
        for kernel_path in [true, false] {
            let program = filter(refused(kernel_path), libc::EPERM).unwrap();
            assert!(program.len() < 4096, "{}", program.len());
        }
        assert!(!refused(true).unwrap().contains_key(&libc::SYS_bpf));
        assert!(refused(false).unwrap().contains_key(&libc::SYS_bpf));
    }
}
