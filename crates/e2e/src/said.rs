//! Bytes of the talk between the processes of an upgrade, as a stranger to it would say them.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::Server;

/// Longest time until the first byte of a server's answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Silence after the last byte of an answer.
const SILENCE: Duration = Duration::from_millis(100);

/// A next process that has got everything, and does no more: no socket is served until it is gone.
///
/// # Panics
/// The server takes no upgrades.
#[must_use]
pub fn hang(server: &Server) -> UnixStream {
    let path = server.config_file().with_file_name("control.next");
    let mut stream = UnixStream::connect(path).expect("the server takes upgrades");
    for said in [hello(VERSION), step(COPY), step(PAUSE)] {
        stream.write_all(&said).expect("said");
        let mut bytes = [0; 4096];
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        let heard = stream.read(&mut bytes);
        assert!(heard.is_ok_and(|len| len > 0), "the server answers each");
        stream.set_read_timeout(Some(SILENCE)).expect("a time");
        while stream.read(&mut bytes).is_ok_and(|len| len > 0) {}
    }
    stream
}

/// A message of the talk.
#[must_use]
pub fn frame(document: &[u8]) -> Vec<u8> {
    let len = u32::try_from(document.len()).expect("short").to_le_bytes();
    [&len[..], document].concat()
}

fn document(version: u32, content: &[u8]) -> Vec<u8> {
    [&b"TURNPIKE"[..], &version.to_le_bytes(), content].concat()
}

/// Version of the form; see `state_format::VERSION`.
pub const VERSION: u32 = 2;

/// The version and the process of a new server.
#[must_use]
pub fn hello(version: u32) -> Vec<u8> {
    let length: &[u8] = &[18, 0, 0, 0];
    let (no_text, process) = (&[1, 4, 0, 0, 0, 0, 0, 0, 0], &[2, 4, 0, 0, 0, 1, 0, 0, 0]);
    frame(&document(version, &[length, no_text, process].concat()))
}

/// A step that has no more to say.
#[must_use]
pub fn step(number: u8) -> Vec<u8> {
    frame(&document(VERSION, &[number]))
}

/// The successor has all snapshots.
pub const PAUSE: u8 = 0;
/// The successor has imported everything.
pub const READY: u8 = 1;
/// It serves from now on.
pub const COMMIT: u8 = 2;
/// The successor wants snapshots.
pub const COPY: u8 = 4;
