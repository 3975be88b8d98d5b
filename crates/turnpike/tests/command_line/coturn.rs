//! Tests of a confined server that runs from coturn's configuration.

use test_support::{DatabaseKind, DatabaseServer, require};

use super::support::*;

#[test]
fn a_server_runs_from_coturns_configuration_and_reloads_it() {
    let directory = Directory::new();
    let port = free_port();
    let base = format!(
        "listening-ip=127.0.0.1\nrelay-ip=127.0.0.1\nallowed-peer-ip=127.0.0.1\nlt-cred-mech\nrealm=a.example\n\
         listening-port={port}\n"
    );
    let users = "user=alice:battery\nuser=bob:0x0123456789abcdef0123456789abcdef\n";
    let theirs = directory.file("turnserver.conf", &format!("{base}{users}server-relay\n"));
    let data = directory.0.join("data");
    let from = ["run", "--coturn-config", path(&theirs), "--data", path(&data)];
    let start = [&from[..], &["--", "--min-port=50000", "-Q", "100"]].concat();
    let mut server = Server::start(turnpike(&start));
    let ask = |arguments: &[&str]| run(&[arguments, &["--data", path(&data)]].concat());
    let names = || {
        let users = json(&ask(&["user", "list", "--json", "--realm", "a.example"]));
        let users = users.as_array().unwrap().iter();
        users.map(|user| user["username"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(stdout(&ask(&["status"])).contains("relays from  127.0.0.1, ports 50000-65535"));
    assert_eq!(names(), ["alice", "bob"]);
    // The options of the file serve a call.
    let uri = format!("turn:127.0.0.1:{port}");
    let probe = run(&["probe", &uri, "--username", "alice", "--password", "battery", "--json"]);
    assert!(stdout(&probe).contains("relay"), "{probe:?}");
    assert_ne!(probe.status.code(), Some(2), "{probe:?}");

    // Origins of values refer to the file that operators edit.
    let socket = data.join("control.sock");
    let mut curl = std::process::Command::new("curl");
    curl.args(["-s", "--unix-socket", path(&socket), "http://localhost/v1/configuration"]);
    let keys = json(&curl.output().unwrap())["keys"].clone();
    let allow = keys.as_array().unwrap().iter().find(|key| key["key"] == "peers.allow").unwrap();
    assert_eq!(allow["origin"], format!("{}:3", path(&theirs)));
    let deny = keys.as_array().unwrap().iter().find(|key| key["key"] == "peers.deny").unwrap();
    assert_eq!(deny["origin"], "default; coturn's option denied-peer-ip sets it");
    let checked = ask(&["check"]);
    assert!(stderr(&checked).contains("turnpike import coturn FILE --check"), "{checked:?}");

    // A user who was added by a command remains, and a user who was removed from the file is
    // deleted.
    assert!(ask(&["user", "add", "dora", "--realm", "a.example"]).status.success());
    directory.file("turnserver.conf", &format!("{base}user=carol:staple\ntotal-quota=7\n"));
    server.signal("HUP");
    server.wait_for("reloaded");
    assert_eq!(names(), ["carol", "dora"]);

    // An unreadable line is named, and the previous options remain in effect.
    directory
        .file("turnserver.conf", &format!("{base}user=carol:staple\ndenied-peer-ip=10.0.0.0/8x\n"));
    let refused = ask(&["reload"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(
        stderr(&refused).contains("turnserver.conf:8: denied-peer-ip=10.0.0.0/8x"),
        "{refused:?}"
    );
    // A file whose translation is not valid is refused as well.
    directory.file("turnserver.conf", &base.replace("a.example", "a\tb"));
    let refused = ask(&["reload"]);
    assert!(stderr(&refused).contains("turnserver.conf:5: realm"), "{refused:?}");
    assert_eq!(json(&ask(&["status", "--json"]))["realm"], "a.example");
    server.stop();
}

#[test]
fn options_that_are_not_in_force_are_logged_with_their_lines() {
    let directory = Directory::new();
    let port = free_port();
    let text = format!(
        "static-auth-secret=0123456789abcdef\nserver-relay\nverbos\nrealm=a.example\nlistening-ip=127.0.0.1\nrelay-ip=127.0.0.1\nlistening-port={port}\n"
    );
    let theirs = directory.file("turnserver.conf", &text);
    let data = directory.0.join("data");
    let arguments = ["run", "--coturn-config", path(&theirs), "--data", path(&data)];
    let mut command = turnpike(&arguments);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut process = command.spawn().unwrap();
    let log = std::io::BufReader::new(process.stderr.take().unwrap());
    let mut server = Server { process, log };
    server.wait_for("5 of 7 options are in force");
    server.wait_for("turnserver.conf:2: server-relay is not in force: ");
    server.wait_for("turnserver.conf:3: verbos is not in force: coturn has no such option");
    server.wait_for("differs from coturn here: Private networks");
    server.wait_for("ready");
    let status = run(&["status", "--data", path(&data)]);
    let differences = stdout(&status).split("differs from coturn here").nth(1).map(str::to_owned);
    let differences = differences.unwrap_or_else(|| panic!("{status:?}"));
    assert!(differences.contains("turnserver.conf:2: server-relay is not"), "{differences}");
    assert!(differences.contains("Private networks"), "{differences}");
    let translated = std::fs::read_to_string(data.join("coturn/turnpike.toml")).unwrap();
    assert!(!translated.contains("0123456789abcdef"), "a secret has a file of its own");
    server.stop();

    let both = run(&[&arguments[..], &["--config", path(&theirs)]].concat());
    assert_eq!(both.status.code(), Some(2), "{both:?}");
}

#[test]
fn users_of_coturns_database_are_copied_with_their_keys() {
    let directory = Directory::new();
    let theirs = directory.file("turnserver.conf", "realm=a.example\nlt-cred-mech\n");
    let turndb = directory.0.join("turndb");
    for (name, realm) in [("alice", "a.example"), ("bob", "a.example"), ("eve", "b.example")] {
        let admin =
            ["turnadmin", "-a", "-b", path(&turndb), "-u", name, "-r", realm, "-p", "battery"];
        let added = run(&admin);
        assert!(added.status.success(), "{added:?}");
    }
    let url = format!("sqlite-coturn://{}", path(&turndb));
    let (ours, data) = (directory.0.join("turnpike.toml"), directory.0.join("data"));
    let import =
        ["import", "coturn", path(&theirs), "--output", path(&ours), "--data", path(&data)];
    let out = run(&[&import[..], &["--users", &url, "--check"]].concat());
    assert!(stderr(&out).contains("3 added, 0 exist"), "{out:?}");
    assert!(
        stderr(&out).contains("cannot log in")
            && stderr(&out).contains("1 user in realm b.example")
    );
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    let list = |realm: &str| {
        json(&run(&["user", "list", "--json", "--realm", realm, "--data", path(&data)]))
    };
    assert_eq!(list("a.example").as_array().unwrap().len(), 2);
    assert_eq!(list("b.example")[0]["username"], "eve");
    let at = ["--realm", "a.example", "--data", path(&data)];
    let keys = directory.0.join("keys");
    let exported = run(&[&["user", "export", "--keys", path(&keys)][..], &at].concat());
    assert!(exported.status.success(), "{exported:?}");
    let theirs = run(&["turnadmin", "-k", "-u", "alice", "-r", "a.example", "-p", "battery"]);
    let key = stdout(&theirs).trim().trim_start_matches("0x").to_owned();
    let keys = std::fs::read_to_string(&keys).unwrap();
    assert!(key.len() == 32 && keys.contains(&key), "{key}: {keys}");
}

/// Copies rows of a database by an import that exits with `status`. Returns the account and the
/// configuration.
fn rows_are_copied(directory: &Directory, url: &str, status: i32) -> (String, String) {
    let text = "realm=a.example\nuse-auth-secret\noauth\n";
    let theirs = directory.file("turnserver.conf", text);
    let (ours, data) = (directory.0.join("turnpike.toml"), directory.0.join("data"));
    let words = ["import", "coturn", path(&theirs), "--output", path(&ours), "--data", path(&data)];
    let out = run(&[&words[..], &["--users", url, "--check"]].concat());
    assert_eq!(out.status.code(), Some(status), "{out:?}");
    (stderr(&out), std::fs::read_to_string(&ours).unwrap())
}

/// A new host has no certificate yet.
#[test]
fn users_are_imported_before_the_certificate_is_there() {
    let directory = Directory::new();
    let text = "realm=a.example\nlt-cred-mech\nuser=alice:battery-of-alice\ncert=/no/chain.pem\npkey=/no/key.pem\n";
    let theirs = directory.file("turnserver.conf", text);
    let (new, data) = (directory.0.join("new.toml"), directory.0.join("data"));
    let options = ["--output", path(&new), "--data", path(&data)];
    let imported = run(&[&["import", "coturn", path(&theirs)], &options[..]].concat());
    assert!(imported.status.success(), "{imported:?}");
    let said = stderr(&imported);
    assert!(said.contains("5 options") && said.contains("user alice: added"), "{said}");
    // A check of the coturn file names the format.
    let checked = stderr(&run(&["check", path(&theirs)]));
    assert!(checked.contains("turnpike import coturn"), "{checked}");
}

/// coturn looks a user up in its file, and then in its database.
#[test]
fn users_of_the_file_count_beside_those_of_the_database() {
    let directory = Directory::new();
    let turndb = directory.0.join("turndb");
    for [user, password] in [["alice", "of-the-database"], ["bob", "battery-of-bob"]] {
        let words = ["-a", "-u", user, "-r", "a.example", "-p", password, "-b", path(&turndb)];
        assert!(run(&[&["turnadmin"], &words[..]].concat()).status.success());
    }
    let port = free_port();
    let text = format!(
        "listening-ip=127.0.0.1\nlistening-port={port}\nrelay-ip=127.0.0.1\nrealm=a.example\nlt-cred-mech\n\
         user=alice:battery-of-alice\nuserdb={}\nno-tls\nno-dtls\n",
        path(&turndb)
    );
    let conf = directory.file("turnserver.conf", &text);
    let data = directory.0.join("data");
    let mut command = turnpike(&["run", "--coturn-config", path(&conf), "--data", path(&data)]);
    command.env("TURNPIKE_OFFLOAD__MODE", "off");
    let server = Server::start(command);
    let allocates = |user: &str, password: &str| {
        let uri = format!("turn:127.0.0.1:{port}");
        let said = stdout(&run(&["probe", &uri, "--username", user, "--password", password]));
        said.lines().any(|line| line.trim_start().starts_with("ok") && line.contains("allocate"))
    };
    assert!(allocates("alice", "battery-of-alice") && allocates("bob", "battery-of-bob"));
    assert!(!allocates("alice", "of-the-database"), "the file has precedence");
    server.stop();
}

#[test]
fn rows_of_coturns_file_become_a_configuration() {
    let directory = Directory::new();
    let turndb = directory.0.join("turndb");
    for words in [
        &["-s", "0123456789abcdef-of-a", "-r", "a.example"][..],
        &["-s", "short", "-r", "a.example"],
        &["-s", "0123456789abcdef-of-b", "-r", "b.example"],
        &["-O", "-o", "https://meet.b.example", "-r", "b.example"],
        &["-g", "-r", "b.example", "--user-quota=7"],
        &["-a", "-u", "alice", "-r", "b.example", "-p", "battery"],
        &["-A", "-u", "root", "-p", "hush-hush"],
    ] {
        let added = run(&[&["turnadmin"], words, &["-b", path(&turndb)]].concat());
        assert!(added.status.success(), "{added:?}");
    }
    let url = format!("sqlite-coturn://{}", path(&turndb));
    // One secret is too short.
    let (account, toml) = rows_are_copied(&directory, &url, 1);
    for line in [
        "turn_secret: realm a.example",
        "a secret has 5 bytes",
        "admin_user: administrator root",
        "6 rows: 4 taken, 2 not taken",
        "1 added, 0 exist",
    ] {
        assert!(account.contains(line), "{line}: {account}");
    }
    assert!(account.contains("as in coturn with use-auth-secret"), "{account}");
    assert!(!account.contains("hush"), "{account}");
    assert!(toml.contains("origins = [\"https://meet.b.example"), "{toml}");
    assert!(toml.contains("quotas = { allocations_per_user = 7 }"), "{toml}");
    let secret = directory.0.join("secret-b.example-database-1");
    assert_eq!(std::fs::read_to_string(secret).unwrap(), "0123456789abcdef-of-b\n");
    // A database that the new configuration still uses is not copied.
    let both = directory.file("both.conf", &format!("realm=a.example\nuserdb={}\n", path(&turndb)));
    let new = directory.0.join("new.toml");
    let out = run(&["import", "coturn", path(&both), "--output", path(&new), "--users", &url]);
    assert_eq!(out.status.code(), Some(2), "{out:?}");
}

#[test]
fn rows_of_a_database_server_become_a_configuration() {
    let Some(server) = require(DatabaseServer::start(DatabaseKind::Postgres)) else { return };
    let directory = Directory::new();
    server.turnadmin(&["-s", "0123456789abcdef-of-a", "-r", "a.example"]);
    server.turnadmin(&["-s", "0123456789abcdef-of-b", "-r", "b.example"]);
    server.turnadmin(&["-O", "-o", "https://meet.b.example", "-r", "b.example"]);
    server.turnadmin(&["-a", "-u", "alice", "-r", "b.example", "-p", "battery"]);
    server.run(
        "INSERT INTO allowed_peer_ip (realm, ip_range) VALUES ('', '10.0.0.0/8'), ('', '127.0.0.1');
         INSERT INTO denied_peer_ip (realm, ip_range) VALUES ('b.example', '192.0.2.0-192.0.2.255');
         INSERT INTO oauth_key (kid, ikm_key, timestamp, lifetime, as_rs_alg, realm)
         VALUES ('north', 'MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIK', 0, 0, 'A256GCM', 'a.example')",
    );
    let (account, toml) = rows_are_copied(&directory, &server.tcp_url(), 0);
    assert!(account.contains("7 rows: 6 taken, 1 not taken"), "{account}");
    assert!(account.contains("it opens this host"), "{account}");
    assert!(toml.contains("allow = [\"10.0.0.0/8\"]"), "{toml}");
    assert!(toml.contains("peers = { deny = [\"192.0.2.0/24\"] }"), "{toml}");
    // The last byte is one more than the algorithm has.
    let key = std::fs::read_to_string(directory.0.join("token-key-database-1")).unwrap();
    assert_eq!(key, "MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=\n");
}

#[test]
fn a_check_without_output_names_lines_of_coturns_file() {
    let directory = Directory::new();
    let text = "listening-ip=127.0.0.1\nrelay-ip=127.0.0.1\nrealm=a.example\nstatic-auth-secret=0123456789abcdef\n";
    let theirs = directory.file("turnserver.conf", text);
    let check = |theirs: &std::path::Path| run(&["import", "coturn", path(theirs), "--check"]);
    let valid = check(&theirs);
    assert!(stdout(&valid).contains("turnserver.conf is valid"), "{valid:?}");
    assert!(!stdout(&valid).contains("turnpike-import-"), "no place that is gone: {valid:?}");
    let left = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    let is_left = |name: &str| name.starts_with("turnpike-import-");
    assert!(!left.into_iter().any(|one| is_left(&one.file_name().to_string_lossy())));

    let text = format!("{text}min-port=60000\nmax-port=50000\n");
    let wrong = check(&directory.file("turnserver.conf", &text));
    assert_eq!(wrong.status.code(), Some(1), "{wrong:?}");
    assert!(stderr(&wrong).contains("there is no port from 60000 to 50000"), "{wrong:?}");
    assert!(stderr(&wrong).contains("turnserver.conf the lines 6"), "{wrong:?}");
}

#[test]
fn certificates_are_found_where_coturn_finds_them() {
    let directory = Directory::new();
    std::fs::create_dir(directory.0.join("etc")).unwrap();
    let port = free_port();
    let text = &format!(
        "listening-ip=127.0.0.1\nlistening-port={port}\ntls-listening-port={port}\nrelay-ip=127.0.0.1\nrealm=a.example\nlt-cred-mech\ncert=chain.pem\npkey=key.pem\n"
    );
    let theirs = directory.file("turnserver.conf", text);
    // These files are not certificates, and the warning about them has the path.
    let [chain, _key] = ["etc/chain.pem", "etc/key.pem"].map(|name| directory.file(name, "x"));
    let data = directory.0.join("data");
    let mut command = turnpike(&["run", "--coturn-config", path(&theirs), "--data", path(&data)]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut process = command.current_dir(&directory.0).spawn().unwrap();
    let log = std::io::BufReader::new(process.stderr.take().unwrap());
    let mut server = Server { process, log };
    server.wait_for(&format!("the server waits for it: the certificate {}", path(&chain)));
    server.wait_for("ready");
    server.stop();
}

/// A script that migrates a hundred servers reads only the exit status.
#[test]
fn an_import_that_loses_users_secrets_or_rules_fails() {
    let directory = Directory::new();
    let import = |name: &str, text: &str| {
        let file = directory.file(name, text);
        run(&["import", "coturn", path(&file)])
    };
    for (text, lost) in [
        ("realm=a.example\nuser=bob\n", "the lines 2"),
        ("realm=a.example\nuse-auth-secret\nstatic-auth-secret=short\n", "the lines 3"),
        ("realm=a.example\ndenied-peer-ip=10.0.0.0-10.1\n", "the lines 2"),
        ("realm=a.example\nmax-bps=much\n", "the lines 2"),
        ("turnserver -n -r a.example --denied-peer-pi=10.0.0.1\n", "the words 4"),
    ] {
        let out = import("theirs", text);
        assert_eq!(out.status.code(), Some(1), "{text}: {out:?}");
        assert!(stderr(&out).contains(lost), "{text}: {out:?}");
    }
    let script = "#!/bin/sh\nexec turnserver -n -r a.example -a --user=alice:battery-horse\n";
    let out = import("start.sh", script);
    assert!(out.status.success() && stdout(&out).contains("a.example"), "{out:?}");
    assert!(!format!("{out:?}").contains("battery-horse"));
    let misspelt = import("theirs", "realm=a.example\nstatic-auth-secert=battery-horse-battery\n");
    assert!(misspelt.status.success() && !format!("{misspelt:?}").contains("battery-horse"));
}
