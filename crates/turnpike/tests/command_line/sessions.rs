//! Tests of `turnpike sessions` and `turnpike session end`.

use std::collections::HashSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use serde_json::Value;

use super::support::*;

/// Creates an allocation of an open relay, from a client at this address.
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
        // Kept open together, so each socket has a different port.
        let _sockets = [(); 3].map(|()| allocate(client, ("127.0.0.1", port)));
    }

    let all = json(&ask(&["sessions", "--limit", "100000", "--json"]));
    let ids: HashSet<&str> =
        all["sessions"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!((ids.len(), &all["more"]), (usize::from(SESSIONS), &false.into()));
    let peers = json(&ask(&["sessions", "--limit", "450", "--peers", "--json"]));
    let peers = peers["sessions"].as_array().unwrap();
    assert_eq!(peers.len(), 450, "page by page");
    assert!(peers.iter().all(|one| one["peers"]["permissions"].is_array()));
    let sorted = json(&ask(&["sessions", "--limit", "2100", "--sort", "client", "--json"]));
    let clients =
        sorted["sessions"].as_array().unwrap().iter().map(|one| one["client"].as_str().unwrap());
    let clients: Vec<std::net::SocketAddr> =
        clients.map(|client| client.parse().unwrap()).collect();
    assert!(clients.is_sorted(), "as numbers");
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
    // A session that has closed does not prevent the end of others.
    let first = first["id"].as_str().unwrap();
    let some = ask(&["session", "end", "00ff000000000001", first]);
    assert_eq!(some.status.code(), Some(1), "{some:?}");
    assert_eq!(stdout(&some), format!("session {first} was ended\n"));
    let unasked = ask(&[&["session", "end"][..], &at].concat());
    assert_eq!(unasked.status.code(), Some(2), "{unasked:?}");
    assert!(stderr(&unasked).contains("would end 2 live sessions"), "{unasked:?}");
    let rest = ask(&[&["session", "end", "--yes"][..], &at].concat());
    assert!(rest.status.success() && stdout(&rest).lines().count() == 2, "{rest:?}");
    let none = ask(&[&["session", "end"][..], &at].concat());
    assert!(stdout(&none).is_empty() && none.status.success(), "{none:?}");
    assert!(stderr(&none).contains("none is live with a client at 127.1.0.9"), "{none:?}");
    assert_eq!(json(&ask(&["status", "--json"]))["allocations"]["live"], SESSIONS - 3);
}

#[test]
fn after_a_kill_each_session_has_one_end_record() {
    let mut call = Call::through("[accounting]\nfile = \"sessions.jsonl\"\n");
    let ids: Vec<String> =
        call.sessions().iter().map(|session| session["id"].as_str().unwrap().to_owned()).collect();
    // A session started just before a kill may leave no record.
    let ledger = format!("{}/open-sessions.jsonl", call.data);
    eventually("the file has the sessions", || {
        let text = std::fs::read_to_string(&ledger).unwrap_or_default();
        ids.iter().all(|id| text.contains(id))
    });
    call.server.process.kill().unwrap();
    call.server.process.wait().unwrap();
    let config = format!("{}/turnpike.toml", call.data);
    let server = Server::start(turnpike(&["run", "--config", &config, "--data", &call.data]));
    let ends = || {
        let text = std::fs::read_to_string(format!("{}/sessions.jsonl", call.data));
        let text = text.unwrap_or_default();
        let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        records.filter(|record| record["event"] == "end").collect::<Vec<_>>()
    };
    let of = |ends: &[Value], id: &String| {
        ends.iter().filter(|end| end["id"] == **id).map(|end| end["reason"].clone()).collect()
    };
    eventually("the ends of the killed process", || ends().len() >= ids.len());
    server.stop();
    for id in &ids {
        let reasons: Vec<Value> = of(&ends(), id);
        assert_eq!(reasons, ["process_lost"], "{id}");
    }
}
