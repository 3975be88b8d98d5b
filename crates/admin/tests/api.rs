//! The interface over the network: tokens, rights, browsers, other sites, TLS.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::support;

use admin::Role;
use admin::api::Rights;
use admin::types::{SessionDetails, SessionReason};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::{Answer, PAGE, Server, exchange};

const SESSION: &str = "/v1/sessions/0000000000000001";

#[tokio::test]
async fn without_a_token_there_is_nothing_to_see() {
    let server = Server::start().await;
    for (more, status) in [
        (String::new(), 401),
        ("authorization: Bearer wrong\r\n".to_owned(), 401),
        (format!("authorization: Bearer {}\r\n", "x".repeat(9000)), 401),
        ("authorization: Basic dXNlcjpwYXNz\r\n".to_owned(), 401),
        ("cookie: turnpike=forged\r\n".to_owned(), 401),
    ] {
        let answer = server.ask("GET", "/v1/status", &more, "").await;
        assert_eq!(answer.status, status, "{more}");
        assert!(answer.body.contains("turnpike token add"), "{}", answer.body);
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
    let old = server.tokens.add(
        "old",
        Rights::of(Role::Admin).lasting(Some(Duration::from_secs(1))),
        SystemTime::UNIX_EPOCH,
    );
    assert_eq!(server.with(&old.unwrap(), "GET", "/v1/status").await.status, 401, "expired");
}

#[tokio::test]
async fn an_application_gets_credentials_and_sees_nothing() {
    let server = Server::start().await;
    let [mint, read] = [Role::Mint, Role::Read].map(|role| server.token(role));
    let path = "/turn?service=turn&username=alice&ttl=600";
    for method in ["GET", "POST"] {
        let answer = server.with(&mint, method, path).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert!(answer.body.contains(":alice") && answer.body.contains("600"), "{}", answer.body);
    }
    for name in ["key", "api_key"] {
        let answer = server.ask("GET", &format!("{path}&{name}={mint}"), "", "").await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let answer = server.ask("GET", &format!("{path}&{name}=wrong"), "", "").await;
        assert_eq!(answer.status, 401);
        // The query is a place for the tokens of applications alone.
        let answer = server.ask("GET", &format!("/v1/status?{name}={read}"), "", "").await;
        assert_eq!(answer.status, 401);
    }
    assert_eq!(server.ask("GET", path, "", "").await.status, 401);
    assert_eq!(server.with(&read, "GET", path).await.status, 403, "a viewer is no application");
    assert_eq!(server.with(&mint, "GET", "/v1/status").await.status, 403);
    assert_eq!(server.with(&mint, "GET", "/v1/sessions").await.status, 403);
    assert_eq!(server.with(&mint, "GET", "/turn?service=other").await.status, 400);
    let limit = admin::limits::MINTED_PER_SECOND;
    let mut over = false;
    for _ in 0..10 * limit {
        over = server.with(&mint, "GET", path).await.status == 429;
        if over {
            break;
        }
    }
    assert!(over, "many at once");
}

#[tokio::test]
async fn a_form_has_what_a_query_may_have() {
    let server = Server::start().await;
    let mint = server.token(Role::Mint);
    let bearer = format!("authorization: Bearer {mint}\r\n");
    let form = "content-type: application/x-www-form-urlencoded; charset=UTF-8\r\n";
    let with = |more: &str| format!("{form}{more}");
    let good = "service=turn&username=al%20ice&ttl=600";
    let answer = server.ask("POST", "/turn", &with(&bearer), good).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.body.contains(":al ice") && answer.body.contains("600"), "{}", answer.body);
    let answer = server.ask("POST", "/turn", form, &format!("{good}&key={mint}")).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answer = server.ask("POST", "/turn?ttl=60", &with(&bearer), "service=turn").await;
    assert!(answer.status == 200 && answer.body.contains("60"), "{}", answer.body);
    for (body, status) in [
        (format!("{good}&key=wrong"), 401),
        (format!("{good}&ttl=60"), 400),
        ("service=turn&username=\u{fc}".to_owned(), 200),
        ("service=turn\r\nx: y".to_owned(), 400),
        (format!("{good}&x={}", "a".repeat(70_000)), 400),
    ] {
        let bearer = if status == 401 { "" } else { bearer.as_str() };
        let answer = server.ask("POST", "/turn", &with(bearer), &body).await;
        assert_eq!(answer.status, status, "{} {}", &body[..body.len().min(80)], answer.body);
    }
    // Elsewhere a form is no way to send a token.
    let answer = server.ask("POST", "/v1/reload", form, &format!("key={mint}")).await;
    assert_eq!(answer.status, 401);
}

#[tokio::test]
async fn pages_that_were_named_may_ask_for_credentials() {
    let server = Server::start().await;
    let [mint, admin] = [Role::Mint, Role::Admin].map(|role| server.token(role));
    let cookie = cookie(&sign_in(&server, &admin).await);
    let page = format!("origin: {PAGE}\r\nsec-fetch-site: cross-site\r\n");
    let ask =
        "access-control-request-method: GET\r\naccess-control-request-headers: authorization\r\n";
    let answer = server.ask("OPTIONS", "/turn?service=turn", &format!("{page}{ask}"), "").await;
    assert_eq!(answer.status, 204, "{}", answer.body);
    assert_eq!(answer.header("access-control-allow-headers"), Some("authorization, content-type"));
    let path = "/turn?service=turn&username=alice";
    for (known, status) in [
        (format!("authorization: Bearer {mint}\r\n"), 200),
        ("authorization: Bearer wrong\r\n".to_owned(), 401),
        (format!("cookie: {cookie}\r\n"), 401),
    ] {
        let answer = server.ask("GET", path, &format!("{page}{known}"), "").await;
        assert_eq!(answer.status, status, "{known}: {}", answer.body);
        assert_eq!(answer.header("access-control-allow-origin"), Some(PAGE), "{known}");
        assert_eq!(answer.header("access-control-allow-credentials"), None);
        assert_eq!(answer.header("vary"), Some("Origin"));
    }
    let bearer = format!("authorization: Bearer {admin}\r\n");
    for (method, path) in [("GET", "/v1/status"), ("OPTIONS", "/v1/status"), ("DELETE", SESSION)] {
        let answer = server.ask(method, path, &format!("{page}{bearer}"), "").await;
        assert_eq!(answer.status, 403, "{method} {path}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    for other in ["https://evil.example", "https://app.example.org.evil.example", "null"] {
        let headers = format!("origin: {other}\r\n{bearer}");
        for method in ["OPTIONS", "GET"] {
            let answer = server.ask(method, path, &headers, "").await;
            assert_eq!(answer.status, 403, "{method} {other}");
            assert_eq!(answer.header("access-control-allow-origin"), None);
        }
    }
}

#[tokio::test]
async fn a_token_of_a_realm_sees_and_changes_that_realm_alone() {
    let server = Server::start().await;
    let own = support::session().record.realm.to_string();
    let [own_read, own_admin] = [Role::Read, Role::Admin].map(|role| server.token_of(&own, role));
    let [other_mint, other] =
        [Role::Mint, Role::Admin].map(|role| server.token_of("other.example", role));
    let answer = server.with(&own_read, "GET", "/v1/me").await;
    assert!(answer.body.contains(&format!("\"realm\":\"{own}\"")), "{}", answer.body);
    // About the whole server, with any role.
    for path in [
        "/v1/overview",
        "/v1/history",
        "/v1/events",
        "/v1/status",
        "/v1/refusals",
        "/v1/configuration",
        "/v1/warnings",
        "/v1/traces",
    ] {
        let answer = server.with(&own_admin, "GET", path).await;
        assert_eq!(answer.status, 403, "{path}");
        assert!(answer.body.contains(&own), "{}", answer.body);
    }
    for (method, path) in [
        ("POST", "/v1/reload"),
        ("POST", "/v1/drain"),
        ("DELETE", "/v1/drain"),
        ("POST", "/v1/traces"),
    ] {
        assert_eq!(server.with(&own_admin, method, path).await.status, 403, "{method} {path}");
    }
    for (token, sees) in [(&own_read, true), (&other, false)] {
        for path in ["/v1/sessions", "/v1/sessions?rates=true", "/v1/users"] {
            let answer = server.with(token, "GET", path).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.body);
            assert_eq!(answer.body.contains("\"total\":1"), sees, "{path}: {}", answer.body);
            assert_eq!(answer.body.contains(&own), sees, "{path}: {}", answer.body);
        }
        let answer = server.with(token, "GET", SESSION).await;
        assert_eq!(answer.status, if sees { 200 } else { 404 }, "{}", answer.body);
    }
    let there = server.with(&other, "DELETE", SESSION).await;
    let nowhere = server.with(&other, "DELETE", "/v1/sessions/00000000000000ff").await;
    assert_eq!((there.status, nowhere.status), (404, 404));
    assert_eq!(there.body.replace("0001", "00ff"), nowhere.body, "as if it were not there");
    assert_eq!(server.with(&other, "GET", &format!("/v1/sessions?realm={own}")).await.status, 403);
    let path = format!("/turn?service=turn&realm={own}");
    assert_eq!(server.with(&other_mint, "GET", &path).await.status, 403);
    let body = format!("{{\"name\":\"bob\",\"realm\":\"{own}\"}}");
    let bearer = format!("authorization: Bearer {other}\r\n");
    assert_eq!(server.ask("POST", "/v1/revocations", &bearer, &body).await.status, 403);
    let answer = server.ask("POST", "/v1/revocations", &bearer, "{\"name\":\"bob\"}").await;
    assert!(answer.body.contains("other.example"), "{}", answer.body);
    assert_eq!(server.with(&own_admin, "DELETE", SESSION).await.status, 200);
}

/// The database may fail before the next look-up.
#[tokio::test]
async fn the_server_forgets_users_that_are_changed() {
    let server = Server::start().await;
    let (admin, tenant) =
        (server.token(Role::Admin), server.token_of("other.example", Role::Admin));
    let bearer = |token: &str| format!("authorization: Bearer {token}\r\n");
    let of = |realm: &str, name: &str| (realm.to_owned(), name.to_owned());
    let path = "/v1/accounts";
    let bob = "{\"name\": \"bob\", \"replace\": true}";
    assert_eq!(server.ask("POST", path, &bearer(&admin), bob).await.status, 200);
    assert_eq!(server.forgotten.take(), [of("example.org", "bob")]);
    let bob = "{\"name\": \"bob\"}";
    assert_eq!(server.ask("DELETE", path, &bearer(&admin), bob).await.status, 200);
    assert_eq!(server.forgotten.take(), [of("example.org", "bob")]);

    let path = "/v1/accounts/forget";
    let names = "{\"names\": [\"ann\", \"bob\"]}";
    let answer = server.ask("POST", path, &bearer(&tenant), names).await;
    assert!(answer.status == 200 && answer.body.contains("\"forgotten\":2"), "{}", answer.body);
    assert_eq!(server.forgotten.take(), [of("other.example", "ann"), of("other.example", "bob")]);
    let read = server.token(Role::Read);
    assert_eq!(server.ask("POST", path, &bearer(&read), names).await.status, 403);
    assert_eq!(server.forgotten.take(), []);
}

/// The next process has the list of changed users already.
#[tokio::test]
async fn changes_of_users_that_the_next_process_would_miss_are_errors() {
    let server = Server::start().await;
    let admin = format!("authorization: Bearer {}\r\n", server.token(Role::Admin));
    let (bob, names) = ("{\"name\": \"bob\"}", "{\"names\": [\"bob\"]}");
    drop(server.handle.pass_on_users());
    for (method, path, body) in [
        ("POST", "/v1/accounts", bob),
        ("DELETE", "/v1/accounts", bob),
        ("POST", "/v1/accounts/forget", names),
    ] {
        let answer = server.ask(method, path, &admin, body).await;
        assert!(answer.status == 503 && answer.body.contains("repeat"), "{}", answer.body);
    }
    server.handle.keep_users();
    assert_eq!(server.ask("POST", "/v1/accounts/forget", &admin, names).await.status, 200);
}

#[tokio::test]
async fn users_are_added_listed_and_deleted_by_administrators() {
    let server = Server::start().await;
    let [read, operate, admin] =
        [Role::Read, Role::Operate, Role::Admin].map(|role| server.token(role));
    let tenant = server.token_of("other.example", Role::Admin);
    let bearer = |token: &str| format!("authorization: Bearer {token}\r\n");
    let path = "/v1/accounts";
    for name in ["alice", "bob", "carol"] {
        let body = format!("{{\"name\": \"{name}\", \"allocations_max\": 2}}");
        for token in [&read, &operate] {
            assert_eq!(server.ask("POST", path, &bearer(token), &body).await.status, 403);
        }
        let answer = server.ask("POST", path, &bearer(&admin), &body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert!(answer.body.contains("\"password\":\"made\""), "{}", answer.body);
    }
    let again = "{\"name\": \"bob\", \"password\": \"hush-hush-hush\"}";
    let answer = server.ask("POST", path, &bearer(&admin), again).await;
    assert!(answer.status == 409 && !answer.body.contains("hush"), "{}", answer.body);
    let other = again.replace('}', ", \"replace\": true}");
    let answer = server.ask("POST", path, &bearer(&admin), &other).await;
    assert!(answer.status == 200 && !answer.body.contains("hush"), "{}", answer.body);
    for wrong in ["{\"name\": \"bob\", \"pasword\": \"hush-hush\"}", "hush", "{\"name\": 7}"] {
        let answer = server.ask("POST", path, &bearer(&admin), wrong).await;
        assert!(answer.status == 400 && !answer.body.contains("hush"), "{}", answer.body);
    }
    // A tenant has users of its own.
    let answer = server.ask("POST", path, &bearer(&tenant), "{\"name\": \"bob\"}").await;
    assert!(answer.body.contains("other.example"), "{}", answer.body);
    let foreign = "{\"name\": \"bob\", \"realm\": \"example.org\"}";
    for method in ["POST", "DELETE"] {
        assert_eq!(server.ask(method, path, &bearer(&tenant), foreign).await.status, 403);
    }
    let answer = server.with(&tenant, "GET", path).await;
    assert!(answer.body.contains("bob") && !answer.body.contains("alice"), "{}", answer.body);

    let first = server.with(&read, "GET", "/v1/accounts?limit=2").await;
    assert!(first.body.contains("\"next\":\"bob\""), "{}", first.body);
    let rest = server.with(&read, "GET", "/v1/accounts?limit=2&after=bob").await;
    assert!(rest.body.contains("carol") && !rest.body.contains("next"), "{}", rest.body);

    // The session of the test's server is alice's.
    let delete = "{\"name\": \"alice\", \"end_sessions\": true}";
    assert_eq!(server.ask("DELETE", path, &bearer(&operate), delete).await.status, 403);
    let answer = server.ask("DELETE", path, &bearer(&admin), delete).await;
    assert!(answer.body.contains("\"ended\":2"), "a later session as well: {}", answer.body);
    assert_eq!(server.with(&read, "GET", SESSION).await.status, 404);
    assert_eq!(server.ask("DELETE", path, &bearer(&admin), delete).await.status, 404);
}

/// The first request may have had no response, since the server was replaced.
#[tokio::test]
async fn a_repeated_deletion_of_a_user_ends_the_sessions() {
    let server = Server::start().await;
    let token = server.token(Role::Admin);
    let bearer = format!("authorization: Bearer {token}\r\n");
    let ask = async |method, body| server.ask(method, "/v1/accounts", &bearer, body).await.status;
    assert_eq!(ask("POST", "{\"name\": \"alice\"}").await, 200);
    assert_eq!(ask("DELETE", "{\"name\": \"alice\"}").await, 200);
    assert_eq!(server.with(&token, "GET", SESSION).await.status, 200);
    assert_eq!(ask("DELETE", "{\"name\": \"alice\", \"end_sessions\": true}").await, 404);
    assert_eq!(server.with(&token, "GET", SESSION).await.status, 404);
}

#[tokio::test]
async fn a_role_permits_what_it_is_for() {
    let server = Server::start().await;
    let [read, operate, admin] =
        [Role::Read, Role::Operate, Role::Admin].map(|role| server.token(role));
    for (method, path, permitted) in [
        ("GET", "/v1/status", [true, true, true]),
        ("HEAD", "/v1/status", [true, true, true]),
        ("GET", "/v1/sessions", [true, true, true]),
        ("GET", "/v1/refusals", [true, true, true]),
        ("GET", "/v1/me", [true, true, true]),
        ("GET", "/v1/overview", [true, true, true]),
        ("GET", "/v1/history", [true, true, true]),
        ("GET", SESSION, [true, true, true]),
        ("GET", "/v1/users", [true, true, true]),
        ("GET", "/v1/configuration", [true, true, true]),
        ("GET", "/v1/warnings", [true, true, true]),
        ("DELETE", SESSION, [false, true, true]),
        ("POST", "/v1/reload", [false, true, true]),
        ("POST", "/v1/drain", [false, false, true]),
        ("DELETE", "/v1/drain", [false, false, true]),
    ] {
        for (token, permitted) in [&read, &operate, &admin].into_iter().zip(permitted) {
            let answer = server.with(token, method, path).await;
            assert_eq!(answer.status != 403, permitted, "{method} {path}: {}", answer.body);
            assert_ne!(answer.status, 401, "{method} {path}");
        }
    }
    let answer = server.with(&read, "DELETE", SESSION).await;
    assert!(
        answer.body.contains("the role read") && answer.body.contains("operate"),
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn a_token_that_is_added_or_removed_counts_at_once() {
    let server = Server::start().await;
    let token = server.tokens.add("page", Rights::of(Role::Read), SystemTime::now()).unwrap();
    assert_eq!(server.with(&token, "GET", "/v1/status").await.status, 200);
    server.tokens.remove("page").unwrap();
    assert_eq!(server.with(&token, "GET", "/v1/status").await.status, 401);
}

/// Programs read `error` and `hint` of whatever is refused.
#[tokio::test]
async fn every_refusal_has_its_body() {
    let server = Server::start().await;
    let admin = server.token(Role::Admin);
    let bearer = format!("authorization: Bearer {admin}\r\n");
    let long = "a".repeat(admin::limits::REQUEST_BYTES_MAX + 1);
    let head = format!("{bearer}x-long: {}\r\n", "a".repeat(admin::limits::HEAD_BYTES_MAX));
    let form = format!("{bearer}content-type: application/x-www-form-urlencoded\r\n");
    for (method, path, headers, body, status) in [
        ("POST", "/v1/revocations", &bearer, &*long, 413),
        ("POST", "/v1/accounts", &bearer, &*long, 413),
        ("POST", "/v1/sign-in", &bearer, &*long, 400),
        ("POST", "/v1/revocations", &bearer, "{", 400),
        ("POST", "/turn", &form, &*long, 400),
        ("GET", "/v1/sessions/%ff", &bearer, "", 400),
        ("GET", "/v1/sessions?limit=many", &bearer, "", 400),
        ("GET", "/v1/status", &head, "", 431),
        ("GET", "/v1/nothing", &bearer, "", 404),
        ("PUT", "/v1/status", &bearer, "", 405),
        ("POST", "/page/app.js", &bearer, "", 405),
    ] {
        let answer = server.ask(method, path, headers, body).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
        assert_eq!(answer.header("content-type"), Some("application/json"), "{method} {path}");
        let body: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        for key in ["error", "hint"] {
            assert!(body[key].as_str().is_some_and(|text| !text.is_empty()), "{path}: {body}");
        }
    }
}

#[tokio::test]
async fn many_wrong_tokens_are_slowed_down() {
    let server = Server::start().await;
    let right = server.token(Role::Read);
    let mut last = 0;
    for _ in 0..=admin::limits::WRONG_TOKENS_PER_MINUTE {
        last = server.with("guess", "GET", "/v1/status").await.status;
    }
    assert_eq!(last, 429);
    assert_eq!(server.with(&right, "GET", "/v1/status").await.status, 200);
}

/// An application learns whether its user needs another token, or patience.
#[tokio::test]
async fn a_signed_token_is_denied_or_cannot_be_judged_or_is_too_much() {
    let server = Server::start().await;
    let path = "/turn?service=turn";
    assert_eq!(server.with("good.a.b", "GET", path).await.status, 200);
    let late = server.with("late.a.b", "GET", path).await;
    assert_eq!((late.status, late.header("retry-after")), (503, Some("60")), "{}", late.body);
    assert!(late.body.contains("its keys are missing"), "{}", late.body);
    let denied = server.with("wrong.a.b", "GET", path).await;
    assert_eq!((denied.status, denied.header("retry-after")), (401, None), "{}", denied.body);
    assert!(denied.body.contains("it is signed by nobody"), "{}", denied.body);
    assert_eq!(server.with("good.a.b", "GET", "/v1/status").await.status, 401, "only at /turn");

    // Missing keys are nobody's guess: the source is not slowed down for them.
    for _ in 0..=admin::limits::WRONG_TOKENS_PER_MINUTE {
        assert_eq!(server.with("late.a.b", "GET", path).await.status, 503);
    }
    let mut answer = server.with("good.a.b", "GET", path).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    for _ in 0..10 * admin::limits::MINTED_PER_SECOND {
        answer = server.with("good.a.b", "GET", path).await;
        if answer.status != 200 {
            break;
        }
    }
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")), "{}", answer.body);
    assert!(answer.body.contains("credentials a second"), "{}", answer.body);
    for _ in 0..=admin::limits::WRONG_TOKENS_PER_MINUTE {
        answer = server.with("wrong.a.b", "GET", path).await;
    }
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("60")), "{}", answer.body);
    assert!(answer.body.contains("too many wrong tokens"), "{}", answer.body);
}

async fn sign_in(server: &Server, token: &str) -> Answer {
    let body = format!("{{\"token\": \"{token}\"}}");
    let headers = "content-type: application/json\r\nsec-fetch-site: same-origin\r\n";
    server.ask("POST", "/v1/sign-in", headers, &body).await
}

fn cookie(answer: &Answer) -> String {
    let cookie = answer.header("set-cookie").unwrap();
    cookie.split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_browser_signs_in_and_out() {
    let server = Server::start().await;
    let token = server.token(Role::Operate);
    let wrong = sign_in(&server, "turnpike_guess").await;
    assert_eq!((wrong.status, wrong.header("set-cookie")), (401, None));
    let signed_in = sign_in(&server, &token).await;
    assert_eq!(signed_in.status, 200);
    assert!(signed_in.body.contains("operate"), "{}", signed_in.body);
    let set = signed_in.header("set-cookie").unwrap();
    assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict"), "{set}");
    assert!(!set.contains(&token), "the token itself is not in the browser");

    let cookie = cookie(&signed_in);
    let of = |more: &str| format!("cookie: a=b; {cookie}\r\n{more}");
    let own = "sec-fetch-site: same-origin\r\n";
    assert_eq!(server.ask("GET", "/v1/status", &of(own), "").await.status, 200);
    assert_eq!(server.ask("DELETE", SESSION, &of(own), "").await.status, 200);
    assert_eq!(server.ask("POST", "/v1/sign-out", &of(own), "").await.status, 200);
    assert_eq!(server.ask("GET", "/v1/status", &of(own), "").await.status, 401);
}

#[tokio::test]
async fn other_sites_get_nothing_done() {
    let server = Server::start().await;
    let token = server.token(Role::Admin);
    let cookie = cookie(&sign_in(&server, &token).await);
    let by_cookie = format!("cookie: {cookie}\r\n");
    let by_token = format!("authorization: Bearer {token}\r\n");
    for known in [by_cookie.as_str(), by_token.as_str()] {
        for foreign in [
            "sec-fetch-site: cross-site\r\n",
            "sec-fetch-site: same-site\r\n",
            "origin: https://evil.example\r\n",
            "origin: null\r\n",
        ] {
            for (method, path) in
                [("GET", "/v1/status"), ("DELETE", SESSION), ("POST", "/v1/reload")]
            {
                let answer = server.ask(method, path, &format!("{known}{foreign}"), "").await;
                assert_eq!(answer.status, 403, "{method} {path} {foreign}");
                assert_eq!(answer.header("access-control-allow-origin"), None);
            }
        }
    }
    // A cookie alone, of a browser that says nothing.
    assert_eq!(server.ask("DELETE", SESSION, &by_cookie, "").await.status, 403);
    // Another name of this host (DNS rebinding).
    let request = format!(
        "GET /v1/status HTTP/1.1\r\nhost: evil.example:80\r\n{by_token}connection: close\r\n\r\n"
    );
    assert_eq!(server.raw(&request).await.status, 403);
    for kind in ["text/plain", "application/x-www-form-urlencoded"] {
        let headers = format!("content-type: {kind}\r\n");
        let body = format!("{{\"token\": \"{token}\"}}");
        assert_eq!(server.ask("POST", "/v1/sign-in", &headers, &body).await.status, 400, "{kind}");
    }
    assert_eq!(server.ask("GET", "/v1/sessions", &by_token, "").await.status, 200, "still there");
}

#[tokio::test]
async fn nothing_of_a_token_is_in_an_error() {
    let server = Server::start().await;
    let headers = "content-type: application/json\r\n";
    for body in
        ["{\"token\": \"turnpike_secret\"", "{\"token\": 7}", "{\"tokn\": \"turnpike_secret\"}"]
    {
        let answer = server.ask("POST", "/v1/sign-in", headers, body).await;
        assert_eq!(answer.status, 400);
        assert!(!answer.body.contains("secret"), "{}", answer.body);
    }
}

/// A certificate for `localhost`, signed by an authority that is returned.
fn certificate() -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    (made.cert.der().clone(), key)
}

#[tokio::test]
async fn over_tls_the_cookie_is_for_tls_alone() {
    let (chain, key) = certificate();
    let config = ServerConfig::builder().with_no_client_auth();
    let config = Arc::new(config.with_single_cert(vec![chain.clone()], key).unwrap());
    let server = Server::start_with(Some(config)).await;
    let token = server.token(Role::Read);
    let mut roots = RootCertStore::empty();
    roots.add(chain).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let connect = async || {
        let stream = TcpStream::connect(server.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config.clone())).connect(name, stream).await.unwrap()
    };
    let body = format!("{{\"token\": \"{token}\"}}");
    let request = format!(
        "POST /v1/sign-in HTTP/1.1\r\nhost: turn.example.org\r\norigin: https://turn.example.org\r\ncontent-type: \
         application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let answer = exchange(connect().await, &request).await;
    let set = answer.header("set-cookie").unwrap();
    assert!(set.starts_with("__Host-turnpike=") && set.contains("; Secure"), "{set}");
    assert!(!set.contains("Domain"), "{set}");
    let plain = server.raw("GET /v1/status HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert_eq!(plain.status, 0, "no HTTP without TLS");
}

#[tokio::test]
async fn a_session_has_its_reasons_and_its_latest_requests() {
    let server = Server::start().await;
    let answer = server.with(&server.token(Role::Read), "GET", SESSION).await;
    let session: SessionDetails = serde_json::from_str(&answer.body).unwrap();
    let counts = |all: &[SessionReason]| -> Vec<_> {
        all.iter().map(|one| (one.reason.clone(), one.count)).collect()
    };
    assert_eq!(counts(&session.refusals), [("peer_forbidden".to_owned(), 2)]);
    assert_eq!(counts(&session.drops), [("no_permission".to_owned(), 3)]);
    let latest = &session.timeline[0];
    assert_eq!(latest.seconds_ago, 5);
    assert!(latest.text.contains("Refresh") && latest.text.contains("last of 3"), "{latest:?}");
    assert!(session.drops[0].meaning.contains("permission") && !session.drops[0].advice.is_empty());
}

#[tokio::test]
async fn a_refusal_is_explained_once() {
    let server = Server::start().await;
    let answer = server.with(&server.token(Role::Read), "GET", SESSION).await;
    let session: SessionDetails = serde_json::from_str(&answer.body).unwrap();
    let moment = |reason: &str| {
        let found = session.timeline.iter().find(|moment| moment.text.contains(reason));
        found.map(|moment| moment.text.clone()).unwrap_or_else(|| panic!("{:?}", session.timeline))
    };
    let own = moment("peer_forbidden");
    assert!(own.ends_with("refused with 403, peer_forbidden."), "{own}");
    assert_eq!(answer.body.matches(&session.refusals[0].meaning).count(), 1, "{}", answer.body);
    let earlier = moment("wrong_password");
    assert!(earlier.contains("wrong_password: "), "of no count of the session: {earlier}");
}

#[tokio::test]
async fn idle_connections_leave_room() {
    let server = Server::start().await;
    let token = server.token(Role::Read);
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(TcpStream::connect(server.address).await.unwrap());
    }
    assert_eq!(server.with(&token, "GET", "/v1/status").await.status, 200);
}

#[tokio::test]
async fn viewers_are_bounded() {
    let server = Server::start().await;
    let token = server.token(Role::Read);
    let request = format!(
        "GET /v1/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n"
    );
    let mut viewers = Vec::new();
    for _ in 0..admin::limits::VIEWERS_MAX {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        viewers.push(stream);
    }
    assert_eq!(server.with(&token, "GET", "/v1/events").await.status, 503);
    assert_eq!(server.with(&token, "GET", "/v1/status").await.status, 200);
    viewers.pop();
    let mut status = 503;
    for _ in 0..200 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        status = if head.ends_with(b"200") { 200 } else { 503 };
        if status == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(status, 200, "a place is free again");
}
