use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use turn_types::IpMeta;

use super::super::types::Flow;
use super::*;
use crate::abi::address;
use crate::abi::cmsg::Decoder;
use crate::tx::TxBatch;
use crate::{UdpOptions, UdpSocket};

const ANYWHERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9);

/// Simulated kernel with scripted results. Accepts all messages after the script.
#[derive(Default)]
struct Script {
    answers: VecDeque<Result<usize, c_int>>,
    /// Messages passed by each call.
    offered: Vec<Vec<Offered>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Offered {
    to: SocketAddr,
    run_of: Option<u16>,
    bytes: Vec<u8>,
}

impl Wire for Script {
    unsafe fn send(
        &mut self,
        _fd: BorrowedFd<'_>,
        headers: *mut libc::mmsghdr,
        count: usize,
    ) -> Result<usize, c_int> {
        // SAFETY: the caller promises `count` headers that are valid to read.
        let headers = unsafe { std::slice::from_raw_parts(headers, count) };
        // SAFETY: the caller promises that all memory that the headers point at is valid.
        self.offered.push(headers.iter().map(|header| unsafe { read(&header.msg_hdr) }).collect());
        self.answers.pop_front().unwrap_or(Ok(count))
    }
}

/// # Safety
/// All memory that the header points at must be valid to read.
unsafe fn read(header: &libc::msghdr) -> Offered {
    // SAFETY: the caller promises that all memory the header points at is valid to read, for the
    // lengths in the header and the iovecs.
    let bytes = |start: *const libc::c_void, len: usize| unsafe {
        std::slice::from_raw_parts(start.cast::<u8>(), len)
    };
    let control = bytes(header.msg_control, header.msg_controllen as _);
    let run_of = Decoder::new(control)
        .find(|&(level, kind, _)| (level, kind) == (libc::SOL_UDP, libc::UDP_SEGMENT))
        .map(|(_, _, data)| u16::from_ne_bytes(data.try_into().unwrap()));
    // SAFETY: as above.
    let iovecs = unsafe { std::slice::from_raw_parts(header.msg_iov, header.msg_iovlen as _) };
    Offered {
        to: address::decode(bytes(header.msg_name, header.msg_namelen as _)).unwrap(),
        run_of,
        bytes: iovecs.iter().flat_map(|v| bytes(v.iov_base, v.iov_len)).copied().collect(),
    }
}

/// Batch, simulated kernel, and results.
struct Bench {
    batch: TxBatch,
    sender: Sender<Script>,
    stats: SendStats,
    failed: Vec<(u32, SendError)>,
    next_tag: u32,
}

impl Bench {
    fn new(answers: &[Result<usize, c_int>]) -> Self {
        let script = Script { answers: answers.iter().copied().collect(), ..Script::default() };
        Self {
            batch: TxBatch::new(),
            sender: Sender::over(script, Segmentation::new(true), 1000),
            stats: SendStats::default(),
            failed: Vec::new(),
            next_tag: 0,
        }
    }

    /// Pushes datagrams of these sizes, each filled with the datagram's tag. Tags count from 0.
    fn push(&mut self, flow: Flow, sizes: &[usize]) {
        for &size in sizes {
            let part = self.batch.arena_write(&vec![self.next_tag as u8; size]).unwrap();
            self.batch.push(flow, &[part], self.next_tag).unwrap();
            self.next_tag += 1;
        }
    }

    fn flush(&mut self, sockets: &impl SocketTable) {
        let rx = RxBatch::new(1);
        let (load, _) = self.batch.split(&rx);
        self.sender
            .send(load, sockets, &mut self.stats, |tag, error| self.failed.push((tag, error)));
        self.batch.clear();
    }

    /// Returns for each message of each call the size, and the segment size of a run.
    fn calls(&self) -> Vec<Vec<(usize, Option<u16>)>> {
        let offered = self.sender.wire.offered.iter();
        offered.map(|call| call.iter().map(|m| (m.bytes.len(), m.run_of)).collect()).collect()
    }
}

fn flow(port: u16) -> Flow {
    let to = SocketAddr::new(ANYWHERE.ip(), port);
    Flow { socket: SendSocket(0), to, from: None, meta: IpMeta::DEFAULT }
}

fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::default()).unwrap().0
}

#[test]
fn runs_and_single_datagrams_of_one_socket_go_in_one_call() {
    let mut bench = Bench::new(&[]);
    bench.push(flow(1), &[100, 100, 50]);
    bench.push(flow(2), &[70]);
    bench.flush(&socket());
    assert_eq!(bench.calls(), [[(250, Some(100)), (70, None)]]);
    let first = &bench.sender.wire.offered[0][0];
    assert_eq!(first.to, flow(1).to);
    assert_eq!(first.bytes, [vec![0; 100], vec![1; 100], vec![2; 50]].concat());
    let expected = SendStats {
        calls: 1,
        datagrams: 4,
        bytes: 320,
        segments_per_send: bench.stats.segments_per_send,
        ..SendStats::default()
    };
    assert_eq!(bench.stats, expected);
    assert_eq!(bench.stats.segments_per_send.counts(), &[1, 0, 1, 0, 0, 0]);
}

#[test]
fn each_socket_has_its_own_call_and_a_closed_one_none() {
    let mut bench = Bench::new(&[]);
    for (index, port) in [(0, 1), (7, 2), (1, 3)] {
        bench.push(Flow { socket: SendSocket(index), ..flow(port) }, &[10, 10]);
    }
    bench.flush(&vec![socket(), socket()]);
    assert_eq!(bench.calls(), [[(20, Some(10))], [(20, Some(10))]]);
    assert_eq!(bench.failed, [(2, SendError::Closed), (3, SendError::Closed)]);
    assert_eq!((bench.stats.datagrams, bench.stats.failed), (4, 2));
}

#[test]
fn interleaved_sockets_send_in_one_call_each_in_order() {
    let mut bench = Bench::new(&[]);
    for size in [10, 10, 4] {
        bench.push(flow(1), &[size]);
        bench.push(Flow { socket: SendSocket(1), ..flow(2) }, &[20]);
        bench.push(flow(3), &[30]);
    }
    bench.flush(&vec![socket(), socket()]);
    assert_eq!(
        bench.calls(),
        [vec![(24, Some(10)), (90, Some(30))], vec![(60, Some(20))]],
        "two runs of the first socket, one of the second"
    );
    let first = &bench.sender.wire.offered[0][0];
    assert_eq!(first.bytes, [vec![0; 10], vec![3; 10], vec![6; 4]].concat());
    assert_eq!(bench.stats.datagrams, 9);
}

#[test]
fn a_refused_run_of_datagrams_that_came_apart_goes_out_in_order() {
    let mut bench = Bench::new(&[Err(libc::EINVAL)]);
    for _ in 0..3 {
        bench.push(flow(1), &[10]);
        bench.push(flow(2), &[20]);
    }
    bench.flush(&socket());
    let last = bench.sender.wire.offered.last().unwrap();
    let firsts: Vec<u8> = last.iter().map(|message| message.bytes[0]).collect();
    assert_eq!(firsts, [0, 2, 4, 1, 3, 5]);
    assert_eq!((bench.stats.datagrams, bench.stats.failed), (6, 0));
}

#[test]
fn the_rest_of_a_partial_send_is_sent_again() {
    let mut bench = Bench::new(&[Ok(2), Ok(1)]);
    bench.push(flow(1), &[1, 2, 3, 4, 5]);
    bench.flush(&socket());
    let sizes: Vec<Vec<usize>> =
        bench.calls().iter().map(|call| call.iter().map(|m| m.0).collect()).collect();
    assert_eq!(sizes, [vec![1, 2, 3, 4, 5], vec![3, 4, 5], vec![4, 5]]);
    assert_eq!((bench.stats.calls, bench.stats.datagrams), (3, 5));
}

#[test]
fn more_messages_than_a_call_takes_are_sent_by_several() {
    let mut bench = Bench::new(&[]);
    let sizes: Vec<usize> = (1..=150).collect();
    bench.push(flow(1), &sizes);
    bench.flush(&socket());
    let counts: Vec<usize> = bench.calls().iter().map(Vec::len).collect();
    assert_eq!(counts, [MAX_PER_CALL, MAX_PER_CALL, 150 - 2 * MAX_PER_CALL]);
    assert_eq!(bench.stats.datagrams, 150);
}

#[test]
fn a_full_socket_drops_its_rest_and_no_other_sockets() {
    let mut bench = Bench::new(&[Ok(1), Err(libc::EAGAIN)]);
    bench.push(flow(1), &[10]);
    bench.push(flow(2), &[10, 10]);
    bench.push(flow(3), &[10]);
    bench.push(Flow { socket: SendSocket(1), ..flow(4) }, &[10]);
    bench.flush(&vec![socket(), socket()]);
    assert_eq!(bench.failed, [1, 2, 3].map(|tag| (tag, SendError::WouldBlock)));
    assert_eq!((bench.stats.datagrams, bench.stats.failed), (2, 3));
}

#[test]
fn an_error_left_by_icmp_costs_one_more_try() {
    for errno in [libc::ECONNREFUSED, libc::EHOSTUNREACH, libc::EMSGSIZE] {
        let mut bench = Bench::new(&[Err(errno)]);
        bench.push(flow(1), &[10, 10]);
        bench.push(flow(2), &[10]);
        bench.flush(&socket());
        assert_eq!(bench.calls(), [[(20, Some(10)), (10, None)]; 2], "{errno}");
        assert_eq!((bench.stats.datagrams, bench.stats.retried), (3, 1));
        assert_eq!(bench.failed, []);
    }
}

#[test]
fn an_error_that_stays_fails_its_datagram_only() {
    let stays = |errno| [Err(errno), Err(errno)];
    let cases = [
        (stays(libc::EHOSTUNREACH).to_vec(), SendError::Unreachable),
        (stays(libc::EMSGSIZE).to_vec(), SendError::TooBig),
        (stays(libc::EACCES).to_vec(), SendError::Denied),
        (vec![Err(libc::EPERM)], SendError::Denied),
        (vec![Err(libc::ENOBUFS)], SendError::NoBuffers),
        (vec![Err(libc::EINVAL)], SendError::Other(libc::EINVAL)),
    ];
    for (answers, expected) in cases {
        let mut bench = Bench::new(&answers);
        bench.push(flow(1), &[10]);
        bench.push(flow(2), &[10]);
        bench.flush(&socket());
        assert_eq!(bench.failed, [(0, expected)]);
        assert_eq!((bench.stats.datagrams, bench.stats.failed), (1, 1));
    }
}

#[test]
fn the_second_try_is_each_messages_own() {
    let refused = Err(libc::ECONNREFUSED);
    let mut bench = Bench::new(&[refused, Ok(1), refused, Ok(1), refused]);
    bench.push(flow(1), &[1, 2, 3]);
    bench.flush(&socket());
    assert_eq!((bench.stats.datagrams, bench.stats.retried, bench.stats.failed), (3, 3, 0));
}

#[test]
fn a_failed_run_fails_all_its_datagrams() {
    let mut bench = Bench::new(&[Err(libc::EPERM)]);
    bench.push(flow(1), &[10, 10, 5]);
    bench.flush(&socket());
    assert_eq!(bench.failed, [0, 1, 2].map(|tag| (tag, SendError::Denied)));
}

#[test]
fn a_refused_run_goes_out_one_by_one_and_is_not_tried_again() {
    // EMSGSIZE can be left by ICMP, so only two errors are treated as a refusal.
    let refusals = [vec![Err(libc::EMSGSIZE); 2], vec![Err(libc::EINVAL)], vec![Err(libc::EIO)]];
    for answers in refusals {
        let mut bench = Bench::new(&answers);
        let socket = socket();
        bench.push(flow(2), &[9]);
        bench.push(flow(1), &[100, 100, 50]);
        bench.sender.wire.answers.push_front(Ok(1));
        bench.flush(&socket);
        let singles = vec![(100, None), (100, None), (50, None)];
        assert_eq!(bench.calls().last(), Some(&singles), "{answers:?}");
        assert_eq!((bench.stats.datagrams, bench.stats.refused_runs), (4, 1));
        assert_eq!(bench.failed, []);

        bench.push(flow(1), &[100, 100, 50]);
        bench.flush(&socket);
        assert_eq!(bench.calls().last(), Some(&singles), "remembered: {answers:?}");
        assert_eq!(bench.stats.refused_runs, 1);

        let warning = bench.sender.warnings.take();
        assert!(matches!(warning, Some(Warning::RunRefused { segment_size: 100, .. })));
        assert_eq!(bench.sender.warnings.take(), None);
    }
}

#[test]
fn a_refused_run_in_the_middle_loses_and_repeats_nothing() {
    let mut bench = Bench::new(&[Ok(1), Err(libc::EINVAL), Ok(2), Err(libc::EPERM)]);
    bench.push(flow(1), &[10, 10]);
    bench.push(Flow { to: "127.0.0.2:2".parse().unwrap(), ..flow(2) }, &[20, 20, 20]);
    bench.push(flow(3), &[30, 30]);
    bench.flush(&socket());
    let run = (60, Some(30));
    assert_eq!(
        bench.calls(),
        [
            vec![(20, Some(10)), (60, Some(20)), run],
            vec![(60, Some(20)), run],
            vec![(20, None), (20, None), (20, None), run],
            vec![(20, None), run],
            vec![run],
        ]
    );
    assert_eq!(bench.failed, [(4, SendError::Denied)], "the third of the refused run");
    assert_eq!(bench.stats.datagrams, 6);
}

#[test]
fn a_long_refused_run_is_spread_over_calls() {
    let mut bench = Bench::new(&[Err(libc::EIO)]);
    bench.push(flow(1), &[1]);
    bench.sender.wire.answers.push_front(Ok(1));
    bench.push(flow(2), &[10; 64]);
    bench.push(flow(3), &[1]);
    bench.flush(&socket());
    let counts: Vec<usize> = bench.calls().iter().map(Vec::len).collect();
    assert_eq!(counts, [3, 2, MAX_PER_CALL, 1]);
    assert_eq!((bench.stats.datagrams, bench.stats.failed), (66, 0));
}

#[test]
fn datagrams_with_and_without_df_do_not_share_a_call() {
    let mut bench = Bench::new(&[]);
    let meta = IpMeta { dont_fragment: true, ..IpMeta::DEFAULT };
    bench.push(flow(1), &[1]);
    bench.push(Flow { meta, ..flow(1) }, &[2, 2]);
    bench.push(flow(1), &[3]);
    bench.flush(&socket());
    assert_eq!(bench.calls(), [[(1, None)], [(4, Some(2))], [(3, None)]]);
}

#[test]
fn an_interrupted_call_is_made_again() {
    let mut bench = Bench::new(&[Err(libc::EINTR), Err(libc::EINTR)]);
    bench.push(flow(1), &[1]);
    bench.flush(&socket());
    assert_eq!((bench.stats.datagrams, bench.stats.retried), (1, 0));
}

#[test]
fn without_sendmmsg_every_message_is_sent_all_the_same() {
    let socket = socket();
    let mut batch = TxBatch::new();
    let mut sender =
        Sender::over(Kernel { sendmmsg: false }, Segmentation::new(crate::capabilities().gso), 10);
    let flow = Flow { to: socket.local_addr(), ..flow(0) };
    for size in [1, 2, 3] {
        let part = batch.arena_write(&vec![7; size]).unwrap();
        batch.push(flow, &[part], 0).unwrap();
    }
    let (rx, mut stats) = (RxBatch::new(1), SendStats::default());
    let (load, _) = batch.split(&rx);
    sender.send(load, &socket, &mut stats, |tag, error| panic!("{tag}: {error:?}"));
    assert_eq!((stats.calls, stats.datagrams, stats.bytes), (3, 3, 6));
    assert_eq!(sender.take_warning(), Some(Warning::NoSendmmsg));
    assert_eq!(sender.take_warning(), None);
}
