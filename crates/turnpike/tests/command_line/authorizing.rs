//! Tests of the authorizer, a web service that decides about allocations, and of the results for
//! clients while the service is silent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::support::*;

/// Service that responds to each question with the latest of `answers`. Passes on header and body
/// of the question.
fn service(answers: Receiver<(u16, String)>) -> (u16, Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (asked, questions) = channel();
    thread::spawn(move || {
        // Questions are handled one by one, each on a separate connection.
        let mut latest = (500, String::new());
        for stream in listener.incoming() {
            latest = answers.try_iter().last().unwrap_or(latest);
            answer(stream.unwrap(), latest.0, &latest.1, &asked);
        }
    });
    (port, questions)
}

fn answer(mut stream: TcpStream, status: u16, body: &str, asked: &Sender<(String, Value)>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
    });
    let mut question = vec![0; length.unwrap()];
    reader.read_exact(&mut question).unwrap();
    let _ = asked.send((head, serde_json::from_slice(&question).unwrap()));
    let head = format!(
        "HTTP/1.1 {status} Answer\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
}

struct Scene {
    directory: Directory,
    port: u16,
    _server: Server,
}

impl Scene {
    fn new(service: u16, keys: &str) -> Self {
        let directory = Directory::new();
        let port = free_port();
        let header = directory.file("header", "Bearer 0123456789abcdef\n");
        let config = format!(
            "realm = \"test.example\"\nlisten = [\"127.0.0.1:{port}\"]\n[relay]\naddresses = [\"127.0.0.1\"]\n\
             [auth]\nsecret = \"north-of-the-wall\"\nlimits_in_names = true\n\
             [authorizer]\nurl = \"http://127.0.0.1:{service}/ask\"\nauthorization_file = {header:?}\n{keys}\n"
        );
        let file = directory.file("turnpike.toml", &config);
        let data = path(&directory.0).to_owned();
        let place = ["--config", path(&file), "--data", &data];
        let server = Server::start(turnpike(&[&["run"][..], &place].concat()));
        Self { directory, port, _server: server }
    }

    fn place(&self) -> [String; 4] {
        let file = path(&self.directory.0.join("turnpike.toml")).to_owned();
        ["--config".to_owned(), file, "--data".to_owned(), path(&self.directory.0).to_owned()]
    }

    fn command(&self, arguments: &[&str]) -> std::process::Output {
        let place = self.place();
        let place: Vec<&str> = place.iter().map(String::as_str).collect();
        run(&[arguments, &place].concat())
    }

    /// Returns true if a credential with these limits relays.
    fn relays(&self, limits: &str) -> bool {
        let mut arguments = vec!["credentials", "--user", "alice", "--json"];
        if !limits.is_empty() {
            arguments.extend(["--limits", limits]);
        }
        let credential = json(&self.command(&arguments));
        let text = |key: &str| credential[key].as_str().unwrap().to_owned();
        let uri = format!("turn:127.0.0.1:{}", self.port);
        turnpike(&["probe", &uri, "--username", &text("username"), "--password", &text("password")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap()
            // 1 is a warning, since not everything can be tested on the server's host.
            .code()
            .is_some_and(|code| code < 2)
    }

    fn why(&self) -> String {
        let output = self.command(&["why", "alice"]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

#[test]
fn a_web_service_decides_about_allocations() {
    let (answer, answers) = channel();
    let (service, questions) = service(answers);
    let scene = Scene::new(service, "keep_for = \"0 s\"");
    let say = |status: u16, body: &str| answer.send((status, body.to_owned())).unwrap();

    say(403, "");
    assert!(!scene.relays("allocations=2"));
    let (head, question) = questions.recv().unwrap();
    assert!(head.starts_with("POST /ask HTTP/1.1\r\n"), "{head}");
    assert!(
        head.to_ascii_lowercase().contains("authorization: bearer 0123456789abcdef\r\n"),
        "{head}"
    );
    assert_eq!(question["method"], "Allocate");
    assert_eq!(question["realm"], "test.example");
    assert_eq!(question["account"], "alice");
    assert_eq!(question["transport"], "udp");
    assert_eq!(question["client_address"], "127.0.0.1");
    let username = question["username"].as_str().unwrap();
    assert!(username.ends_with(":alice?allocations=2"), "{username}");
    assert!(scene.why().contains("not_authorized"), "{}", scene.why());

    say(500, "");
    assert!(!scene.relays(""));
    assert!(scene.why().contains("authorizer_unavailable"), "{}", scene.why());

    say(200, "{\"allow\": true, \"limits\": {\"lifetime\": 600}}");
    assert!(scene.relays(""));
}

#[test]
fn without_the_service_the_rules_alone_decide_if_that_is_wanted() {
    let nobody = free_port();
    assert!(Scene::new(nobody, "when_silent = \"serve\"").relays(""));
    let scene = Scene::new(nobody, "");
    assert!(!scene.relays(""));
    assert!(scene.why().contains("authorizer_unavailable"), "{}", scene.why());
}

/// Service that denies every question after a delay.
fn denying_after(time: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (asked, _questions) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let asked = asked.clone();
            thread::spawn(move || {
                thread::sleep(time);
                answer(stream.unwrap(), 403, "", &asked);
            });
        }
    });
    port
}

/// Service that denies all questions sequentially, also those of closed connections.
fn denying_in_turn(time: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (asked, _questions) = channel();
    let turn = Arc::new(Mutex::new(()));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (asked, turn) = (asked.clone(), Arc::clone(&turn));
            thread::spawn(move || {
                // The client of a previous question may have exited.
                let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
                thread::sleep(time);
                answer(stream.unwrap(), 403, "", &asked);
            });
        }
    });
    port
}

/// A denial after the deadline closes the sessions that were served without a decision, and shows
/// that the service is slow.
#[test]
fn a_late_denial_ends_the_sessions_and_serves_nobody_again() {
    let service = denying_after(Duration::from_secs(10));
    let mut call = Call::through(&format!(
        "[authorizer]\nurl = \"http://127.0.0.1:{service}/\"\nwhen_silent = \"serve\"\nkeep_for = \"0 s\"\n\
         answer_within = \"1 s\"\n"
    ));
    call.server.wait_for("the authorizer denies late");
    eventually("its sessions are ended", || call.sessions().is_empty());
    let listener = json(&call.ask(&["status", "--json"]))["listeners"][0].clone();
    let uri = format!("turn:{}", listener.as_str().unwrap().rsplit(' ').next().unwrap());
    let probe = run(&["probe", &uri, "--username", "bob", "--password", "of-bob-alone"]);
    assert_eq!(probe.status.code(), Some(2), "{probe:?}");
    let why = stdout(&call.ask(&["why", "bob"]));
    assert!(why.contains("authorizer_overloaded"), "{why}");
}

/// The question about a client that was served in an outage is repeated without a further request.
#[test]
fn who_is_served_in_an_outage_is_denied_after_it() {
    let (answer, answers) = channel();
    // The server fails (500) at first.
    let (service, _questions) = service(answers);
    let mut call = Call::through(&format!(
        "[authorizer]\nurl = \"http://127.0.0.1:{service}/\"\nwhen_silent = \"serve\"\nkeep_for = \"0 s\"\n\
         answer_within = \"1 s\"\n"
    ));
    assert!(!call.sessions().is_empty());
    answer.send((403, String::new())).unwrap();
    call.server.wait_for("the authorizer denies late");
    eventually("its sessions are ended", || call.sessions().is_empty());
}

/// A service that is too slow for all questions of a denied client is not silent.
#[test]
fn who_is_denied_is_not_served_by_a_queue_in_the_service() {
    let keys = "when_silent = \"serve\"\nkeep_for = \"0 s\"\nanswer_within = \"1 s\"";
    for time in [150, 500] {
        let scene = Scene::new(denying_in_turn(Duration::from_millis(time)), keys);
        let relayed: Vec<_> = thread::scope(|scope| {
            let probes: Vec<_> = (0..30).map(|_| scope.spawn(|| scene.relays(""))).collect();
            probes.into_iter().map(|probe| probe.join().unwrap()).collect()
        });
        assert!(relayed.iter().all(|relays| !relays), "{time} ms: {relayed:?}");
    }
}

/// Responses without a decision are no outage, except those of a failing server.
#[test]
fn a_response_without_a_decision_serves_nobody() {
    let (answer, answers) = channel();
    let (service, _questions) = service(answers);
    let scene = Scene::new(service, "when_silent = \"serve\"\nkeep_for = \"0 s\"");
    for (status, body) in [
        (429, ""),
        (404, ""),
        (302, ""),
        (200, "{\"allow\":\"false\"}"),
        (201, "{\"allow\":false}"),
    ] {
        answer.send((status, body.to_owned())).unwrap();
        assert!(!scene.relays(""), "{status} {body}");
    }
    answer.send((503, String::new())).unwrap();
    assert!(scene.relays(""));
}

/// Covers services with a rate limiter, and services with failing servers after a load balancer.
#[test]
fn a_service_that_fails_at_times_serves_nobody_whom_it_denies() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (asked, _questions) = channel();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let status = if number % 4 == 3 { 403 } else { 503 };
            answer(stream.unwrap(), status, "", &asked);
        }
    });
    let scene = Scene::new(port, "when_silent = \"serve\"\nkeep_for = \"0 s\"");
    for _ in 0..8 {
        assert!(!scene.relays(""));
    }
}

/// A denied client with more requests than concurrent questions is not served. A dropped question
/// does not count as silence of the service.
#[test]
fn who_is_denied_is_not_served_by_asking_often() {
    let scene = Scene::new(
        denying_after(Duration::from_millis(300)),
        "when_silent = \"serve\"\nkeep_for = \"0 s\"",
    );
    let relayed: Vec<_> = thread::scope(|scope| {
        let probes: Vec<_> = (0..20).map(|_| scope.spawn(|| scene.relays(""))).collect();
        probes.into_iter().map(|probe| probe.join().unwrap()).collect()
    });
    assert!(relayed.iter().all(|relays| !relays), "{relayed:?}");
}
