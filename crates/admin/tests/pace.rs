//! Requests that are sent without waiting for answers, over real sockets.

use std::time::{Duration, Instant};

use admin::Role;
use admin::limits::ANSWERS_PER_SECOND;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::{PAGE, Server};

/// Requests of one connection.
const PIPELINED: usize = 50;

/// Answers for which an address does not wait.
const AHEAD: u32 = 50;

/// Sends many requests over each of some connections at once. Returns the answers.
async fn flood(server: &Server, request: &str, connections: usize) -> String {
    let mut clients = JoinSet::new();
    let all = request.repeat(PIPELINED);
    for _ in 0..connections {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let all = all.clone();
        clients.spawn(async move {
            stream.write_all(all.as_bytes()).await.unwrap();
            let (mut text, mut bytes) = (String::new(), [0; 16 * 1024]);
            while text.matches("HTTP/1.1 ").count() < PIPELINED {
                let len = stream.read(&mut bytes).await.unwrap();
                assert_ne!(len, 0, "it ended: {text}");
                text.push_str(&String::from_utf8_lossy(&bytes[..len]));
            }
            text
        });
    }
    clients.join_all().await.concat()
}

fn request(method: &str, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost:9642\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )
}

/// The same with this token.
fn shown(token: &str, path: &str) -> String {
    request("GET", path, &format!("authorization: Bearer {token}\r\n"), "")
}

/// Asserts that answers of this status come at the pace of an address.
async fn assert_paced(server: &Server, request: &str, status: u16) {
    let began = Instant::now();
    let answers = flood(server, request, 4).await;
    let took = began.elapsed();
    let paced = answers.matches(&format!("HTTP/1.1 {status} ")).count() as u32;
    assert!(paced > AHEAD, "{status}: {answers}");
    let least = Duration::from_secs(1) / ANSWERS_PER_SECOND * (paced - AHEAD);
    assert!(took >= least, "{status}: {took:?}");
}

#[tokio::test]
async fn strangers_have_a_pace() {
    let server = Server::start().await;
    let preflight = format!("origin: {PAGE}\r\naccess-control-request-method: GET\r\n");
    let long = format!("x: {}\r\n", "y".repeat(16 * 1024));
    for (method, path, headers, status) in [
        ("GET", "/nowhere", "", 404),
        ("GET", "/", "", 200),
        ("GET", "/v1/status", "", 401),
        ("POST", "/v1/status", "", 401),
        ("PUT", "/v1/sign-in", "", 405),
        ("OPTIONS", "/turn", "", 401),
        ("OPTIONS", "/turn", "origin: https://evil.example\r\n", 403),
        ("OPTIONS", "/turn", &preflight, 204),
        ("GET", "/v1/status", &long, 431),
    ] {
        assert_paced(&server, &request(method, path, headers, ""), status).await;
    }
}

#[tokio::test]
async fn signing_in_has_a_pace() {
    let server = Server::start().await;
    for (token, status) in [(server.token(Role::Read), 200), ("wrong".to_owned(), 429)] {
        let body = format!("{{\"token\": \"{token}\"}}");
        let sign_in = request("POST", "/v1/sign-in", "content-type: application/json\r\n", &body);
        assert_paced(&server, &sign_in, status).await;
    }
}

#[tokio::test]
async fn requests_that_a_token_does_not_permit_have_a_pace() {
    let server = Server::start().await;
    let (mints, reads) = (server.token(Role::Mint), server.token_of("one.test", Role::Read));
    for (token, path, status) in [
        (&mints, "/turn?service=turn", 429),
        (&mints, "/turn?service=other", 400),
        (&reads, "/v1/status", 403),
        (&reads, "/turn?service=turn", 403),
    ] {
        assert_paced(&server, &shown(token, path), status).await;
    }
}

#[tokio::test]
async fn holders_of_tokens_do_not_wait_for_strangers_at_their_address() {
    let server = Server::start().await;
    let (reads, mints) = (server.token(Role::Read), server.token(Role::Mint));
    let asked = async {
        for _ in 0..20 {
            assert_eq!(server.with(&reads, "GET", "/v1/status").await.status, 200);
            // Refused by the HTTP library: it is not UTF-8.
            assert_eq!(server.with(&reads, "GET", "/v1/sessions/%ff").await.status, 400);
            assert_eq!(server.with(&mints, "GET", "/turn?service=turn").await.status, 200);
        }
    };
    // An answer to a stranger waits for 0.4 s then.
    let unknown = request("GET", "/nowhere", "", "");
    let flood = flood(&server, &unknown, 200);
    tokio::select! {
        biased;
        _ = flood => panic!("a holder of a token waits"),
        asked = timeout(Duration::from_secs(4), asked) => asked.expect("no holder waits"),
    }
}
