//! Helpers of device tests: network namespaces, and a program that looks up a next hop.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::{Command, Output};
use std::thread;

use test_support::skip;

use super::{Device, devices, missing_capabilities};

/// Creates a temporary network namespace. Without the privilege, reports a skip and returns `None`.
pub(crate) fn namespace() -> Option<Namespace> {
    match lab_net::new_network_namespace() {
        Ok(file) => Some(Namespace(file)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            skip("network namespaces want root");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Returns true if this process may load programs. Reports a skip otherwise.
pub(crate) fn may_load() -> bool {
    let missing = missing_capabilities();
    if !missing.is_empty() {
        skip(format!("BPF programs want {}", missing.join(" and ")));
    }
    missing.is_empty()
}

pub(crate) struct Namespace(File);

impl Namespace {
    /// Runs a closure in a thread inside the namespace, and returns the result.
    pub(crate) fn run<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                lab_net::enter_network_namespace(&self.0).unwrap();
                action()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs commands of `ip` in the namespace, one per line.
    pub(crate) fn ip(&self, commands: &str) {
        self.run(|| commands.lines().for_each(|line| command("ip", line)));
    }

    /// Returns the path of the namespace, as accepted by `ip link set netns`.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Returns a device of the namespace.
    pub(crate) fn device(&self, name: &str) -> Device {
        let all = self.run(|| devices().unwrap());
        all.into_iter().find(|device| device.name == name).unwrap()
    }
}

/// Runs a command in the namespaces of the calling thread. Spaces separate the arguments.
fn output(program: &str, arguments: &str) -> Output {
    Command::new(program).args(arguments.split_whitespace()).output().unwrap()
}

/// Runs a command that may fail. Returns true if the command succeeded.
pub(crate) fn succeeds(program: &str, arguments: &str) -> bool {
    output(program, arguments).status.success()
}

/// Runs a command that must succeed.
pub(crate) fn command(program: &str, arguments: &str) {
    let output = output(program, arguments);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {complaint}");
}

/// Result of `bpf_fib_lookup`, of linux/bpf.h.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The next hop is reached by this device.
    Found(u32),
    /// The device of the look-up does not forward.
    ForwardingDisabled,
    /// The helper returned another result.
    Other(u32),
}

/// Looks up the next hop of a UDP packet with `bpf_fib_lookup`, as a program would from a device.
/// The look-up is in the network namespace of the calling thread.
pub(crate) fn look_up(from: u32, source: IpAddr, destination: IpAddr) -> Way {
    // struct bpf_fib_lookup, which the program receives as the packet.
    let mut question = [0; 64];
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            question[0] = libc::AF_INET as u8;
            question[16..20].copy_from_slice(&source.octets());
            question[32..36].copy_from_slice(&destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            question[0] = libc::AF_INET6 as u8;
            question[16..32].copy_from_slice(&source.octets());
            question[32..48].copy_from_slice(&destination.octets());
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => panic!("two families"),
    }
    question[1] = libc::IPPROTO_UDP as u8;
    question[6..8].copy_from_slice(&100_u16.to_ne_bytes());
    question[8..12].copy_from_slice(&from.to_ne_bytes());
    let (verdict, answer) = run(&load(&lookup_program()), &question);
    match verdict {
        0 => Way::Found(u32::from_ne_bytes(*answer[8..].first_chunk().unwrap())),
        5 => Way::ForwardingDisabled,
        other => Way::Other(other),
    }
}

/// Encodes one instruction of a BPF program.
fn instruction(code: u8, registers: (u8, u8), offset: i16, value: i32) -> [u8; 8] {
    let [low, high] = offset.to_le_bytes();
    let [a, b, c, d] = value.to_le_bytes();
    [code, registers.0 | registers.1 << 4, low, high, a, b, c, d]
}

/// Builds a program that passes the packet to `bpf_fib_lookup` as parameters, and writes the result
/// into the packet.
fn lookup_program() -> Vec<[u8; 8]> {
    const LOAD_32: u8 = 0x61;
    const LOAD_64: u8 = 0x79;
    const STORE_64: u8 = 0x7b;
    const MOVE: u8 = 0xbf;
    const MOVE_VALUE: u8 = 0xb7;
    const ADD_VALUE: u8 = 0x07;
    const JUMP_GREATER: u8 = 0x2d;
    const CALL: u8 = 0x85;
    const FIB_LOOKUP: i32 = 69;
    // r2 = data. Exits if the packet has less than 64 bytes. `rest` is the number of remaining
    // instructions.
    let packet = |rest: i16| {
        [
            instruction(LOAD_32, (2, 6), 0, 0),
            instruction(LOAD_32, (3, 6), 4, 0),
            instruction(MOVE, (4, 2), 0, 0),
            instruction(ADD_VALUE, (4, 0), 0, 64),
            instruction(JUMP_GREATER, (4, 3), rest, 0),
        ]
    };
    let mut program = vec![instruction(MOVE, (6, 1), 0, 0), instruction(MOVE_VALUE, (7, 0), 0, -1)];
    program.extend(packet(16 + 7 + 5 + 16));
    for at in 0..8 {
        program.push(instruction(LOAD_64, (5, 2), at * 8, 0));
        program.push(instruction(STORE_64, (10, 5), at * 8 - 64, 0));
    }
    program.extend([
        instruction(MOVE, (1, 6), 0, 0),
        instruction(MOVE, (2, 10), 0, 0),
        instruction(ADD_VALUE, (2, 0), 0, -64),
        instruction(MOVE_VALUE, (3, 0), 0, 64),
        instruction(MOVE_VALUE, (4, 0), 0, 0),
        instruction(CALL, (0, 0), 0, FIB_LOOKUP),
        instruction(MOVE, (7, 0), 0, 0),
    ]);
    program.extend(packet(16));
    for at in 0..8 {
        program.push(instruction(LOAD_64, (5, 10), at * 8 - 64, 0));
        program.push(instruction(STORE_64, (2, 5), at * 8, 0));
    }
    program.extend(leave(7));
    program
}

/// Builds a program that lets every packet pass.
pub(crate) fn pass_program() -> Vec<[u8; 8]> {
    const PASS: i32 = 2;
    let mut program = vec![instruction(0xb7, (7, 0), 0, PASS)];
    program.extend(leave(7));
    program
}

/// Returns the instructions that exit with the verdict in a register.
fn leave(register: u8) -> [[u8; 8]; 2] {
    [instruction(0xbf, (0, register), 0, 0), instruction(0x95, (0, 0), 0, 0)]
}

const PROG_LOAD: libc::c_long = 5;
const PROG_TEST_RUN: libc::c_long = 10;
const LINK_CREATE: libc::c_long = 28;
const LINK_DETACH: libc::c_long = 34;
const TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;

/// `union bpf_attr`. Each command reads as much as it supports.
type Attr = [u32; 36];

fn put(attr: &mut Attr, at: usize, pointer: *const u8) {
    let address = (pointer as u64).to_ne_bytes();
    for (word, bytes) in attr[at..].iter_mut().zip(address.chunks_exact(4)) {
        *word = u32::from_ne_bytes(*bytes.first_chunk().unwrap());
    }
}

/// Loads a program for XDP.
pub(crate) fn load(program: &[[u8; 8]]) -> OwnedFd {
    let mut attr: Attr = [0; 36];
    attr[0] = TYPE_XDP;
    attr[1] = program.len() as u32;
    put(&mut attr, 2, program.as_ptr().cast());
    put(&mut attr, 4, c"GPL".as_ptr().cast());
    attr[17] = ATTACH_XDP;
    // SAFETY: the attributes, and the program and the licence that they point at, live until the
    // call returns. The passed lengths are the lengths of these values.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, PROG_LOAD, attr.as_ptr(), size_of::<Attr>()) };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: the descriptor was opened just now and has no other owner.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}

/// Runs a program on a packet. Returns the verdict and the modified packet.
fn run(program: &OwnedFd, packet: &[u8; 64]) -> (u32, [u8; 64]) {
    let mut out = [0; 64];
    let mut attr: Attr = [0; 36];
    attr[0] = program.as_raw_fd() as u32;
    attr[2] = 64;
    attr[3] = 64;
    put(&mut attr, 4, packet.as_ptr());
    put(&mut attr, 6, out.as_mut_ptr());
    // SAFETY: the attributes and both packets live until the call returns. The call reads 64 bytes
    // of `packet`, and writes 64 bytes of `out` and the verdict among the attributes.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, PROG_TEST_RUN, attr.as_mut_ptr(), size_of::<Attr>())
    };
    assert!(result >= 0, "{}", io::Error::last_os_error());
    (attr[1], out)
}

/// Attaches a program to a device's driver, until the result is dropped.
///
/// # Errors
/// Returns the kernel's error.
pub(crate) fn attach(program: &OwnedFd, device: u32) -> io::Result<Attachment> {
    const IN_DRIVER: u32 = 1 << 2;
    let mut attr: Attr = [0; 36];
    attr[..4].copy_from_slice(&[program.as_raw_fd() as u32, device, ATTACH_XDP, IN_DRIVER]);
    // SAFETY: the attributes live until the call returns, and contain no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, LINK_CREATE, attr.as_ptr(), size_of::<Attr>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was opened just now and has no other owner.
    Ok(Attachment(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
}

/// Program that is attached to a device.
#[derive(Debug)]
pub(crate) struct Attachment(OwnedFd);

impl Drop for Attachment {
    fn drop(&mut self) {
        // Closing the descriptor is not enough: a command that another test starts at this moment
        // has a copy until the command runs.
        let mut attr: Attr = [0; 36];
        attr[0] = self.0.as_raw_fd() as u32;
        // SAFETY: the attributes live until the call returns, and contain no pointers.
        let result =
            unsafe { libc::syscall(libc::SYS_bpf, LINK_DETACH, attr.as_ptr(), size_of::<Attr>()) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }
}
