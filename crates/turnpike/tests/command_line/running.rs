//! Tests of commands to a running server: status, reload, drain, and signals.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use super::support::*;

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
    directory.file("turnpike.toml", &format!("{base}[workers]\ncount = 3\n"));
    assert!(ask(&["reload"]).status.success());
    assert!(stdout(&ask(&["status"])).contains("in force after a restart: workers.count."));
    directory.file("turnpike.toml", &format!("{base}[workers]\ncount = 3\npin = 5\n"));
    let refused = ask(&["reload"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("turnpike.toml:9"), "{refused:?}");
    let shown = stdout(&ask(&["status"]));
    assert!(shown.contains("SEVERE  The last reload was refused"), "{shown}");
    // An operator who corrects the configuration still finds the server.
    let elsewhere = directory
        .file("broken.toml", &format!("relm = 5\n[control]\nsocket = \"{data}/control.sock\"\n"));
    let status = json(&run(&["status", "--json", "--config", path(&elsewhere)]));
    assert_eq!(status["realm"], "test.example");
    let elsewhere = directory.file("broken.toml", "[control\n");
    let nowhere = format!("{data}/nowhere");
    let lost = run(&["status", "--config", path(&elsewhere), "--data", &nowhere]);
    assert_eq!(lost.status.code(), Some(1));
    assert!(stderr(&lost).contains("could not be read") && stderr(&lost).contains("broken.toml:1"));
    let lost = stderr(&run(&["status", "--data", &nowhere]));
    assert!(lost.contains(&format!("{data}/control.sock")), "the server is named: {lost}");
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

    // Without observers, a server's samples are seconds apart.
    eventually("the call has a rate", || {
        let now = json(&call.ask(&["status", "--json"]))["now"].clone();
        now["rates"]["to_peers"]["packets_per_second"].as_u64().unwrap() > 10
            && now["rates"]["from_clients"]["bits_per_second"].as_u64().unwrap() > 10_000
    });
    let status = call.ask(&["status"]);
    assert!(stdout(&status).contains("\nNothing is wrong now.\n"), "{status:?}");

    let id = call.sessions()[0]["id"].as_str().unwrap().to_owned();
    // A client can be named as shown in the table.
    let client = call.sessions()[0]["client"].as_str().unwrap().to_owned();
    for shown in [client.clone(), format!("udp {client}")] {
        let found = json(&call.ask(&["sessions", "--client", &shown, "--json"]));
        assert_eq!(
            (&found["total"], &found["sessions"][0]["client"]),
            (&1.into(), &client.clone().into())
        );
        assert!(
            stdout(&call.ask(&["why", &shown]))
                .starts_with(&format!("no recent refusals of {shown}\n"))
        );
    }
    let other = json(&call.ask(&["sessions", "--client", "127.0.0.1:1", "--json"]));
    assert_eq!(other["total"], 0);
    let why = stdout(&call.ask(&["why", &id]));
    assert!(why.starts_with(&format!("session {id} of bob\n")), "{why}");
    assert!(
        why.contains("  permissions  127.0.0.1 (") && why.contains(" ago: Allocated "),
        "{why}"
    );
    let peers = stdout(&call.ask(&["sessions", "--peers", "--user", "bob"]));
    assert_eq!(peers.matches("    permission 127.0.0.1 (").count(), 2, "{peers}");
    assert_eq!(json(&call.ask(&["why", &id, "--json"]))["session"]["user"], "bob");
    assert_eq!(json(&call.ask(&["session", "end", &id, "--json"]))["id"], id.as_str());
    eventually("one is left", || call.sessions().len() == 1);
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

#[test]
fn a_drain_without_a_deadline_waits_for_the_last_call() {
    let mut call = Call::through("");

    let said = stdout(&call.ask(&["drain"]));
    assert!(said.contains("2 allocations are live") && said.contains("in 7 d"), "{said}");
    call.server.wait_for("draining");
    let [first, second] = &call.sessions()[..] else { panic!("a call was cut") };
    call.end(first);
    eventually("one is left", || call.sessions().len() == 1);
    call.end(second);
    call.server.wait_for("stopped");
    assert!(call.server.process.wait().unwrap().success());
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
    let shown = stdout(&call.ask(&["status"]));
    assert!(shown.contains("2 left; the server stops in"), "{shown}");
    assert!(shown.contains("wrong now\n          The server drains: "), "{shown}");
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
fn signals_do_as_configured() {
    let mut call = Call::through("[signals]\nusr1 = \"ignore\"\nusr2 = \"drain\"\n");
    call.server.signal("USR1");
    // The subsequent reload shows that the previous signal was received.
    call.server.signal("HUP");
    call.server.wait_for("reloaded");
    assert_eq!(json(&call.ask(&["status", "--json"]))["draining"], false);
    call.server.signal("USR2");
    call.server.wait_for("draining");
    assert_eq!(json(&call.ask(&["status", "--json"]))["draining"], true);
}

/// A program that starts late does not replace a server after the upgrade command has exited.
#[test]
fn an_upgrade_whose_command_has_ended_does_not_happen() {
    let directory = Directory::new();
    let data = path(&directory.0).to_owned();
    let run = |command: u32| {
        let mut process = turnpike(&["run", "--data", &data]);
        let output = process.env("TURNPIKE_TAKES_OVER", command.to_string()).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let abandoned = run(ended.id());
    assert!(abandoned.contains("`turnpike upgrade` of this process has ended"), "{abandoned}");
    let started = run(std::process::id());
    assert!(!started.contains("has ended"), "{started}");
}

/// Takes a lease on a file. Each open of the file waits, as on a mount without a server.
const LEASE: &str = "
import fcntl, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = open(sys.argv[1], 'r+')
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
sys.stdin.read()
";

/// Reads messages to the service manager until one has this text. Returns the previous messages.
fn notified(socket: &std::os::unix::net::UnixDatagram, text: &str) -> Vec<String> {
    let mut before = Vec::new();
    loop {
        let mut message = [0; 4096];
        let bytes = socket.recv(&mut message).unwrap();
        let message = String::from_utf8_lossy(&message[..bytes]).into_owned();
        if message.contains(text) {
            return before;
        }
        before.push(message);
    }
}

#[test]
fn a_file_whose_disk_hangs_stops_neither_the_watchdog_nor_the_commands() {
    let directory = Directory::new();
    let port = free_port();
    let text = format!(
        "realm = \"test.example\"\nlisten = [\"127.0.0.1:{port}\"]\n[relay]\naddresses = [\"127.0.0.1\"]\n\
         [auth]\nsecret_file = \"secret\"\n"
    );
    let (file, secret) =
        (directory.file("turnpike.toml", &text), directory.file("secret", "north-of-the-wall\n"));
    let manager = std::os::unix::net::UnixDatagram::bind(directory.0.join("notify")).unwrap();
    manager.set_read_timeout(Some(std::time::Duration::from_secs(120))).unwrap();
    let mut command = turnpike(&["run", "--config", path(&file), "--data", path(&directory.0)]);
    command.env("NOTIFY_SOCKET", directory.0.join("notify")).env("WATCHDOG_USEC", "9000000");
    let server = Server::start(command);
    notified(&manager, "READY=1");
    let lease = std::process::Command::new("python3")
        .args(["-c", LEASE, path(&secret)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Some(mut lease) = test_support::require(lease) else { return };
    let mut held = String::new();
    let mut out = BufReader::new(lease.stdout.take().unwrap());
    out.read_line(&mut held).unwrap();
    if held != "held\n" {
        return test_support::skip("this file system has no leases");
    }
    server.signal("HUP");
    notified(&manager, "RELOADING=1");
    for _ in 0..3 {
        let before = notified(&manager, "WATCHDOG=1");
        assert!(!before.iter().any(|message| message.contains("READY=1")), "{before:?}");
    }
    assert!(run(&["status", "--data", path(&directory.0)]).status.success());

    // The disk works again.
    drop(lease.stdin.take());
    lease.wait().unwrap();
    notified(&manager, "READY=1");
    server.stop();
}

/// Process that listens at a socket, and exits at the first connection. The sockets of a killed
/// server also remain open until its memory is freed.
const EXITING: &str = "
import os, select, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print('listens', flush=True)
select.select([listener], [], [])
os._exit(0)
";

#[test]
fn a_start_waits_for_a_killed_server_to_exit() {
    let directory = Directory::new();
    let port = free_port();
    let text = format!(
        "realm = \"test.example\"\nlisten = [\"127.0.0.1:{port}\"]\n[relay]\naddresses = [\"127.0.0.1\"]\n\
         [auth]\nsecret = \"north-of-the-wall\"\n"
    );
    let file = directory.file("turnpike.toml", &text);
    let exiting = std::process::Command::new("python3")
        .args(["-c", EXITING, path(&directory.0.join("control.sock"))])
        .stdout(Stdio::piped())
        .spawn();
    let Some(mut exiting) = test_support::require(exiting) else { return };
    let mut listens = String::new();
    BufReader::new(exiting.stdout.take().unwrap()).read_line(&mut listens).unwrap();
    assert_eq!(listens, "listens\n");
    let run_here = ["run", "--config", path(&file), "--data", path(&directory.0)];
    let server = Server::start(turnpike(&run_here));
    exiting.wait().unwrap();
    // A running server refuses a second start.
    let second = run(&run_here);
    assert!(stderr(&second).contains("another server already answers"), "{second:?}");
    server.stop();
}

#[test]
fn a_server_that_waits_for_an_interface_ends_by_a_signal() {
    let directory = Directory::new();
    let text = "realm = \"a.example\"\n[sockets]\nlisten_device = \"absent0\"\n";
    let file = directory.file("turnpike.toml", text);
    let mut command = turnpike(&["run", "--config", path(&file), "--data", path(&directory.0)]);
    let mut waiting = command.stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(waiting.stderr.take().unwrap()).lines();
    let told = lines.map_while(Result::ok).any(|line| line.contains("no interface absent0"));
    assert!(told, "it says so");
    let id = rustix::process::Pid::from_child(&waiting);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert!(waiting.wait().unwrap().success());
}

/// A sandbox refuses system calls. The server works without some, and reports others.
#[test]
fn calls_that_a_sandbox_refuses_are_done_without_or_told() {
    let directory = Directory::new();
    let port = free_port();
    let text = format!(
        "realm = \"a.example\"\nlisten = [\"127.0.0.1:{port}\"]\n[relay]\naddresses = [\"127.0.0.1\"]\n\
         [offload]\nmode = \"off\"\n"
    );
    let file = directory.file("turnpike.toml", &text);
    let data = path(&directory.0);
    let mut command = std::process::Command::new("strace");
    // With `-D` the started process is the server, and the tracer is another process.
    command.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=prlimit64,recvmmsg"]);
    command.args(["-e", "inject=prlimit64,recvmmsg:error=EPERM", env!("CARGO_BIN_EXE_turnpike")]);
    let server = Server::start({
        command.args(["run", "--config", path(&file), "--data", data]);
        command
    });
    let faults =
        || json(&run(&["status", "--json", "--data", data]))["now"]["problems"].to_string();
    assert_eq!(faults(), "[]");
    let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    eventually("it is told", || {
        client.send_to(b"request", ("127.0.0.1", port)).unwrap();
        faults().contains("calls that receive failed")
    });
    server.stop();
}
