//! Tests of redirection to servers that respond. If none does, clients are served.

use std::time::{Duration, Instant};

use super::support::*;

/// Waits for a result of health checks. The server checks every 5 seconds, and needs two checks.
fn until_known(what: &str, is_known: &dyn Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_known() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn nobody_is_sent_to_a_server_that_does_not_answer() {
    let directory = Directory::new();
    let (here, there, dead) = (free_port(), free_port(), free_port());
    let config = |port: u16, more: &str| {
        format!(
            "realm = \"test.example\"\nlisten = [\"127.0.0.1:{port}\"]\n[relay]\naddresses = [\"127.0.0.1\"]\n\
             [auth]\nsecret = \"north-of-the-wall\"\n{more}"
        )
    };
    let start = |name: &str, config: &str| {
        let file = directory.file(&format!("{name}.toml"), config);
        let data = format!("{}/{name}", path(&directory.0));
        Server::start(turnpike(&["run", "--config", path(&file), "--data", &data]))
    };
    let mut other = start("there", &config(there, ""));
    let servers = format!("[redirect]\nservers = [\"127.0.0.1:{there}\", \"127.0.0.1:{dead}\"]\n");
    let _server = start("here", &config(here, &servers));
    let data = format!("{}/here", path(&directory.0));
    let ask = |arguments: &[&str]| run(&[arguments, &["--data", &data]].concat());
    let answers = |port: u16| {
        let status = json(&ask(&["status", "--json"]));
        let server = format!("127.0.0.1:{port}");
        let redirects = status["redirects"].as_array().unwrap().clone();
        let found = redirects.iter().find(|one| one["server"] == *server).unwrap();
        found["answers"].as_bool().unwrap()
    };
    until_known("the dead one is known", &|| !answers(dead));
    assert!(answers(there));
    let told = stdout(&ask(&["status"]));
    assert!(told.contains(&format!("127.0.0.1:{dead} (does not answer)")), "{told}");

    let credential = json(&run(&[
        "credentials",
        "--config",
        path(&directory.0.join("here.toml")),
        "--user",
        "bob",
        "--json",
    ]));
    let call = || {
        let word = |key: &str| credential[key].as_str().unwrap().to_owned();
        let out = run(&[
            "demo",
            "--seconds",
            "1",
            "--server",
            &format!("turn:127.0.0.1:{here}"),
            "--user",
            &word("username"),
            "--password",
            &word("password"),
        ]);
        // Packets that a busy host loses do not matter here.
        assert!(stdout(&out).contains("relayed through"), "{out:?}");
    };
    let total = |name: &str| {
        let data = format!("{}/{name}", path(&directory.0));
        let status = json(&run(&["status", "--json", "--data", &data]));
        status["allocations"]["total"].as_u64().unwrap()
    };
    // None of many clients is redirected to the dead server. The other server relays the call.
    for _ in 0..3 {
        call();
    }
    assert!(total("there") >= 6 && total("here") == 0, "{} {}", total("there"), total("here"));
    other.signal("TERM");
    assert!(other.process.wait().unwrap().success());
    until_known("the other is gone", &|| !answers(there));
    call();
    assert!(total("here") >= 2);
}
