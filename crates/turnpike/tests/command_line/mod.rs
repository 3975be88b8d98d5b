//! Tests of the program from the command line: output, exit status, and files. Servers use the
//! loopback interface, at ports that were free shortly before.

mod authorizing;
mod certificates;
mod configuration;
mod coturn;
mod minting;
mod redirecting;
mod revoking;
mod running;
mod sessions;
mod support;
mod turnserver;
mod users;

use std::process::Command;

use self::support::*;

#[test]
fn the_demo_relays() {
    let output = run(&["demo", "--seconds", "1", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let report = json(&output);
    let flows = report["flows"].as_array().unwrap();
    assert_eq!(flows.len(), 4);
    for flow in flows {
        let least = if flow["flow"] == "audio" { 50 } else { 300 };
        assert!(flow["sent"].as_u64().unwrap() >= least, "{flow}");
        assert!(flow["latency_micros_p50"].as_u64().unwrap() > 0, "{flow}");
    }
    assert_eq!(report["damaged"], 0);
}

#[test]
fn a_first_start_can_be_tried_and_a_second_names_the_file_of_its_password() {
    let directory = Directory::new();
    let port = free_port();
    let server = first_start(&directory, port);
    let printed = server.stop();
    let server = first_start(&directory, port);

    let line = printed.lines().find(|line| line.contains(" demo --server ")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[0], env!("CARGO_BIN_EXE_turnpike"));
    assert_eq!(words[3], format!("turn:127.0.0.1:{port}"));
    // Run as printed, except for the number of seconds.
    let (seconds, line) = words.split_last().unwrap();
    assert_eq!(*seconds, "5");
    let tried = Command::new(line[0]).args(&line[1..]).arg("1").output().unwrap();
    assert!(tried.status.success(), "{tried:?}");
    assert!(stdout(&tried).contains("A to B"), "{tried:?}");

    let wrong = run(&[
        "demo",
        "--server",
        words[3],
        "--user",
        words[5],
        "--password",
        "wrong",
        "--seconds",
        "1",
    ]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(stderr(&wrong).contains("user or password is wrong"), "{wrong:?}");

    let file = directory.0.join("first-user.json");
    let again = server.stop();
    assert!(again.contains(&format!("user {} is in {}", words[5], file.display())), "{again}");
    assert!(!again.contains(words[7]), "journals keep what is printed: {again}");
    assert!(std::fs::read_to_string(&file).unwrap().contains(words[7]));

    assert!(run(&["user", "delete", words[5], "--data", path(&directory.0)]).status.success());
    assert!(!file.exists());
}

#[test]
fn a_credential_is_minted_from_the_configured_secret() {
    let directory = Directory::new();
    let file = directory.file("t.toml", "[auth]\nsecret = \"north-of-the-wall\"\n");
    let mint = |more: &[&str]| {
        run(&[&["credentials", "--config", path(&file), "--user", "bob"], more].concat())
    };
    let minted = json(&mint(&["--ttl", "10 min", "--json"]));
    assert_eq!(minted["ttl"], 600);
    let username = minted["username"].as_str().unwrap();
    assert_eq!(username, format!("{}:bob", minted["expires_unix"]));
    let password = stun_wire::time_limited_password(b"north-of-the-wall", username);
    assert_eq!(minted["password"], password);
    let output = mint(&["--secret-name", "nope"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("the configuration has"), "{output:?}");
}

#[test]
fn the_reference_is_printed_in_both_forms() {
    assert!(stdout(&run(&["reference"])).contains("allocations_per_user"));
    let schema = json(&run(&["reference", "--format", "json-schema"]));
    assert!(schema["properties"]["relay"].is_object() || schema["$defs"].is_object(), "{schema}");
}

#[test]
fn a_probe_of_what_is_no_uri_is_refused_with_advice() {
    for (arguments, what) in [
        (&["probe", "example.org"][..], "has no scheme"),
        (&["probe", "turn:example.org", "--username", "bob"], "belong together"),
        (&["probe", "turn:example.org", "--password", "x"], "belong together"),
        (&["probe"], "URI"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(what), "{arguments:?}: {output:?}");
    }
}

#[test]
fn a_probe_of_nobody_fails_and_says_what_to_do() {
    // The port is free again, and no process accepts connections there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = run(&["probe", &format!("turn:{free}?transport=tcp")]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let text = stdout(&output);
    assert!(text.contains("ok       resolve") && text.contains("FAILED   connect"), "{text}");
    assert!(text.contains("firewall"), "{text}");
    let report = json(&run(&["probe", "--json", &format!("turn:{free}?transport=tcp")]));
    assert_eq!(report["steps"][1]["state"], "failed");
}
