//! Epoll and wakers, with the real kernel.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use crate::support;

use linux_net::{Clock, Epoll, Event, Events, Interest, Waker};

use crate::support::{V4, bind, flow, receive, send};

#[expect(clippy::unwrap_used, reason = "a test may fail here as well")]
fn poll(epoll: &Epoll) -> Vec<Event> {
    let mut events = Events::new(8);
    let count = epoll.wait(&mut events, Some(Duration::ZERO)).unwrap();
    let events: Vec<_> = events.iter().collect();
    assert_eq!(events.len(), count);
    events
}

#[test]
fn a_wait_for_nothing_lasts_as_long_as_was_said_and_not_less() {
    let epoll = Epoll::new().unwrap();
    let mut events = Events::new(1);
    for timeout in [Duration::ZERO, Duration::from_micros(1500), Duration::from_millis(20)] {
        let (start, clock) = (Instant::now(), Clock::now().instant);
        assert_eq!(epoll.wait(&mut events, Some(timeout)).unwrap(), 0);
        assert!(start.elapsed() >= timeout);
        assert!(Clock::now().instant.saturating_since(clock) >= timeout);
        assert_eq!(events.iter().count(), 0);
    }
}

#[test]
fn readable_is_reported_under_the_token_until_it_was_read() {
    let (sender, first, second) = (bind(V4), bind(V4), bind(V4));
    let epoll = Epoll::new().unwrap();
    epoll.add(&first, 1, Interest::Read).unwrap();
    epoll.add(&second, u64::MAX, Interest::Read).unwrap();
    assert_eq!(poll(&epoll), []);
    send(&sender, flow(second.local_addr()), &[b"x"]);
    support::wait(&second);
    let ready =
        Event { token: u64::MAX, readable: true, writable: false, error: false, hangup: false };
    assert_eq!(poll(&epoll), [ready]);
    assert_eq!(poll(&epoll), [ready], "level-triggered");
    receive(&second, 1);
    assert_eq!(poll(&epoll), []);
}

#[test]
fn interest_can_be_changed_and_withdrawn() {
    let socket = bind(V4);
    let epoll = Epoll::new().unwrap();
    epoll.add(&socket, 1, Interest::ErrorsOnly).unwrap();
    assert_eq!(epoll.add(&socket, 2, Interest::Read).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(poll(&epoll), []);
    epoll.modify(&socket, 3, Interest::ReadWrite).unwrap();
    let events = poll(&epoll);
    assert_eq!((events.len(), events[0].token, events[0].writable), (1, 3, true));
    epoll.delete(&socket).unwrap();
    assert_eq!(poll(&epoll), []);
    assert_eq!(epoll.delete(&socket).unwrap_err().kind(), ErrorKind::NotFound);
    epoll.add(&socket, 4, Interest::Write).unwrap();
    drop(socket);
    assert_eq!(poll(&epoll), [], "a closed descriptor leaves by itself");
}

#[test]
fn a_waker_wakes_from_another_thread_and_counts_as_one_until_drained() {
    let (waker, receiver) = Waker::new().unwrap();
    assert!(!receiver.drain());
    let epoll = Epoll::new().unwrap();
    epoll.add(&receiver, 9, Interest::Read).unwrap();
    assert_eq!(poll(&epoll), []);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let waker = waker.clone();
            std::thread::spawn(move || waker.wake())
        })
        .collect();
    let mut events = Events::new(1);
    assert_eq!(epoll.wait(&mut events, None).unwrap(), 1);
    assert_eq!(events.iter().next().map(|event| event.token), Some(9));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(receiver.drain());
    assert!(!receiver.drain());
    assert_eq!(poll(&epoll), []);
    waker.wake();
    assert!(receiver.drain(), "it wakes again");
}
