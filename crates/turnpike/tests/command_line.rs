//! The program from the command line: its output, exit status, and files. Servers run
//! on the loopback, on ports that were free a moment before.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::HashSet;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;

/// A directory of a test's own, gone when the test is.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("turnpike-cli-{}-{next}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The program, with none of our environment in its way.
fn turnpike(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnpike"));
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TURNPIKE_")) {
        command.env_remove(name);
    }
    // Nothing is hung on the interfaces of the host that the tests run on.
    command.env("TURNPIKE_OFFLOAD__MODE", "off");
    command
}

fn run(arguments: &[&str]) -> Output {
    turnpike(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A free port, below the relay ports.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let offset = std::process::id() * 16 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 20_000 + u16::try_from(offset % 20_000).unwrap();
        if UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A running server; its end is waited for.
struct Server {
    process: Child,
    log: BufReader<std::process::ChildStderr>,
}

impl Server {
    /// Waits until it is ready.
    fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let log = BufReader::new(process.stderr.take().unwrap());
        let mut server = Self { process, log };
        server.wait_for("ready");
        server
    }

    fn wait_for(&mut self, text: &str) -> String {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            let read = self.log.read_line(&mut line).unwrap();
            assert!(read > 0, "ended before it said {text:?}:\n{seen}");
            if line.contains(text) {
                return line;
            }
            seen.push_str(&line);
        }
    }

    fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// Ends it with SIGTERM, and returns its output.
    fn stop(mut self) -> String {
        self.signal("TERM");
        self.wait_for("stopped");
        let mut printed = String::new();
        let mut out = self.process.stdout.take().unwrap();
        std::io::Read::read_to_string(&mut out, &mut printed).unwrap();
        assert!(self.process.wait().unwrap().success());
        printed
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A call of the user `bob` by `turnpike demo`, and the server that it goes through.
struct Call {
    server: Server,
    demo: Child,
    data: String,
    _directory: Directory,
}

impl Call {
    /// Starts the server with these additional lines of configuration, and waits until both ends of the call send.
    fn through(more: &str) -> Self {
        let directory = Directory::new();
        let port = free_port();
        let config = format!(
            "listen = [\"127.0.0.1:{port}\"]\n[relay]\naddresses = [\"127.0.0.1\"]\n{more}"
        );
        let file = directory.file("turnpike.toml", &config);
        let data = path(&directory.0).to_owned();
        let place = ["--config", path(&file), "--data", &data];
        let server = Server::start(turnpike(&[&["run"][..], &place].concat()));
        // A running server finds users that are added to its database.
        let add =
            run(&[&["user", "add", "bob", "--password", "of-bob-alone"][..], &place].concat());
        assert!(add.status.success(), "{add:?}");
        let uri = format!("turn:127.0.0.1:{port}");
        let demo =
            turnpike(&["demo", "--server", &uri, "--user", "bob", "--password", "of-bob-alone"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
        let call = Self { server, demo, data, _directory: directory };
        wait_until("both ends of the call send", || {
            let sessions = call.sessions();
            sessions.len() == 2 && sessions.iter().all(|one| one["to_peers"]["packets"] != 0)
        });
        call
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        run(&[arguments, &["--data", &self.data]].concat())
    }

    fn sessions(&self) -> Vec<Value> {
        let list = json(&self.ask(&["sessions", "--user", "bob", "--json"]));
        list["sessions"].as_array().unwrap().clone()
    }

    /// Ends one of its sessions, as an operator does.
    fn end(&self, session: &Value) {
        assert!(self.ask(&["session", "end", session["id"].as_str().unwrap()]).status.success());
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let _ = self.demo.kill();
        let _ = self.demo.wait();
    }
}

/// A server without a configuration file, on a port of its own.
fn first_start(directory: &Directory, port: u16) -> Server {
    let mut command = turnpike(&["--data", path(&directory.0)]);
    command
        .env("TURNPIKE_LISTEN", format!("[\"127.0.0.1:{port}\"]"))
        .env("TURNPIKE_RELAY__ADDRESSES", "[\"127.0.0.1\"]");
    Server::start(command)
}

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
    // As printed, but for the number of seconds.
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
fn an_operator_sees_reloads_and_drains_a_server() {
    let directory = Directory::new();
    let port = free_port();
    let base = format!(
        "realm = \"test.example\"\nlisten = [\"127.0.0.1:{port}\"]\n[relay]\n\
         addresses = [\"127.0.0.1\"]\n[auth]\nsecret = \"north-of-the-wall\"\n"
    );
    let file = directory.file("turnpike.toml", &base);
    let data = path(&directory.0).to_owned();
    let mut server = Server::start(turnpike(&["run", "--config", path(&file), "--data", &data]));
    let ask = |arguments: &[&str]| run(&[arguments, &["--data", &data]].concat());

    let status = json(&ask(&["status", "--json"]));
    assert_eq!(status["realm"], "test.example");
    assert_eq!(status["listeners"][0], format!("127.0.0.1:{port}"));
    assert_eq!(status["allocations"]["live"], 0);
    assert!(stdout(&ask(&["status"])).contains("relays from  127.0.0.1, ports 49152-65535"));
    assert_eq!(stdout(&ask(&["sessions"])), "no live sessions\n");
    let unknown = ask(&["session", "end", "0000000000000001"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(stderr(&unknown).contains("turnpike sessions"), "{unknown:?}");

    directory.file("turnpike.toml", &format!("{base}[quotas]\nallocations_per_user = 7\n"));
    let reload = json(&ask(&["reload", "--json"]));
    assert_eq!(reload["applied"][0]["key"], "quotas.allocations_per_user");
    directory.file("turnpike.toml", &format!("{base}[workers]\ncount = 3\npin = 5\n"));
    let refused = ask(&["reload"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("turnpike.toml:9"), "{refused:?}");
    // Who is mending the configuration still finds the server that it names.
    let elsewhere = directory
        .file("broken.toml", &format!("relm = 5\n[control]\nsocket = \"{data}/control.sock\"\n"));
    let status = json(&run(&["status", "--json", "--config", path(&elsewhere)]));
    assert_eq!(status["realm"], "test.example");
    let elsewhere = directory.file("broken.toml", "[control\n");
    let nowhere = format!("{data}/nowhere");
    let lost = run(&["status", "--config", path(&elsewhere), "--data", &nowhere]);
    assert_eq!(lost.status.code(), Some(1));
    assert!(stderr(&lost).contains("could not be read") && stderr(&lost).contains("broken.toml:1"));
    directory.file("turnpike.toml", &base);
    server.signal("HUP");
    server.wait_for("quotas.allocations_per_user");

    let second = run(&["run", "--config", path(&file), "--data", &format!("{data}/other")]);
    assert_eq!(second.status.code(), Some(1));
    assert!(stderr(&second).contains(&format!("sport = :{port}")), "{second:?}");

    let drain = json(&ask(&["drain", "--deadline", "5 s", "--json"]));
    assert_eq!((&drain["deadline_seconds"], &drain["allocations_live"]), (&5.into(), &0.into()));
    server.wait_for("stopped");
    assert!(server.process.wait().unwrap().success());
    assert!(!directory.0.join("control.sock").exists());
    let gone = ask(&["status"]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(stderr(&gone).contains("start it with"), "{gone:?}");
}

#[test]
fn a_call_is_seen_and_ended_and_a_second_sigterm_does_not_wait_for_the_other() {
    let mut call = Call::through("[shutdown]\ndrain = \"10 min\"\n");

    let id = call.sessions()[0]["id"].as_str().unwrap().to_owned();
    let why = stdout(&call.ask(&["why", &id]));
    assert!(why.starts_with(&format!("session {id} of bob\n")), "{why}");
    assert!(
        why.contains("  permissions  127.0.0.1 (") && why.contains(" ago: Allocated "),
        "{why}"
    );
    assert_eq!(json(&call.ask(&["why", &id, "--json"]))["session"]["user"], "bob");
    assert_eq!(json(&call.ask(&["session", "end", &id, "--json"]))["id"], id.as_str());
    wait_until("one is left", || call.sessions().len() == 1);
    assert!(stdout(&call.ask(&["why", &id])).starts_with(&format!("no live session {id}")));
    call.server.wait_for("ended_by_operator");

    call.server.signal("TERM");
    call.server.wait_for("draining");
    assert_eq!(json(&call.ask(&["status", "--json"]))["draining"], true);
    call.server.signal("TERM");
    assert!(call.server.wait_for("reason=").contains("shutdown"));
    call.server.wait_for("stopped");
    assert!(call.server.process.wait().unwrap().success());
}

/// Makes an allocation of an open relay, from a client at this address.
fn allocate(client: Ipv4Addr, server: (&str, u16)) -> UdpSocket {
    let socket = UdpSocket::bind((client, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    // Allocate with REQUESTED-TRANSPORT for UDP (RFC 8656 §14.7).
    let header = [0x00, 0x03, 0x00, 0x08, 0x21, 0x12, 0xa4, 0x42];
    let request = [&header[..], &[7; 12], &[0x00, 0x19, 0x00, 0x04, 17, 0, 0, 0]].concat();
    let answered = (0..20).any(|_| {
        socket.send_to(&request, server).unwrap();
        socket.recv(&mut [0; 1500]).is_ok()
    });
    assert!(answered, "no answer to {client}");
    socket
}

#[test]
fn thousands_of_sessions_are_listed_and_those_of_a_client_are_ended() {
    // More than two pages.
    const SESSIONS: u16 = 2_100;
    let directory = Directory::new();
    let port = free_port();
    let file = directory.file(
        "turnpike.toml",
        &format!(
            "listen = [\"127.0.0.1:{port}\"]\n[relay]\naddresses = [\"127.0.0.1\"]\n\
             [quotas]\nallocations_per_user = 0\n\
             [auth]\nusers = false\nopen_relay = \"yes, relay for anyone\"\n"
        ),
    );
    let data = path(&directory.0).to_owned();
    let _server = Server::start(turnpike(&["run", "--config", path(&file), "--data", &data]));
    let ask = |arguments: &[&str]| run(&[arguments, &["--data", &data]].concat());
    for client in 0..SESSIONS / 3 {
        let [high, low] = client.to_be_bytes();
        let client = Ipv4Addr::new(127, 1, high, low);
        // Held together, so that none has the port of another.
        let _sockets = [(); 3].map(|()| allocate(client, ("127.0.0.1", port)));
    }

    let all = json(&ask(&["sessions", "--limit", "100000", "--json"]));
    let ids: HashSet<&str> =
        all["sessions"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!((ids.len(), &all["more"]), (usize::from(SESSIONS), &false.into()));
    let table = stdout(&ask(&["sessions", "--limit", "1500", "--sort", "-client"]));
    assert_eq!(table.lines().count(), 1502, "a heading, and that there are more");
    assert!(table.contains("\n1,500 of 2,100 sessions; "), "{:?}", table.lines().last());
    assert!(table.lines().nth(1).unwrap().contains("udp 127.1.2."), "{table}");
    let unsorted = ask(&["sessions", "--sort", "weather"]);
    assert!(stderr(&unsorted).contains("dropped"), "it names the orders: {unsorted:?}");

    let unseen = ask(&["sessions", "--watch"]);
    assert_eq!(unseen.status.code(), Some(2), "{unseen:?}");
    assert!(stderr(&unseen).contains("--json"), "no terminal, nothing to repaint: {unseen:?}");

    let at = ["--client", "127.1.0.9"];
    let [first, others @ ..] =
        &*json(&ask(&[&["sessions", "--json"][..], &at].concat()))["sessions"]
            .as_array()
            .unwrap()
            .clone()
    else {
        panic!("none of the client")
    };
    assert_eq!(others.len(), 2);
    // One that is gone does not keep the others.
    let first = first["id"].as_str().unwrap();
    let some = ask(&["session", "end", "00ff000000000001", first]);
    assert_eq!(some.status.code(), Some(1), "{some:?}");
    assert_eq!(stdout(&some), format!("session {first} was ended\n"));
    let rest = ask(&[&["session", "end"][..], &at].concat());
    assert!(rest.status.success() && stdout(&rest).lines().count() == 2, "{rest:?}");
    let none = ask(&[&["session", "end"][..], &at].concat());
    assert_eq!(stdout(&none), "no live session matches\n");
    assert_eq!(json(&ask(&["status", "--json"]))["allocations"]["live"], SESSIONS - 3);
}

#[test]
fn a_drain_without_a_deadline_waits_for_the_last_call() {
    let mut call = Call::through("");

    let said = stdout(&call.ask(&["drain"]));
    assert!(said.contains("2 allocations are live") && said.contains("in 7 d"), "{said}");
    call.server.wait_for("draining");
    let [first, second] = &call.sessions()[..] else { panic!("a call was cut") };
    call.end(first);
    wait_until("one is left", || call.sessions().len() == 1);
    call.end(second);
    call.server.wait_for("stopped");
    assert!(call.server.process.wait().unwrap().success());
}

/// Asks again and again; each question takes the program milliseconds.
fn wait_until(what: &str, reached: impl Fn() -> bool) {
    assert!((0..1000).any(|_| reached()), "not reached: {what}");
}

#[test]
fn a_configuration_is_checked() {
    let directory = Directory::new();
    let good = directory.file("good.toml", "[auth]\nsecret = \"north-of-the-wall\"\n");
    let readable = run(&["check", path(&good)]);
    assert_eq!(readable.status.code(), Some(1), "others can read the secret");
    assert!(stdout(&readable).contains("chmod o= "), "{readable:?}");
    std::fs::set_permissions(&good, Permissions::from_mode(0o600)).unwrap();
    let output = run(&["check", path(&good)]);
    assert!(output.status.success(), "{output:?}");
    assert!(stdout(&output).contains("good.toml is valid"), "{output:?}");
    assert_eq!(json(&run(&["check", path(&good), "--json"]))["valid"], true);

    let bad = directory.file("bad.toml", "realm = 5\n\n[relay]\nports = \"80-90\"\n");
    let output = run(&["check", path(&bad)]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(
        text.contains("bad.toml:1: realm") && text.contains("bad.toml:4: relay.ports"),
        "{text}"
    );
    let report = json(&run(&["check", path(&bad), "--json"]));
    assert_eq!(report["valid"], false);
    assert_eq!(report["errors"].as_array().unwrap().len(), 2, "{report}");

    let missing = run(&["check", path(&directory.0.join("missing.toml"))]);
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn a_check_of_the_host_names_ports_in_use_and_addresses_that_are_missing() {
    let directory = Directory::new();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    let file = directory.file(
        "t.toml",
        &format!(
            "listen = [\"{at}\"]\n[relay]\nports = \"10000-10009\"\naddresses = [\"127.0.0.1\",\n\"192.0.2.9\"]\n\
             [offload]\ninterfaces = [\"none0\"]\n[data]\ndirectory = {:?}\n",
            directory.0
        ),
    );
    // Without the host it may be meant for another.
    let output = run(&["check", path(&file)]);
    assert!(output.status.success(), "{output:?}");
    let text = stdout(&output);
    assert!(
        text.contains("warning: ") && text.contains("t.toml:5: relay.addresses: 192.0.2.9"),
        "{text}"
    );
    assert!(text.contains(&format!("turn:{at}?transport=udp")), "{text}");

    let output = run(&["check", path(&file), "--host", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = json(&output);
    let problems = report["problems"].as_array().unwrap();
    for (place, key, what) in [
        ("t.toml:1", "listen", format!("cannot listen on udp {at}: the port is in use")),
        ("t.toml:5", "relay.addresses", "192.0.2.9 is no address of this host".to_owned()),
        ("t.toml:7", "offload.interfaces", "there is no interface none0".to_owned()),
    ] {
        let found = problems.iter().find(|problem| problem["key"] == key).unwrap();
        assert!(found["place"].as_str().unwrap().ends_with(place), "{report:#}");
        assert_eq!(found["what"], what, "{report:#}");
    }
}

#[test]
fn an_open_relay_needs_the_whole_sentence() {
    let directory = Directory::new();
    let listen = format!("listen = [\"127.0.0.1:{}\"]\n", free_port());
    let relay = "[relay]\naddresses = [\"127.0.0.1\"]\n";
    let data = path(&directory.0).to_owned();
    for (auth, advice) in [
        ("open_relay = true", "yes, relay for anyone"),
        ("open_relay = \"yes\"", "yes, relay for anyone"),
        ("users = false", "no client could relay"),
    ] {
        let file = directory.file("t.toml", &format!("{listen}{relay}[auth]\n{auth}\n"));
        let output = run(&["--config", path(&file), "--data", &data]);
        assert_eq!(output.status.code(), Some(2), "{auth}: {output:?}");
        assert!(stderr(&output).contains(advice), "{auth}: {output:?}");
    }
    let sentence = "open_relay = \"yes, relay for anyone\"";
    let file = directory.file("t.toml", &format!("{listen}{relay}[auth]\n{sentence}\n"));
    let mut command = turnpike(&["--config", path(&file), "--data", &data]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let log = BufReader::new(process.stderr.take().unwrap());
    let mut server = Server { process, log };
    server.wait_for("everyone may relay");
    server.wait_for("ready");
    assert_eq!(server.stop(), "");
}

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
    let short = ask(&["user", "password", "bob", "--password", "x"]);
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
    assert!(ask(&["user", "delete", "bob"]).status.success());
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

    // Another realm: the start says where the users are.
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
fn a_variable_that_means_nothing_is_refused() {
    for (name, value, code) in [
        ("TURNPIKE_SECRET", "0123456789abcdef", 2),
        ("TURNPIKE_WEATHER", "fine", 2),
        ("TURNPIKE_PORT", "3478", 2),
        ("TURNPIKE_PORT", "udp://10.0.0.1:3478", 0),
    ] {
        let output = turnpike(&["check"]).env(name, value).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{name}: {output:?}");
    }
}

#[test]
fn sigterm_during_a_drain_keeps_its_deadline() {
    let mut call = Call::through("");

    assert_eq!(call.ask(&["drain", "--cancel"]).status.code(), Some(1), "nothing to cancel");
    let first = json(&call.ask(&["drain", "--deadline", "1 h", "--json"]));
    assert_eq!(first.get("replaced_seconds_left"), None, "{first}");
    assert!(call.ask(&["drain", "--cancel"]).status.success());
    let status = json(&call.ask(&["status", "--json"]));
    assert_eq!((&status["draining"], status.get("drain_seconds_left")), (&false.into(), None));

    assert!(call.ask(&["drain", "--deadline", "2 h"]).status.success());
    let second = json(&call.ask(&["drain", "--deadline", "1 h", "--json"]));
    assert!(second["replaced_seconds_left"].as_u64().unwrap() > 3600, "{second}");
    call.server.wait_for("SIGTERM twice");
    call.server.signal("TERM");
    call.server.wait_for("SIGTERM again");
    let status = json(&call.ask(&["status", "--json"]));
    assert!(status["drain_seconds_left"].as_u64().unwrap() > 0, "{status}");
    assert!(stdout(&call.ask(&["status"])).contains("2 left; the server stops in"), "{status}");
    assert_eq!(call.sessions().len(), 2, "SIGTERM cut no call");
    assert!(stderr(&call.ask(&["drain", "--cancel"])).contains("signal told the server to end"));

    let waits = turnpike(&["drain", "--wait", "--data", &call.data]).stdout(Stdio::piped()).spawn();
    let waits = waits.unwrap();
    call.server.wait_for("SIGTERM again");
    for session in call.sessions() {
        call.end(&session);
    }
    call.server.wait_for("stopped");
    assert!(waits.wait_with_output().unwrap().status.success(), "the last call ended by itself");
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
    // The port is free again: nobody accepts there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = run(&["probe", &format!("turn:{free}?transport=tcp")]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let text = stdout(&output);
    assert!(text.contains("ok       resolve") && text.contains("FAILED   connect"), "{text}");
    assert!(text.contains("firewall"), "{text}");
    let report = json(&run(&["probe", "--json", &format!("turn:{free}?transport=tcp")]));
    assert_eq!(report["steps"][1]["state"], "failed");
}

#[test]
fn a_configuration_of_coturn_is_imported_and_nothing_is_replaced() {
    let directory = Directory::new();
    let theirs = directory.file(
        "turnserver.conf",
        "realm=example.org\nuser=alice:correct-horse\ncipher-list=HIGH\nverbos\n",
    );
    let ours = directory.0.join("turnpike.toml");
    let data = directory.0.join("data");
    // Without --output nothing is written.
    let shown = run(&["import", "coturn", path(&theirs)]);
    assert!(shown.status.success() && stdout(&shown).contains("realm = \"example.org\""));
    assert!(stderr(&shown).contains("4 options: 2 taken, 1 not taken, 1 unknown"), "{shown:?}");
    assert!(!ours.exists());

    let import =
        ["import", "coturn", path(&theirs), "--output", path(&ours), "--data", path(&data)];
    let out = run(&import);
    assert!(out.status.success(), "{out:?}");
    assert!(stderr(&out).contains("user alice: added in realm example.org"), "{out:?}");
    assert!(!format!("{out:?}").contains("correct-horse"));
    let checked = run(&["check", path(&ours)]);
    assert!(checked.status.success(), "{checked:?}");
    let users =
        json(&run(&["user", "list", "--json", "--config", path(&ours), "--data", path(&data)]));
    assert_eq!(users[0]["username"], "alice");

    let again = run(&import);
    assert!(!again.status.success() && stderr(&again).contains("exists"), "{again:?}");

    // A secret has a file of its own.
    let theirs = directory.file("secret.conf", "static-auth-secret=0123456789abcdef\nrealm=x\n");
    let ours = directory.0.join("second.toml");
    let out = run(&["import", "coturn", path(&theirs), "--output", path(&ours), "--json"]);
    assert_eq!(json(&out)["lines"][0]["fate"], "taken", "{out:?}");
    assert!(!std::fs::read_to_string(&ours).unwrap().contains("0123456789abcdef"));
    let secret = directory.0.join("secret");
    assert_eq!(std::fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o600);
    let checked = run(&["check", path(&ours)]);
    assert!(checked.status.success(), "{checked:?}");
    assert!(!run(&["import", "coturn", path(&directory.0)]).status.success());
}
