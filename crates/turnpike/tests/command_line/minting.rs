//! Tests of credentials that an application requests from the server, and of calls with them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::Value;

use super::support::*;

/// Sends a request as an application does.
fn get(api: u16, query: &str, token: &str) -> (u16, Value) {
    ask(api, &format!("/turn?{query}"), token)
}

fn ask(api: u16, target: &str, token: &str) -> (u16, Value) {
    exchange(api, &format!("GET {target}"), token, "\r\n")
}

fn post(api: u16, query: &str, token: &str, kind: &str, body: &str) -> (u16, Value) {
    let length = body.len();
    let rest = format!("Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}");
    exchange(api, &format!("POST /turn?{query}"), token, &rest)
}

fn exchange(api: u16, line: &str, token: &str, rest: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(("127.0.0.1", api)).unwrap();
    let request = format!(
        "{line} HTTP/1.1\r\nHost: 127.0.0.1:{api}\r\nAuthorization: Bearer {token}\r\n\
         Connection: close\r\n{rest}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let body = answer.split("\r\n\r\n").nth(1).unwrap();
    (status, serde_json::from_str(body).unwrap())
}

#[test]
fn a_signed_token_is_traded_for_a_credential_of_its_user() {
    use jsonwebtoken::{EncodingKey, Header, encode};
    let directory = Directory::new();
    let (port, api) = (free_port(), free_port());
    let secret = "0123456789abcdef0123456789abcdef";
    let secret_file = directory.file("issuer-secret", secret);
    let config = format!(
        "realm = \"test.example\"\nlisten = [\"127.0.0.1:{port}\"]\n[relay]\naddresses = [\"127.0.0.1\"]\n\
         [auth]\nsecret = \"north-of-the-wall\"\nlimits_in_names = true\n[api]\nlisten = [\"127.0.0.1:{api}\"]\n\
         [signed_tokens]\nissuer = \"https://login.example.org/\"\naudience = \"turn\"\nsecret_file = {secret_file:?}\n"
    );
    let file = directory.file("turnpike.toml", &config);
    let data = path(&directory.0).to_owned();
    let place = ["--config", path(&file), "--data", &data];
    let _server = Server::start(turnpike(&[&["run"][..], &place].concat()));
    let sign = |audience: &str, secret: &str| {
        let claims = serde_json::json!({
            "iss": "https://login.example.org/", "aud": audience, "sub": "alice",
            "exp": 4_000_000_000_u64, "turn": { "allocations": 2, "peers": ["192.0.2.0/24", "127.0.0.0/8"] },
        });
        encode(&Header::default(), &claims, &EncodingKey::from_secret(secret.as_bytes())).unwrap()
    };
    let good = sign("turn", secret);
    let (status, minted) = get(api, "service=turn&ttl=600", &good);
    assert_eq!(status, 200, "{minted}");
    let text = |key: &str| minted[key].as_str().unwrap().to_owned();
    assert!(text("username").contains(":alice?allocations=2&peers="), "{minted}");
    let status =
        turnpike(&["demo", "--seconds", "1", "--server", minted["uris"][0].as_str().unwrap()])
            .args(["--user", &text("username"), "--password", &text("password")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    assert!(status.unwrap().success());

    assert_eq!(get(api, "service=turn&username=bob", &good).0, 400, "for its own user alone");
    let (status, refused) = get(api, "service=turn&peers=203.0.113.0/24", &good);
    assert_eq!(status, 400, "the token permits none of them: {refused}");
    assert!(refused["error"].as_str().unwrap().contains("no peer is left"), "{refused}");
    assert_eq!(get(api, "service=turn&realm=test.example", &good).0, 400);
    assert_eq!(get(api, "service=turn", &sign("elsewhere", secret)).0, 401);
    let (status, refused) = get(api, "service=turn", &sign("turn", "another-secret-of-someone"));
    assert_eq!(status, 401);
    assert!(refused["error"].as_str().unwrap().contains("signed token"), "{refused}");
    assert_eq!(ask(api, "/v1/status", &good).0, 401, "it opens nothing else");
}

#[test]
fn a_credential_of_the_server_itself_relays() {
    let directory = Directory::new();
    let (port, api) = (free_port(), free_port());
    let config = format!(
        "realm = \"test.example\"\nlisten = [\"127.0.0.1:{port}\"]\n[relay]\naddresses = [\"127.0.0.1\"]\n\
         [auth]\nsecret = \"north-of-the-wall\"\n[api]\nlisten = [\"127.0.0.1:{api}\"]\ncredential_lifetime = \"1 h\"\n"
    );
    let file = directory.file("turnpike.toml", &config);
    let data = path(&directory.0).to_owned();
    let place = ["--config", path(&file), "--data", &data];
    let _server = Server::start(turnpike(&[&["run"][..], &place].concat()));
    let tenant = ["token", "add", "tenant", "--role", "mint", "--realm", "b.example", "--json"];
    let tenant = run(&[&tenant[..], &place].concat());
    let note = String::from_utf8_lossy(&tenant.stderr);
    assert!(note.contains("the configuration has no realm b.example"), "{note}");
    let tenant: Value = serde_json::from_slice(&tenant.stdout).unwrap();
    assert_eq!(tenant["realm"], "b.example");
    let (status, refused) =
        get(api, "service=turn&username=alice", tenant["token"].as_str().unwrap());
    assert_eq!(status, 404, "a realm that is not there: {refused}");
    let made = run(&[&["token", "add", "web", "--role", "mint", "--json"][..], &place].concat());
    let token = json(&made)["token"].as_str().unwrap().to_owned();

    let (status, minted) = get(api, "service=turn&username=alice&ttl=999999", &token);
    assert_eq!((status, &minted["ttl"]), (200, &3600.into()), "at most as configured: {minted}");
    let uri = minted["uris"][0].as_str().unwrap();
    assert!(uri.contains(&port.to_string()), "{minted}");
    let text = |key: &str| minted[key].as_str().unwrap().to_owned();
    let (user, password) = (text("username"), text("password"));
    relays(uri, &user, &password);

    // An id of ten digits is a user, though it looks like a time.
    let (status, minted) = get(api, "service=turn&username=1700000000", &token);
    assert_eq!(status, 200, "{minted}");
    let text = |key: &str| minted[key].as_str().unwrap().to_owned();
    relays(uri, &text("username"), &text("password"));
    assert_eq!(get(api, "service=turn&username=42", &token).0, 200);
    let (_, minted) = get(api, "service=turn&username=zoe%CC%88", &token);
    assert!(minted["username"].as_str().unwrap().ends_with(":zo\u{eb}"), "{minted}");
    for no_name in ["a%E2%80%8Db", "a%E2%80%AEb", "a%E2%80%8Bb", "a%EE%80%80b", "a%0Ab", "a%00b"] {
        let (status, refused) = get(api, &format!("service=turn&username={no_name}"), &token);
        assert_eq!(status, 400, "no client could use it: {refused}");
        assert!(refused["error"].as_str().unwrap().contains("RFC 8265"), "{refused}");
    }
    let (status, refused) = get(api, "service=turn&username=alice&allocation=2", &token);
    assert_eq!(status, 400, "a mistyped limit: {refused}");
    assert!(refused["error"].as_str().unwrap().contains("`allocation`"), "{refused}");
    assert_eq!(get(api, &format!("service=turn&api_key={token}"), &token).0, 200);
    for (kind, expected) in [
        ("application/json", 415),
        ("multipart/form-data; boundary=x", 415),
        ("Application/X-WWW-Form-Urlencoded;charset=UTF-8", 400),
    ] {
        let (status, refused) = post(api, "service=turn", &token, kind, "allocation=2");
        assert_eq!(status, expected, "a body with limits: {kind}: {refused}");
    }
    let (status, refused) = get(api, "service=turn&username=%FF", &token);
    assert_eq!(status, 400, "names that are not UTF-8 would be one user: {refused}");
    assert_eq!(get(api, "service=turn&realm=elsewhere", &token).0, 404);
    assert_eq!(get(api, "service=turn", "wrong").0, 401);
}

/// Checks that a call with this credential succeeds.
fn relays(uri: &str, user: &str, password: &str) {
    let demo = turnpike(&["demo", "--seconds", "1", "--server", uri])
        .args(["--user", user, "--password", password])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(demo.unwrap().success(), "{user}");
}
