//! Replay of every input in the fuzz corpus through the function of its target.

#[path = "../../../fuzz/src/connection.rs"]
#[expect(unreachable_pub, reason = "public in the crate it comes from")]
mod connection;
#[path = "../../../fuzz/src/dtls.rs"]
#[expect(unreachable_pub, reason = "public in the crate it comes from")]
mod dtls;
#[path = "../../../fuzz/src/dtls_session.rs"]
#[expect(unreachable_pub, reason = "public in the crate it comes from")]
mod dtls_session;

use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        run(&std::fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs >= 10, "{inputs} in {}", folder.display());
}

#[test]
fn first_flights() {
    replay("dtls_first_flight", dtls::first_flight);
}

#[test]
fn pieces_of_hellos() {
    replay("dtls_hello_pieces", dtls::hello_pieces);
}

#[test]
fn beginnings_of_connections() {
    replay("connection_beginning", connection::beginning);
}

#[test]
fn sessions() {
    replay("dtls_session", dtls_session::session);
}

#[test]
fn states_of_sessions() {
    replay("dtls_state", dtls_session::state);
}
