//! System calls, by seccomp: a list of calls that a server never makes and that an attacker would.
//! They fail with EPERM. See docs/adr/0010 for the reason against a list of permitted calls.

use std::collections::BTreeMap;

use libc::{CLONE_THREAD, c_long};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// Never made by a server: other programs, other processes' memory, the kernel's code and clock,
/// namespaces and mounts, keys, and interfaces that kernel exploits begin with.
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

/// The same, where the architecture has them.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[c_long] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS_sysfs,
    libc::SYS_nfsservctl,
    libc::SYS__sysctl,
    libc::SYS_modify_ldt,
    libc::SYS_iopl,
    libc::SYS_ioperm,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[c_long] = &[];

/// Families of sockets that a server opens; all others are refused.
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Confines the calling thread and its children. The kernel path loads BPF programs.
pub(super) fn confine(kernel_path: bool) -> Result<(), String> {
    let refused = filter(refused(kernel_path), libc::EPERM);
    // Its flags are out of a filter's sight. The C library then uses clone, whose flags are not.
    let unseen = filter(Ok([(libc::SYS_clone3, Vec::new())].into()), libc::ENOSYS);
    for program in [refused, unseen] {
        let program = program.map_err(|error| error.to_string())?;
        // Of all threads: there is one, but for tests.
        seccompiler::apply_filter_all_threads(&program).map_err(|error| {
            format!("the kernel refuses ({error}); it needs CONFIG_SECCOMP_FILTER")
        })?;
    }
    Ok(())
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn refused(kernel_path: bool) -> Result<Rules, seccompiler::BackendError> {
    let mut rules: Rules =
        REFUSED.iter().chain(REFUSED_HERE).map(|call| (*call, Vec::new())).collect();
    if !kernel_path {
        rules.insert(libc::SYS_bpf, Vec::new());
    }
    // A thread and nothing else: neither a process nor namespaces.
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
    use super::*;

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
