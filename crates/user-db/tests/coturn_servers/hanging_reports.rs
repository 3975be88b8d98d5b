//! A Redis server whose connection for reports hangs, unlike all other connections.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use test_support::{DatabaseKind, eventually};

use super::{Asked, server};

/// Forwards bytes in one direction. A connection with a subscription hangs after the response: the
/// server's further bytes are lost.
fn pass(mut from: TcpStream, mut to: TcpStream, subscriptions: Option<&AtomicU32>) {
    let mut bytes = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        let text = String::from_utf8_lossy(&bytes[..len]).to_lowercase();
        if let Some(subscriptions) = subscriptions.filter(|_| text.contains("psubscribe")) {
            subscriptions.fetch_add(1, Ordering::Relaxed);
            // The response to the subscription is the last data forwarded.
            drop(to.write_all(&bytes[..len]));
            while from.read(&mut bytes).is_ok_and(|len| len > 0) {}
            return;
        }
        if to.write_all(&bytes[..len]).is_err() {
            return;
        }
    }
}

#[test]
fn a_connection_for_reports_that_hangs_is_replaced() {
    let Some(redis) = server(DatabaseKind::Redis) else { return };
    redis.run("CONFIG SET notify-keyspace-events KEA");
    let url = redis.tcp_url();
    let at = url.strip_prefix("redis://").and_then(|rest| rest.strip_suffix("/0")).unwrap();
    let (at, proxy) = (at.to_owned(), TcpListener::bind("127.0.0.1:0").unwrap());
    let through = format!("redis://{}/0", proxy.local_addr().unwrap());
    let subscriptions = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&subscriptions);
    thread::spawn(move || {
        for client in proxy.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(&at).unwrap());
            let (to, from) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || pass(from, to, None));
            let seen = Arc::clone(&seen);
            thread::spawn(move || pass(server, client, Some(&seen)));
        }
    });
    let asked = Asked::of(&through);
    assert!(asked.is_unknown("alice"));
    eventually("it subscribes", || subscriptions.load(Ordering::Relaxed) == 1);
    eventually("it subscribes again", || subscriptions.load(Ordering::Relaxed) > 1);
    drop(asked);
}
