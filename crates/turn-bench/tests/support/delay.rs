//! A long way to a peer.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Interval of checks for the end of the test.
const LOOK: Duration = Duration::from_millis(20);

/// Forwards datagrams of one relayed address to a peer after a time, and the peer's immediately,
/// until it is dropped.
pub(crate) struct Delay {
    /// Address for clients instead of the peer's.
    pub(crate) address: SocketAddr,
    halt: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Delay {
    pub(crate) fn start(peer: SocketAddr, time: Duration) -> Self {
        let [near, far] = [(); 2].map(|()| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(LOOK)).unwrap();
            socket
        });
        far.connect(peer).unwrap();
        let (address, halt) = (near.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        let relayed: Arc<OnceLock<SocketAddr>> = Arc::default();
        let (late, due) = channel::<(Instant, Vec<u8>)>();
        let (to, from) = (Arc::clone(&halt), Arc::clone(&relayed));
        let receive = move || {
            while let Some((datagram, sender)) = next(&near, &to) {
                from.get_or_init(|| sender);
                late.send((Instant::now() + time, datagram)).unwrap();
            }
        };
        let deliver = move || {
            for (at, datagram) in due {
                thread::sleep(at.saturating_duration_since(Instant::now()));
                far.send(&datagram).unwrap();
            }
        };
        let back = Arc::clone(&halt);
        let answer = move || {
            while let Some((datagram, _)) = next(&far_too, &back) {
                near_too.send_to(&datagram, relayed.get().unwrap()).unwrap();
            }
        };
        let threads = vec![thread::spawn(receive), thread::spawn(deliver), thread::spawn(answer)];
        Self { address, halt, threads }
    }
}

/// Receives a datagram; `None` at the end of the test.
fn next(socket: &UdpSocket, halt: &AtomicBool) -> Option<(Vec<u8>, SocketAddr)> {
    let mut datagram = [0; 65_535];
    while !halt.load(Ordering::Relaxed) {
        if let Ok((len, sender)) = socket.recv_from(&mut datagram) {
            return Some((datagram[..len].to_vec(), sender));
        }
    }
    None
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.halt.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}
