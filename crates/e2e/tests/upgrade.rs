//! Another process takes the place of the running server, and calls go on.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use e2e::{
    Call, Caller, Config, Data, Host, Lab, Running, SecureScene, Sent, Server, Stop, Tool, binary,
    echo_peer, pion, pion_run, pion_run_to, require, said,
};
use serde_json::Value;
use test_support::eventually;
use turn_client::{AllocateOptions, EvenPort};
use turn_types::IpFamily;

const PATIENCE: Duration = Duration::from_secs(60);

/// Time between two packets of a flow, in each direction.
const PACKET_EVERY: Duration = Duration::from_millis(3);

/// The server of a lab, which relays by this mode of the kernel path.
fn server(lab: &Lab, mode: &str) -> (Config, Server) {
    let tables = format!("[offload]\nmode = \"{mode}\"\n");
    let config = Config { tables, ..Config::for_lab(lab) };
    let server = Server::start(lab, &config);
    (config, server)
}

/// A client over UDP and IPv4.
fn caller(lab: &Lab, config: &Config) -> Caller {
    let socket = lab.socket(Host::Client, (lab.v4.client, 0));
    let at = SocketAddr::new(lab.v4.listen, 3478);
    Caller::allocate(socket, at, config.accounts[0], IpFamily::V4)
}

/// Packets to peers that the kernel has relayed.
fn by_kernel(server: &Server) -> Option<u64> {
    server.json(&["status"])["offload"]["by_kernel"]["to_peers"]["packets"].as_u64()
}

#[track_caller]
fn no_packet_is_lost(mode: &str) {
    let Some(lab) = require(Lab::new()) else { return };
    if mode != "off" {
        let Some(()) = require(lab.behave_as_cards()) else { return };
    }
    let (config, mut server) = server(&lab, mode);
    let calls = [IpFamily::V4, IpFamily::V6].map(|family| Call::new(&lab, &config, family));
    let idle: Vec<Caller> = (0..200).map(|_| caller(&lab, &config)).collect();
    // A packet that the kernel path relays may overtake the one before it, which waits in a socket.
    let ordered = mode == "off";
    let stop = AtomicBool::new(false);
    let all: Vec<Sent> = calls.iter().map(|_| Sent::default()).collect();
    thread::scope(|scope| {
        for (call, sent) in calls.iter().zip(&all) {
            scope.spawn(|| call.send(PACKET_EVERY, &stop, sent));
            scope.spawn(move || assert_eq!(call.missing_at_peer(ordered, sent), [0; 0]));
            scope.spawn(move || assert_eq!(call.missing_at_client(ordered, sent), [0; 0]));
        }
        // Also if an upgrade fails.
        let _stop = Stop::at_end(&stop);
        server.upgrade_times(5);
        let before = by_kernel(&server);
        all.iter().for_each(|sent| sent.wait_for_more(100));
        if mode != "off" {
            eventually("the kernel relays for the last process", || by_kernel(&server) > before);
        }
    });
    let status = server.json(&["status"]);
    assert_eq!(status["allocations"]["live"], 202);
    assert_eq!(by_kernel(&server) > Some(0), mode != "off", "{status:#}");
    server.wait_for_first_to_end();
    drop(idle);
}

#[test]
fn no_packet_is_lost_by_sockets() {
    no_packet_is_lost("off");
}

#[test]
fn no_packet_is_lost_by_tc() {
    no_packet_is_lost("tc");
}

#[test]
fn no_packet_is_lost_by_xdp() {
    no_packet_is_lost("xdp");
}

/// A client that requested a pair of ports gets the second port after an upgrade.
#[test]
fn a_reserved_port_is_kept_for_its_client() {
    let Some(lab) = require(Lab::new()) else { return };
    let (config, mut server) = server(&lab, "off");
    let ask = |options| {
        let socket = lab.socket(Host::Client, (lab.v4.client, 0));
        let at = SocketAddr::new(lab.v4.listen, 3478);
        Caller::ask_with(socket, at, config.accounts[0], options)
    };
    let even_port = Some(EvenPort::EvenAndReserveNext);
    let first = ask(AllocateOptions { even_port, ..AllocateOptions::default() });
    let first = first.expect("an even port");
    let reservation_token = first.reservation_token();
    assert!(reservation_token.is_some());
    server.upgrade_times(1);
    let second = ask(AllocateOptions { reservation_token, ..AllocateOptions::default() });
    let next_port = SocketAddr::new(first.relayed().ip(), first.relayed().port() + 1);
    assert_eq!(second.map(|second| second.relayed()), Ok(next_port));
}

/// Upgrades during the call of a client.
#[track_caller]
fn pion_notices_nothing(transport: &str) {
    let Some(client) = require(pion()) else { return };
    let Some(SecureScene { lab, mut server, files: _files }) = SecureScene::with("") else {
        return;
    };
    let _peer = echo_peer(&lab, lab.v4.peer);
    let config = Config::for_lab(&lab);
    let mut program = Running::listening(&mut pion_run(&lab, &client, &config, (1, transport)));
    program.wait_for("relayed address", PATIENCE);
    for _ in 0..5 {
        fail_to_take_over(&server);
        server.upgrade_times(1);
        assert_eq!(server.json(&["status"])["took_over"]["allocations"], 1);
    }
    assert!(!program.output().contains("echoed"), "{}", program.output());
    program.end_input();
    assert!(program.wait(PATIENCE), "{}", program.output());
    assert!(program.output().contains("echoed"), "{}", program.output());
    server.wait_for_first_to_end();
}

#[test]
fn pion_notices_nothing_over_udp() {
    pion_notices_nothing("udp");
}

#[test]
fn pion_notices_nothing_over_tcp() {
    pion_notices_nothing("tcp");
}

#[test]
fn pion_notices_nothing_over_tls() {
    pion_notices_nothing("tls");
}

#[test]
fn pion_notices_nothing_over_dtls() {
    pion_notices_nothing("dtls");
}

/// Two clients of one server, each the other's peer, over UDP and DTLS.
#[test]
fn clients_that_are_peers_of_each_other_go_on() {
    let Some(client) = require(pion()) else { return };
    let Some(SecureScene { lab, mut server, files: _files }) = SecureScene::with("") else {
        return;
    };
    let config = Config::for_lab(&lab);
    let mut moving = caller(&lab, &config);
    let relayed = moving.relayed();
    moving.permit(relayed.ip());
    moving.refresh();
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                if let Some(Data { peer, payload, .. }) = moving.data(Duration::from_millis(100)) {
                    moving.indicate(peer, &payload);
                }
            }
        });
        // Also if an upgrade fails.
        let _stop = Stop::at_end(&has_ended);
        let mut run = pion_run_to(&lab, &client, &config, (relayed, 1, "dtls"));
        let mut other = Running::listening(&mut run);
        other.wait_for("relayed address", PATIENCE);
        server.upgrade_times(3);
        other.end_input();
        assert!(other.wait(PATIENCE), "{}", other.output());
    });
    server.wait_for_first_to_end();
}

/// The host's own addresses are peers at the ports of allocations only, also of allocations that
/// began before an upgrade.
#[test]
fn a_port_is_no_peer_after_the_end_of_its_allocation() {
    let Some(client) = require(pion()) else { return };
    let Some(SecureScene { lab, mut server, files: _files }) = SecureScene::with("") else {
        return;
    };
    let config = Config::for_lab(&lab);
    let [mut over_udp, mut live, mut sender] = [(); 3].map(|()| caller(&lab, &config));
    let _peer = echo_peer(&lab, lab.v4.peer);
    let mut over_dtls = Running::listening(&mut pion_run(&lab, &client, &config, (1, "dtls")));
    over_dtls.wait_for("relayed address", PATIENCE);
    let output = over_dtls.output();
    let line = output.lines().find_map(|line| line.strip_prefix("relayed address "));
    let of_dtls: SocketAddr = line.and_then(|at| at.trim().parse().ok()).expect("an address");
    server.upgrade_times(1);
    let of_udp = over_udp.relayed();
    over_udp.release();
    over_dtls.end_input();
    assert!(over_dtls.wait(PATIENCE), "{}", over_dtls.output());
    eventually("two allocations are left", || server.json(&["status"])["allocations"]["live"] == 2);
    sender.permit(live.relayed().ip());
    live.permit(live.relayed().ip());
    for at in [of_udp, of_dtls] {
        let service = lab.socket(Host::Server, (at.ip(), at.port()));
        sender.indicate(at, b"to a service of the host");
        // The same, at the port of an allocation.
        sender.indicate(live.relayed(), b"to a client");
        let heard = live.data(PATIENCE).expect("a peer of a client is reached");
        assert_eq!(heard.payload, b"to a client");
        service.set_nonblocking(true).expect("its mode");
        assert!(service.recv(&mut [0; 100]).is_err(), "a service of the host is reached");
    }
}

/// A call without a listener in the successor has a log line, a record and a count, as any other.
#[test]
fn the_end_of_a_call_that_the_successor_refuses_is_told() {
    let Some(lab) = require(Lab::new()) else { return };
    let tables = "[offload]\nmode = \"off\"\n[accounting]\nfile = \"sessions.jsonl\"\n".to_owned();
    let config = Config { tables, ..Config::for_lab(&lab) };
    let mut server = Server::start(&lab, &config);
    let [stays, ends] = [IpFamily::V4, IpFamily::V6].map(|over| Call::new(&lab, &config, over));
    assert_relays(&stays, 1);
    assert_relays(&ends, 1);
    server.rewrite(&Config { listen: vec![config.listen[0].clone()], ..config });
    server.upgrade_times(1);
    server.wait_for_first_to_end();
    assert_eq!(server.json(&["status"])["took_over"]["allocations"], 1);
    assert_relays(&stays, 2);
    let line = "reason=\"listener_removed\"";
    eventually("its line in the log", || server.process.output().contains(line));
    eventually("the record of the session", || server.file("sessions.jsonl").contains('\n'));
    let text = server.file("sessions.jsonl");
    let records: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [record] = &records[..] else { panic!("{text}") };
    let ends: SocketAddr = record["client"].as_str().expect("an address").parse().unwrap();
    assert!(ends.is_ipv6(), "{record}");
    let known = ["event", "reason"].map(|key| record[key].as_str());
    assert_eq!(known, [Some("end"), Some("listener_removed")]);
    assert_eq!(record["to_peers"]["packets"], 1, "{record}");
}

#[test]
fn a_process_that_fails_changes_nothing() {
    let Some(lab) = require(Lab::new()) else { return };
    let (config, mut server) = server(&lab, "off");
    let call = Call::new(&lab, &config, IpFamily::V4);
    let refused = |server: &mut Server, options: &[&str], why: &str| {
        let out: Tool = server.upgrade(options);
        assert!(!out.ok && out.output.contains(why), "{}", out.output);
        assert!(out.output.contains("goes on as before"), "{}", out.output);
        call.caller.send(call.channel, b"still there");
        let mut bytes = [0; 100];
        call.peer.set_read_timeout(Some(PATIENCE)).expect("a time");
        let len = call.peer.recv(&mut bytes).expect("relayed");
        assert_eq!(&bytes[..len], b"still there");
    };
    refused(&mut server, &["--binary", "/bin/false"], "exit status: 1");
    server.rewrite(&Config { top: "nonsense = 1\n".to_owned(), ..config.clone() });
    refused(&mut server, &[], "nonsense");
    let taken = format!("{}:9641", lab.v4.listen);
    let _other = lab.listener(Host::Server, (lab.v4.listen, 9641));
    let tables = format!("[http]\nlisten = [\"{taken}\"]\n");
    server.rewrite(&Config { tables, ..config.clone() });
    refused(&mut server, &[], &taken);
    server.rewrite(&config);
    server.upgrade_times(1);
    server.wait_for_first_to_end();
}

/// A successor in another network namespace would bind addresses that no client can reach.
#[test]
fn an_upgrade_from_another_network_namespace_changes_nothing() {
    let Some(lab) = require(Lab::new()) else { return };
    let (config, mut server) = server(&lab, "off");
    let call = Call::new(&lab, &config, IpFamily::V4);
    // The namespace has all addresses of the server: nothing else is in the way.
    let addresses = [lab.v4.listen, lab.v4.relay, lab.v6.listen, lab.v6.relay]
        .map(|at| format!("ip address add {at} dev lo; "));
    let script = format!("ip link set lo up; {}exec \"$@\"", addresses.concat());
    let elsewhere = ["unshare", "--net", "sh", "-c", &script, "sh"];
    let out = server.upgrade_through(&lab, &elsewhere);
    assert!(!out.ok && out.output.contains("another network namespace"), "{}", out.output);
    let process = server.serving().to_string();
    assert!(out.output.contains(&format!("nsenter -t {process} -n turnpike upgrade")));
    call.caller.send(call.channel, b"still there");
    let mut bytes = [0; 100];
    call.peer.set_read_timeout(Some(PATIENCE)).expect("a time");
    let len = call.peer.recv(&mut bytes).expect("relayed");
    assert_eq!(&bytes[..len], b"still there");
    // The command that the message recommends.
    let advised = [&elsewhere[..], &["nsenter", "-t", &process, "-n"]].concat();
    let out = server.upgrade_through(&lab, &advised);
    assert!(out.ok, "{}", out.output);
}

/// A process dies that has got everything: the server takes it back.
#[track_caller]
fn fail_to_take_over(server: &Server) {
    let before = failures(server);
    let path = server.config_file().with_file_name("control.next");
    let mut stream = UnixStream::connect(&path).expect("the server takes upgrades");
    stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a time");
    for said in [said::hello(said::VERSION), said::step(said::COPY), said::step(said::PAUSE)] {
        stream.write_all(&said).expect("said");
        let mut bytes = [0; 4096];
        while stream.read(&mut bytes).is_ok_and(|len| len > 0) {}
    }
    drop(stream);
    eventually("the server goes on", || failures(server) > before);
}

/// Acts of a process that fails, in this order.
enum Does {
    Says(Vec<u8>),
    /// Reads what there is.
    Reads,
    /// Reads so many bytes.
    ReadsSome(usize),
    /// Does nothing until the server has given up.
    Hangs,
}

#[test]
fn a_process_that_dies_at_any_point_leaves_everything() {
    use Does::{Hangs, Reads, ReadsSome, Says};
    let Some(lab) = require(Lab::new()) else { return };
    let (config, mut server) = server(&lab, "off");
    let calls = [IpFamily::V4, IpFamily::V6].map(|family| Call::new(&lab, &config, family));
    let hello = || Says(said::hello(said::VERSION));
    let step = |number| Says(said::step(number));
    let copied = || vec![hello(), Reads, step(said::COPY)];
    let and = |mut before: Vec<Does>, more: Vec<Does>| {
        before.extend(more);
        before
    };
    let left = || and(copied(), vec![Reads, step(said::PAUSE)]);
    let half = |bytes: Vec<u8>| Says(bytes[..bytes.len() / 2].to_vec());
    let points = vec![
        vec![],
        vec![Says(vec![7, 0])],
        vec![Says(vec![100, 0, 0, 0])],
        vec![Says(vec![255; 4])],
        vec![Says(said::frame(b"GET / HTTP/1.1"))],
        vec![Says(said::hello(99))],
        vec![half(said::hello(said::VERSION))],
        vec![hello()],
        vec![hello(), ReadsSome(9)],
        vec![hello(), Reads],
        vec![hello(), Reads, step(said::READY)],
        vec![hello(), Reads, step(said::COMMIT)],
        vec![hello(), Reads, step(77)],
        vec![hello(), Reads, half(said::step(said::PAUSE))],
        vec![hello(), Reads, step(said::PAUSE)],
        vec![hello(), step(said::COPY)],
        copied(),
        and(copied(), vec![ReadsSome(1)]),
        and(copied(), vec![Reads]),
        and(copied(), vec![Reads, step(said::COPY)]),
        and(copied(), vec![step(said::PAUSE)]),
        left(),
        and(left(), vec![ReadsSome(1)]),
        and(left(), vec![ReadsSome(40)]),
        and(left(), vec![Reads]),
        and(left(), vec![Reads, step(said::PAUSE)]),
        and(left(), vec![Reads, step(said::COMMIT)]),
        and(left(), vec![Reads, Says(said::frame(b"prepared"))]),
        and(left(), vec![Reads, half(said::step(said::READY))]),
        and(left(), vec![Hangs]),
        and(left(), vec![Reads, Hangs]),
    ];
    let path = server.config_file().with_file_name("control.next");
    for (number, point) in points.into_iter().enumerate() {
        let mut stream = UnixStream::connect(&path).expect("the server takes upgrades");
        stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a time");
        for does in point {
            match does {
                // It may have given up by now.
                Says(bytes) => drop(stream.write_all(&bytes)),
                Reads => {
                    let mut bytes = [0; 4096];
                    while stream.read(&mut bytes).is_ok_and(|len| len > 0) {}
                }
                ReadsSome(len) => drop(stream.read_exact(&mut vec![0; len])),
                Hangs => {
                    let before = failures(&server);
                    eventually("the server gives up", || failures(&server) > before);
                }
            }
        }
        drop(stream);
        for call in &calls {
            assert_relays(call, number);
        }
    }
    assert!(failures(&server) >= 20, "{}", server.process.output());
    assert_eq!(server.json(&["status"])["allocations"]["live"], 2);
    server.upgrade_times(1);
    calls.iter().for_each(|call| assert_relays(call, usize::MAX));
    server.wait_for_first_to_end();
}

/// Hand-overs that have failed, as the log has them.
fn failures(server: &Server) -> usize {
    server.process.output().matches("did not take over").count()
}

#[track_caller]
fn assert_relays(call: &Call, number: usize) {
    let data = number.to_be_bytes();
    call.caller.send(call.channel, &data);
    let mut bytes = [0; 100];
    call.peer.set_read_timeout(Some(PATIENCE)).expect("a time");
    let len = call.peer.recv(&mut bytes).unwrap_or_else(|error| panic!("{number}: {error}"));
    assert_eq!(bytes[..len], data);
    call.peer.send(&data).expect("sent");
    assert_eq!(call.caller.receive(PATIENCE).as_deref(), Some(&data[..]), "{number}");
}

/// A process that was told to take over talks to something else than a server.
#[test]
fn forged_states_are_refused() {
    let Some(lab) = require(Lab::new()) else { return };
    let (config, server) = server(&lab, "off");
    let call = Call::new(&lab, &config, IpFamily::V4);
    let real = server.config_file().with_file_name("control.next");
    let directory = std::env::temp_dir().join(format!("tp-forged-{}", std::process::id()));
    drop(fs::remove_dir_all(&directory));
    fs::create_dir_all(&directory).expect("a directory");
    let run = |answers: Option<Vec<u8>>| {
        let forged = answers.map(|answers| {
            let listener = UnixListener::bind(directory.join("control.next")).expect("a socket");
            thread::spawn(move || {
                let (mut stream, _) = listener.accept().expect("a process");
                drop(stream.write_all(&answers));
                // Until it has ended.
                drop(stream.read_to_end(&mut Vec::new()));
            })
        });
        let out = Tool::run(
            lab.command(Host::Server, binary())
                .env("TURNPIKE_TAKES_OVER", "1")
                .arg("run")
                .arg("--config")
                .arg(server.config_file())
                .arg("--data")
                .arg(&directory),
            PATIENCE,
        );
        forged.into_iter().for_each(|thread| thread.join().expect("no panic"));
        drop(fs::remove_file(directory.join("control.next")));
        assert!(!out.ok, "{}", out.output);
        out.output
    };
    assert!(run(None).contains("is the server running"));
    // An offer of one worker with one listener, whose descriptors do not come.
    let mut newer = said::hello(said::VERSION);
    newer[12] = 99;
    for (answers, why) in [
        (Vec::new(), "hands nothing over"),
        (said::frame(b"not a state of any server"), "no state of a Turnpike server"),
        (newer, "version 99"),
        (said::hello(said::VERSION), "cannot be read"),
        (vec![200, 0, 0, 0, b'T', b'U'], "hands nothing over"),
        (vec![255; 8], "too long"),
    ] {
        let said = run(Some(answers));
        assert!(said.contains(why), "no {why} in {said}");
    }
    drop(fs::remove_dir_all(&directory));
    assert!(real.exists());
    assert_relays(&call, 1);
}
