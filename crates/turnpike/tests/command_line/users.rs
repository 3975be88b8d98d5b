//! Tests of `turnpike user`, and of the chosen realm.

use std::io::{BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;

use super::support::*;

#[test]
fn users_are_added_listed_and_deleted() {
    let directory = Directory::new();
    let data = path(&directory.0).to_owned();
    let ask = |arguments: &[&str]| run(&[arguments, &["--data", &data]].concat());

    for arguments in [&["user", "list"][..], &["user", "delete", "bob"]] {
        let output = ask(arguments);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("there is no user database at"), "{output:?}");
    }
    assert!(!directory.0.join("users.sqlite").exists());

    let added = json(&ask(&["user", "add", "bob", "--json"]));
    assert_eq!(added["password"].as_str().unwrap().len(), 26);
    assert_eq!(added["replaced"], false);
    let again = ask(&["user", "add", "bob", "--allocations-max", "5"]);
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    assert!(stderr(&again).contains("user set NAME"), "{again:?}");
    assert!(stdout(&ask(&["user", "list"])).contains("as configured"), "nothing was changed");
    let mut piped = turnpike(&["user", "password", "bob", "--password-stdin", "--data", &data])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    piped.stdin.take().unwrap().write_all(b"of-bob-alone\n").unwrap();
    let output = piped.wait_with_output().unwrap();
    assert!(stdout(&output).contains("bob has a new password"), "{output:?}");
    assert!(!stdout(&output).contains("of-bob-alone"), "{output:?}");
    let short = ask(&["user", "passwd", "bob", "--password", "x"]);
    assert_eq!(short.status.code(), Some(2));
    assert!(stderr(&short).contains("the password has 1 character, and needs 8"), "{short:?}");
    let set = stdout(&ask(&["user", "set", "bob", "--allocations-max", "5"]));
    assert!(set.contains("bob in realm turnpike: allocations 5") && !set.contains("password"));
    assert_eq!(json(&ask(&["user", "list", "--json"]))[0]["allocations_max"], 5);
    assert!(ask(&["user", "set", "bob", "--allocations-max", "default"]).status.success());
    for command in
        [&["user", "password", "eve"][..], &["user", "set", "eve", "--allocations-max", "1"]]
    {
        assert!(stderr(&ask(command)).contains("no user \"eve\""));
    }
    let replaced = ["user", "add", "bob", "--replace", "--json"];
    assert_eq!(json(&ask(&replaced))["replaced"], true);

    let listed = json(&ask(&["user", "list", "--json"]));
    assert_eq!(listed[0]["username"], "bob");
    assert!(stdout(&ask(&["user", "list"])).contains("bob   turnpike  as configured"));
    let deleted = stdout(&ask(&["user", "delete", "bob"]));
    assert!(deleted.contains("bob was deleted in realm turnpike"), "{deleted}");
    // A name that was prepared when it was added is found as it was typed.
    assert_eq!(json(&ask(&["user", "add", "cafe\u{301}", "--json"]))["username"], "caf\u{e9}");
    assert!(ask(&["user", "delete", "cafe\u{301}"]).status.success());
    assert_eq!(ask(&["user", "delete", "bob"]).status.code(), Some(1));
    assert!(stdout(&ask(&["user", "list"])).contains("turnpike user add"));
    assert_eq!(ask(&["user", "add", ""]).status.code(), Some(2));
}

#[test]
fn a_user_is_never_written_into_a_realm_that_nobody_serves() {
    let directory = Directory::new();
    let data = path(&directory.0).to_owned();
    let port = free_port();
    let config = |realm: &str| {
        directory.file(
            "turnpike.toml",
            &format!(
                "realm = \"{realm}\"\nlisten = [\"127.0.0.1:{port}\"]\n[relay]\n\
                 addresses = [\"127.0.0.1\"]\n"
            ),
        )
    };
    let file = config("example.org");
    let ask = |arguments: &[&str]| run(&[arguments, &["--data", &data]].concat());
    let add =
        |name: &str, more: &[&str]| ask(&[&["user", "add", name, "--json"][..], more].concat());

    let server = Server::start(turnpike(&["--config", path(&file), "--data", &data]));
    assert_eq!(json(&add("alice", &[]))["realm"], "example.org", "the running server's");
    assert_eq!(stdout(&ask(&["user", "list"])).lines().count(), 2);
    server.stop();

    let refused = add("bob", &[]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(stderr(&refused).contains("1 user in realm example.org"), "{refused:?}");
    assert_eq!(ask(&["user", "list"]).status.code(), Some(2));
    assert_eq!(json(&add("bob", &["--config", path(&file)]))["realm"], "example.org");
    assert_eq!(json(&add("eve", &["--realm", "example.org"]))["realm"], "example.org");

    // With another realm, the start names the realms that have users.
    let mut command = turnpike(&["--config", path(&config("other.example")), "--data", &data]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let log = BufReader::new(process.stderr.take().unwrap());
    let mut server = Server { process, log };
    let said = server.wait_for("no client may relay");
    assert!(said.contains("3 users in realm example.org"), "{said}");
    server.wait_for("ready");
    server.stop();
}

#[test]
fn a_slip_in_the_name_of_a_realm_is_said() {
    let directory = Directory::new();
    let data = path(&directory.0).to_owned();
    let text = "realm = \"a.example\"\n[[realms]]\nname = \"b.example\"\n";
    let file = directory.file("turnpike.toml", text);
    let add = |name: &str, realm: &str| {
        let at = ["--realm", realm, "--config", path(&file), "--data", &data];
        let added = run(&[&["user", "add", name][..], &at].concat());
        assert!(added.status.success(), "{added:?}");
        stderr(&added)
    };
    let said = add("alice", "b.exmaple");
    assert!(said.contains("no realm b.exmaple") && said.contains("a.example, b.example"), "{said}");
    assert!(add("bob", "b.exmaple").contains("no realm b.exmaple"), "said again");
    for realm in ["a.example", "b.example"] {
        assert!(!add("alice", realm).contains("note:"));
    }

    // Realms of coturn's tables are accepted as well.
    let turndb = directory.0.join("turndb");
    let origin = ["turnadmin", "-O", "-o", "https://c.example", "-r", "c.example"];
    assert!(run(&[&origin[..], &["-b", path(&turndb)]].concat()).status.success());
    let text = format!("{text}[users]\ndatabase = \"sqlite-coturn://{}\"\n", path(&turndb));
    directory.file("turnpike.toml", &text);
    assert!(!add("alice", "c.example").contains("note:"));
    assert!(add("alice", "d.example").contains("it has: a.example, b.example, c.example"));
}

/// Runs a command with this text as standard input.
fn piped(arguments: &[&str], text: &str) -> Output {
    let mut command = turnpike(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    // A command that refuses its arguments reads no input.
    let _ = process.stdin.take().unwrap().write_all(text.as_bytes());
    process.wait_with_output().unwrap()
}

#[test]
fn users_on_standard_input_are_all_added_or_none() {
    let directory = Directory::new();
    let data = path(&directory.0).to_owned();
    let ask =
        |arguments: &[&str], text: &str| piped(&[arguments, &["--data", &data]].concat(), text);
    let list = || json(&ask(&["user", "list", "--json"], ""));

    let two = "bob:of-bob-alone\n{\"username\": \"ann\", \"password\": \"of-ann-alone\", \"allocations_max\": 3}\n";
    let added = ask(&["user", "add", "--stdin"], two);
    assert_eq!(stdout(&added), "2 users were added in realm turnpike\n", "{added:?}");
    let before = list();
    assert_eq!((&before[0]["username"], &before[0]["allocations_max"]), (&"ann".into(), &3.into()));

    let wrong = ask(&["user", "add", "--stdin"], "eve:of-eve-alone\nbob:of-bob-alone\nzed\n");
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    let said = stderr(&wrong);
    for line in
        ["nothing was changed in realm turnpike", "line 2: bob exists", "line 3: has no colon"]
    {
        assert!(said.contains(line), "{said}");
    }
    assert_eq!(list(), before);

    let more = "eve:of-eve-alone\nbob:another-of-bob\n";
    let done = json(&ask(
        &["user", "add", "--stdin", "--replace", "--json", "--allocations-max", "9"],
        more,
    ));
    assert_eq!(
        (&done["added"], &done["changed"], &done["realm"]),
        (&1.into(), &1.into(), &"turnpike".into())
    );

    let gone = ask(&["user", "set", "--stdin"], "ann:another-of-ann\nnone:another-of-none\n");
    assert!(stderr(&gone).contains("line 2: there is no user none"), "{gone:?}");
    let set =
        ask(&["user", "set", "--stdin"], "{\"username\": \"ann\", \"allocations_max\": null}\n");
    assert_eq!(stdout(&set), "1 user was changed in realm turnpike\n", "{set:?}");
    assert_eq!(list()[0]["allocations_max"], Value::Null);
}

#[test]
fn exported_users_move_to_another_server_with_their_keys() {
    let directory = Directory::new();
    let (here, there) = (directory.0.join("here"), directory.0.join("there"));
    let at = |data: &Path, arguments: &[&str], text: &str| {
        piped(&[arguments, &["--data", path(data)]].concat(), text)
    };
    let file = directory.0.join("users.jsonl");
    // One user has only an MD5 key, as in coturn.
    let mut users = "caf\u{e9}:of-coffee-alone\n".to_owned();
    users.push_str("{\"username\": \"old\", \"md5\": \"00112233445566778899aabbccddeeff\", \"allocations_max\": 4}\n");
    assert!(at(&here, &["user", "add", "--stdin"], &users).status.success());

    let shown = stdout(&at(&here, &["user", "show", "old"], ""));
    assert!(shown.starts_with("user old in realm turnpike\n  allocations  4\n"), "{shown}");
    assert!(shown.contains("MD5 only"), "{shown}");
    let shown = json(&at(&here, &["user", "show", "cafe\u{301}", "--json"], ""));
    assert_eq!(shown["keys"], serde_json::json!(["md5", "sha256"]));
    assert!(shown["created_unix"].as_u64().unwrap() > 0);
    assert!(stderr(&at(&here, &["user", "show", "eve"], "")).contains("no user \"eve\""));

    let lines = stdout(&at(&here, &["user", "export"], ""));
    assert_eq!(lines.lines().count(), 2);
    assert!(!lines.contains("md5") && !lines.contains("aabbcc"), "{lines}");
    let taken = at(&here, &["user", "set", "--stdin"], &lines);
    assert!(stdout(&taken).contains("2 users were changed"), "{taken:?}");

    let exported = at(&here, &["user", "export", "--keys", path(&file)], "");
    assert!(stdout(&exported).contains("2 users of realm turnpike"), "{exported:?}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let again = at(&here, &["user", "export", "--keys", path(&file)], "");
    assert!(stderr(&again).contains("no file is replaced"), "{again:?}");

    let lines = std::fs::read_to_string(&file).unwrap();
    let other = at(&there, &["user", "add", "--stdin", "--realm", "elsewhere"], &lines);
    assert!(stderr(&other).contains("line 1: is a user of realm turnpike"), "{other:?}");
    assert!(at(&there, &["user", "add", "--stdin"], &lines).status.success());
    let moved = directory.0.join("moved.jsonl");
    assert!(at(&there, &["user", "export", "--keys", path(&moved)], "").status.success());
    let fields = |text: &str| -> Vec<Value> {
        let line = |line: &str| {
            let mut user: Value = serde_json::from_str(line).unwrap();
            user.as_object_mut().unwrap().remove("created_unix");
            user
        };
        text.lines().map(line).collect()
    };
    assert_eq!(fields(&std::fs::read_to_string(&moved).unwrap()), fields(&lines));
}
