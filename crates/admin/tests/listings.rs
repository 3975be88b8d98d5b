//! Listings over the network cost the workers no more for many askers than for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use admin::routes::Routes;
use admin::types::Sessions;
use admin::{HttpListener, Other, Role, UnixSocket, api, serve};
use control::RecentLog;
use tokio::net::UnixStream;

use crate::support::{NOW, Server, exchange, handle, session};

const ALL: &str = "/v1/sessions?limit=1000";
const SESSION: &str = "/v1/sessions/0000000000000001";

#[tokio::test]
async fn many_listings_ask_the_workers_once_a_second() {
    let server = Arc::new(Server::start().await);
    let foreign = server.token_of("other.example", Role::Read);
    let own = server.token_of(&session().record.realm, Role::Read);
    let began = Instant::now();
    let askers = (0..8).map(|asker| {
        let (server, token) = (Arc::clone(&server), [&foreign, &own][asker % 2].clone());
        tokio::spawn(async move {
            for path in [ALL, "/v1/sessions?filter=zzzzzz", "/v1/sessions?sort=-user&user=alice"] {
                let answer = server.with(&token, "GET", path).await;
                assert_eq!(answer.status, 200, "{}", answer.body);
                let has = asker % 2 == 1 && !path.contains("zzz");
                assert_eq!(answer.body.contains("\"total\":1"), has, "{path}: {}", answer.body);
                assert!(!answer.body.contains("rates"), "{}", answer.body);
            }
        })
    });
    for asker in askers.collect::<Vec<_>>() {
        asker.await.unwrap();
    }
    let seconds = u32::try_from(began.elapsed().as_secs()).unwrap();
    let listed = server.listed.load(Ordering::Relaxed);
    assert!((1..=1 + seconds).contains(&listed), "{listed} listings in {seconds} s");
}

#[tokio::test]
async fn a_listing_does_not_wait_for_the_rates_of_another() {
    let server = Arc::new(Server::start().await);
    let token = server.token(Role::Read);
    let with_rates = {
        let (server, token) = (Arc::clone(&server), token.clone());
        tokio::spawn(async move { server.with(&token, "GET", "/v1/users").await })
    };
    while server.listed.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let answer = server.with(&token, "GET", ALL).await;
    assert_eq!(answer.status, 200);
    assert!(!with_rates.is_finished(), "it waited as long as the first rate takes");
    assert_eq!(with_rates.await.unwrap().status, 200);
}

#[tokio::test]
async fn a_session_that_was_ended_is_gone_at_once() {
    let server = Server::start().await;
    let token = server.token(Role::Operate);
    let ids = async || {
        let answer = server.with(&token, "GET", ALL).await;
        let page: Sessions = serde_json::from_str(&answer.body).unwrap();
        page.sessions.into_iter().map(|one| one.id).collect::<Vec<_>>()
    };
    assert_eq!(ids().await, ["0000000000000001"]);
    assert_eq!(server.with(&token, "DELETE", SESSION).await.status, 200);
    assert_eq!(ids().await, ["0000000000000002"], "the client has allocated again");
    let listed = server.listed.load(Ordering::Relaxed);

    // Revocations end sessions as well.
    let bearer = format!("authorization: Bearer {token}\r\n");
    let answer = server.ask("POST", "/v1/revocations", &bearer, r#"{"name": "alice"}"#).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    ids().await;
    assert_eq!(server.listed.load(Ordering::Relaxed), listed + 1);
}

#[tokio::test]
async fn rates_are_known_while_sessions_are_ended() {
    let server = Server::start().await;
    let token = server.token(Role::Operate);
    let rates = "/v1/sessions?rates=true";
    assert!(server.with(&token, "GET", rates).await.body.contains("\"rates\":"));
    assert_eq!(server.with(&token, "DELETE", SESSION).await.status, 200);
    let began = Instant::now();
    let answer = server.with(&token, "GET", rates).await;
    assert!(answer.body.contains("0000000000000002"), "{}", answer.body);
    assert!(began.elapsed() < Duration::from_millis(900), "the rates of the others are known");
}

/// `turnpike sessions` is about now.
#[tokio::test]
async fn the_control_socket_asks_the_workers_each_time() {
    let listed = Arc::new(AtomicU32::new(0));
    let routes = Routes::new(handle(&listed), || NOW, None, RecentLog::default());
    let directory = std::env::temp_dir().join(format!("turnpike-fresh-{}", std::process::id()));
    let path = directory.join("control.sock");
    let socket = UnixSocket::control(&path, None, Other::Stays).unwrap();
    tokio::spawn(serve(HttpListener::Control(socket), api::control(&routes)));
    let request = format!("GET {ALL} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    for times in 1..=3 {
        let answer = exchange(UnixStream::connect(&path).await.unwrap(), &request).await;
        assert!(answer.body.contains("\"total\":1"), "{answer:?}");
        assert_eq!(listed.load(Ordering::Relaxed), times);
    }
    std::fs::remove_dir_all(directory).unwrap();
}
