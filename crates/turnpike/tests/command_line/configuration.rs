//! Tests of configurations that are checked, refused, read from variables, and imported.

use std::fs::Permissions;
use std::io::BufReader;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use super::support::*;

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
    // Without `--host`, the configuration may be meant for another host.
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
fn a_variable_near_a_key_that_means_nothing_is_refused() {
    for (name, value, code) in [
        ("TURNPIKE_SECRET", "0123456789abcdef", 2),
        ("TURNPIKE_WEATHER", "fine", 0),
        ("TURNPIKE_PORT", "3478", 2),
        ("TURNPIKE_PORT", "udp://10.0.0.1:3478", 0),
    ] {
        let output = turnpike(&["check"]).env(name, value).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{name}: {output:?}");
    }
}

#[test]
fn a_configuration_of_coturn_is_imported_and_nothing_is_replaced() {
    let directory = Directory::new();
    let theirs = directory.file(
        "turnserver.conf",
        "realm=example.org\nuser=alice:correct-horse\nserver-relay\nverbos\n",
    );
    let ours = directory.0.join("turnpike.toml");
    let data = directory.0.join("data");
    // Without --output no file is written.
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

    // A secret has a separate file.
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

#[test]
fn the_command_line_of_a_unit_is_imported_behind_its_configuration_and_checked() {
    let directory = Directory::new();
    let theirs = directory.file("turnserver.conf", "realm=a.example\nmax-port=51000\n");
    let unit = format!(
        "[Service]\nExecStart=/usr/bin/turnserver -c {} --pidfile= \\\n  -a -u bob:battery --min-port 50000\n",
        path(&theirs)
    );
    let unit = directory.file("coturn.service", &unit);
    let (ours, data) = (directory.0.join("turnpike.toml"), directory.0.join("data"));
    let out = run(&[
        "import",
        "coturn",
        path(&unit),
        "--output",
        path(&ours),
        "--data",
        path(&data),
        "--check",
    ]);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    assert!(stderr(&out).contains("user bob: added in realm a.example"), "{out:?}");
    assert!(stderr(&out).contains(&format!("and before it {}", path(&theirs))), "{out:?}");
    let written = std::fs::read_to_string(&ours).unwrap();
    assert!(written.contains("ports = \"50000-51000\""), "{written}");

    let unit =
        directory.file("other.service", "[Service]\nExecStart=/usr/bin/turnserver $OPTIONS\n");
    let out = run(&["import", "coturn", path(&unit)]);
    assert_eq!(out.status.code(), Some(2), "{out:?}");
    assert!(
        stderr(&out).contains("other.service: line 2: the value of $OPTIONS is elsewhere"),
        "{out:?}"
    );
}
