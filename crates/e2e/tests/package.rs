//! The Debian package in a Debian 12 machine with systemd: installed, used, upgraded, removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use e2e::{Machine, Tool, binary, repository, require, skip};

const PATIENCE: Duration = Duration::from_secs(120);

/// Pause of which the sockets keep every packet of the call: 100 packets, of which a receive buffer
/// of 208 KiB holds more.
const KEPT: Duration = Duration::from_millis(150);

/// Calls of `turnpike demo` before one has to lose nothing.
const CALLS_MAX: usize = 5;

/// The address of the machine.
const SERVER: &str = "203.0.113.7";

/// Builds the Debian package from the server that Cargo has built.
fn package(version: &str, output: &Path) -> PathBuf {
    build("deb", version, output)
}

fn build(kind: &str, version: &str, output: &Path) -> PathBuf {
    let built = Tool::run(
        Command::new(repository().join("scripts/build-package"))
            .args([kind, "--version", version, "--binary"])
            .arg(binary())
            .arg("--output")
            .arg(output)
            .env("PACKAGE_COMPRESSION", "0"),
        PATIENCE,
    );
    assert!(built.ok, "{}", built.output);
    PathBuf::from(built.output.trim())
}

/// The word behind `label` in the output of a command.
fn word_after<'a>(output: &'a str, label: &str) -> &'a str {
    let line = output.lines().find_map(|line| line.trim().strip_prefix(label));
    line.unwrap_or_else(|| panic!("no {label} in {output}")).trim()
}

/// Calls until one loses nothing, and returns what it prints: on a busy machine one may, as its
/// hint says.
#[track_caller]
fn call_through(machine: &Machine, demo: &[&str]) -> String {
    let mut calls = (0..CALLS_MAX).map(|_| machine.run(demo));
    let lossless = calls.find(|call| call.ok).map(|call| call.output);
    lossless.unwrap_or_else(|| {
        let last = machine.run(demo).output;
        panic!("{last}\n{}\n{}", machine.run(&["turnpike", "status"]).output, machine.journal())
    })
}

#[test]
fn the_package_is_installed_upgraded_and_removed() {
    let Some(machine) = require(Machine::boot("package")) else { return };
    let install = |version: &str| {
        let package = package(version, &machine.path("/srv"));
        let file =
            format!("/srv/{}", package.file_name().and_then(|name| name.to_str()).expect("a name"));
        machine.succeed(&["apt-get", "install", "-q", "-y", &file])
    };

    // The commands of docs/operate/install.md.
    install("0.2.0");
    let added = machine.succeed(&["turnpike", "user", "add", "alice"]);
    let password = word_after(&added, "password");
    let server = format!("turn:{SERVER}");
    let demo = ["turnpike", "demo", "--server", &server, "--user", "alice", "--password", password];
    let said = call_through(&machine, &[&demo[..], &["--seconds", "2", "--json"]].concat());
    let call: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let flows = call["flows"].as_array().expect("flows");
    assert!(
        !flows.is_empty() && flows.iter().all(|flow| flow["relayed"].as_u64() > Some(50)),
        "{call}"
    );

    // The service, under its sandbox and its own.
    let show =
        |properties: &str| machine.succeed(&["systemctl", "show", "turnpike", "-p", properties]);
    let state = show("ActiveState,UnitFileState,StatusText,NRestarts,User");
    for said in
        ["ActiveState=active", "UnitFileState=enabled", "allocations are live", "NRestarts=0"]
    {
        assert!(state.contains(said), "no {said} in {state}");
    }
    let status = machine.succeed(&["turnpike", "status"]);
    assert!(status.contains("landlock on; seccomp on"), "{status}");
    let off =
        ["off, ", "cannot"].iter().any(|word| word_after(&status, "kernel path").starts_with(word));
    assert!(!off, "the unit lets the kernel path run: {status}");
    assert!(!machine.journal().contains("ERROR"), "{}", machine.journal());
    open_to_its_group_alone(&machine);
    a_refused_reload_fails(&machine);
    restarts_end_no_call(&machine, &demo);
    crashes_end_no_call_with_a_keeper(&machine, &demo);

    // An upgrade keeps the administrator's changes and the users, and runs the new server.
    let file = machine.path("/etc/turnpike/turnpike.toml");
    let text = fs::read_to_string(&file).expect("the conffile");
    let changed = text.replace("[quotas]\n", "[quotas]\nallocations_per_user = 7\n");
    assert_ne!(text, changed);
    fs::write(&file, &changed).expect("written");
    let before = show("MainPID");
    install("0.2.1");
    assert_eq!(fs::read_to_string(&file).expect("the conffile"), changed);
    assert_ne!(show("MainPID"), before, "{}", machine.journal());
    let owner = machine.succeed(&[
        "stat",
        "-c",
        "%a %U:%G",
        "/etc/turnpike",
        "/etc/turnpike/turnpike.toml",
    ]);
    assert_eq!(owner, "750 root:turnpike\n640 root:turnpike\n");
    assert!(machine.succeed(&["turnpike", "user", "list"]).contains("alice"));
    call_through(&machine, &[&demo[..], &["--seconds", "1"]].concat());

    // A configuration that was deleted stays deleted.
    fs::remove_file(&file).expect("removed");
    install("0.2.2");
    assert!(!file.exists());
    fs::write(&file, &changed).expect("written");

    machine.succeed(&["apt-get", "remove", "-q", "-y", "turnpike"]);
    assert!(!machine.run(&["systemctl", "is-active", "turnpike"]).ok);
    assert!(file.exists() && machine.path("/var/lib/turnpike/users.sqlite").exists());
    fs::write(machine.path("/etc/turnpike/secret"), "mine\n").expect("written");
    machine.succeed(&["apt-get", "purge", "-q", "-y", "turnpike"]);
    assert!(!file.exists() && !machine.path("/var/lib/turnpike").exists());
    assert!(machine.path("/etc/turnpike/secret").exists(), "not the package's");
    let left = machine.run(&["find", "/etc/systemd", "-name", "turnpike*"]);
    assert_eq!(left.output, "");
}

/// Scripts and a configuration made for coturn, on a host that has Turnpike instead.
#[test]
fn the_package_under_coturns_names_serves_its_configuration() {
    let Some(machine) = require(Machine::boot("coturn-package")) else { return };
    let install = |kind: &str| {
        let package = build(kind, "0.2.0", &machine.path("/srv"));
        let name = package.file_name().and_then(|name| name.to_str()).expect("a name");
        machine.succeed(&["apt-get", "install", "-q", "-y", &format!("/srv/{name}")])
    };
    install("deb");
    let conf = "realm=a.example\nlt-cred-mech\nuser=alice:battery\nlog-file=/var/log/turnserver/turn.log\n\
                pidfile=/var/run/turnserver.pid\n";
    fs::write(machine.path("/etc/turnserver.conf"), conf).expect("written");
    install("coturn-deb");

    // As with coturn's own package; the other unit makes room.
    let started = machine.run(&["systemctl", "enable", "--now", "coturn"]);
    assert!(started.ok, "{}\n{}", started.output, machine.journal_of("coturn"));
    assert!(!machine.run(&["systemctl", "is-active", "turnpike"]).ok);
    let server = format!("turn:{SERVER}");
    let options =
        ["--server", &server, "--user", "alice", "--password", "battery", "--seconds", "1"];
    call_through(&machine, &[&["turnpike", "demo"][..], &options].concat());
    // The commands find the server without an option.
    let status = machine.succeed(&["turnpike", "status"]);
    assert!(status.contains("a.example"), "{status}");
    let reloaded = machine.run(&["systemctl", "reload", "coturn"]);
    let log = fs::read_to_string(machine.path("/var/log/turnserver/turn.log")).expect("the log");
    assert!(reloaded.ok, "{}\n{log}", machine.journal_of("coturn"));
    assert!(log.contains("ready") && log.contains("reload"), "{log}");
    let main = machine.succeed(&["systemctl", "show", "--property=MainPID", "--value", "coturn"]);
    let pid = machine.succeed(&["cat", "/var/run/turnserver.pid"]);
    assert_eq!(pid.trim(), main.trim(), "{}", machine.journal_of("coturn"));
    let key = machine.succeed(&["turnadmin", "-k", "-u", "gorst", "-r", "north.gov", "-p", "hero"]);
    assert!(key.contains("7da2270ccfa49786e0115366d3a3d14d"), "{key}");

    // In the background, without a configuration: to the system's log.
    let own = ["-o", "-p", "3500", "-r", "b.example", "--proc-user=turnpike"];
    machine.succeed(&["systemctl", "stop", "coturn"]);
    machine.succeed(&[&["turnserver", "-n"][..], &own].concat());
    let pid = machine.succeed(&["cat", "/run/turnserver.pid"]);
    let by = format!("SYSLOG_PID={}", pid.trim());
    let said = || machine.run(&["journalctl", "-q", "--no-pager", &by]).output;
    test_support::eventually("its lines", || said().contains("ready"));
    machine.succeed(&["sh", "-c", &format!("kill {}", pid.trim())]);
    test_support::eventually("its end", || said().contains("stopped"));

    machine.succeed(&["apt-get", "purge", "-q", "-y", "turnpike-coturn-compat"]);
    assert!(!machine.path("/usr/bin/turnserver").is_symlink());
    assert!(machine.path("/etc/turnserver.conf").exists(), "not the package's");
}

/// Packets of a call that was disturbed.
struct Disturbed {
    sent: u64,
    lost: u64,
    /// Times from the beginning of each disturbance until the server served again, as seen from
    /// outside.
    pauses: Vec<Duration>,
    /// Length of the call.
    length: Duration,
}

impl Disturbed {
    /// Packets that may be lost at most: those of the pauses.
    fn lost_max(&self) -> u64 {
        let paused: Duration = self.pauses.iter().sum();
        (self.sent as f64 * paused.as_secs_f64() / self.length.as_secs_f64()) as u64
    }
}

/// Calls for some seconds, during which `disturb` happens again and again.
#[track_caller]
fn call_during(
    machine: &Machine,
    (demo, seconds): (&[&str], u64),
    (times, disturb): (usize, impl Fn() -> Duration),
) -> Disturbed {
    let length = seconds.to_string();
    let words = [demo, &["--seconds", &length, "--json"]].concat();
    let said = std::thread::scope(|scope| {
        let call = scope.spawn(|| machine.run(&words).output);
        let is_there = || {
            let status = machine.run(&["turnpike", "status", "--json"]).output;
            let status: serde_json::Value = serde_json::from_str(&status).unwrap_or_default();
            status["allocations"]["live"].as_u64() > Some(0)
        };
        test_support::eventually("the call", is_there);
        let again = |_| {
            std::thread::sleep(Duration::from_millis(500));
            disturb()
        };
        let pauses: Vec<Duration> = (0..times).map(again).collect();
        (call.join().expect("the call's output"), pauses)
    });
    let (said, pauses) = said;
    let end = said.rfind('}').unwrap_or_else(|| panic!("no JSON: {said}\n{}", machine.journal()));
    let call: serde_json::Value = serde_json::from_str(&said[..=end])
        .unwrap_or_else(|error| panic!("{error}: {said}\n{}", machine.journal()));
    let flows = call["flows"].as_array().expect("flows");
    let sum = |what: &str| flows.iter().filter_map(|flow| flow[what].as_u64()).sum();
    let length = Duration::from_secs(seconds);
    Disturbed { sent: sum("sent"), lost: sum("lost"), pauses, length }
}

/// The next process has the calls of the one before.
#[track_caller]
fn took_calls_over(machine: &Machine) {
    let status = machine.succeed(&["turnpike", "status"]);
    assert!(status.contains("took over"), "{status}\n{}", machine.journal());
    assert!(!status.contains("took over 0"), "{status}\n{}", machine.journal());
}

fn restarts_end_no_call(machine: &Machine, demo: &[&str]) {
    let restart = || {
        let begun = Instant::now();
        machine.succeed(&["systemctl", "restart", "turnpike"]);
        let pause = begun.elapsed();
        took_calls_over(machine);
        pause
    };
    let call = call_during(machine, (demo, 10), (4, &restart));
    let Disturbed { sent, lost, pauses, .. } = &call;
    eprintln!("{lost} of {sent} packets were lost in restarts of {pauses:.1?}");
    // The call goes on behind each restart, and sockets keep what comes in a short one.
    let kept = if pauses.iter().max() < Some(&KEPT) { 0 } else { call.lost_max() };
    assert!(*sent > 1000 && *lost <= kept, "{lost} of {sent}, {pauses:?}: {}", machine.journal());
    // A stop keeps nothing, and another server may have the ports at once.
    machine.succeed(&["systemctl", "stop", "turnpike"]);
    assert!(!machine.succeed(&["ss", "-Hulnp"]).contains(":3478"), "the port is in use");
    machine.succeed(&["systemctl", "start", "turnpike"]);
    assert!(!machine.succeed(&["turnpike", "status"]).contains("took over"));
}

fn crashes_end_no_call_with_a_keeper(machine: &Machine, demo: &[&str]) {
    machine.succeed(&["systemctl", "enable", "--now", "turnpike-keeper"]);
    test_support::eventually("the keeper", || machine.journal().contains("a keeper has copies"));
    let main_process =
        || machine.succeed(&["systemctl", "show", "turnpike", "-p", "MainPID", "--value"]);
    let kill = || {
        // The keeper has what is a second old.
        std::thread::sleep(Duration::from_secs(2));
        let before = main_process();
        let begun = Instant::now();
        machine.succeed(&["systemctl", "kill", "-s", "KILL", "turnpike"]);
        test_support::eventually("the next process", || {
            let is_another = main_process() != before;
            is_another && machine.run(&["turnpike", "status"]).ok
        });
        let pause = begun.elapsed();
        took_calls_over(machine);
        pause
    };
    let call = call_during(machine, (demo, 12), (2, &kill));
    let Disturbed { sent, lost, pauses, .. } = &call;
    assert!(
        *sent > 1000 && *lost <= call.lost_max(),
        "{lost} of {sent}, {pauses:?}: {}",
        machine.journal()
    );
    machine.succeed(&["systemctl", "disable", "--now", "turnpike-keeper"]);
}

/// Members of the group use the control socket, other users do not; neither reads the users' keys.
fn open_to_its_group_alone(machine: &Machine) {
    machine.succeed(&["useradd", "--groups", "turnpike", "olga"]);
    machine.succeed(&["useradd", "mallory"]);
    let status = |user: &str| machine.run(&["runuser", "-u", user, "--", "turnpike", "status"]);
    assert!(status("olga").ok, "{}", status("olga").output);
    assert!(!status("mallory").ok);
    for user in ["olga", "mallory"] {
        let read = machine.run(&["runuser", "-u", user, "--", "ls", "/var/lib/turnpike"]);
        assert!(!read.ok, "{}", read.output);
    }
}

fn a_refused_reload_fails(machine: &Machine) {
    let file = machine.path("/etc/turnpike/turnpike.toml");
    let text = fs::read_to_string(&file).expect("the conffile");
    machine.succeed(&["systemctl", "reload", "turnpike"]);
    fs::write(&file, format!("relm = 1\n{text}")).expect("written");
    assert!(!machine.run(&["systemctl", "reload", "turnpike"]).ok);
    fs::write(&file, text).expect("written");
    machine.succeed(&["systemctl", "reload", "turnpike"]);
    assert!(machine.run(&["systemctl", "is-active", "turnpike"]).ok);
}

#[test]
fn the_rpm_has_the_same_files() {
    if Command::new("rpmbuild").arg("--version").output().is_err() {
        return skip("rpmbuild is not installed");
    }
    let output = std::env::temp_dir().join(format!("tp{}-rpm", std::process::id()));
    let built = build("rpm", "0.2.0", &output);
    let query = |what: &str| {
        let out = Tool::run(Command::new("rpm").args(["-qp", what]).arg(&built), PATIENCE);
        assert!(out.ok, "{}", out.output);
        out.output
    };
    assert_eq!(query("--configfiles").trim(), "/etc/turnpike/turnpike.toml");
    let files = query("--list");
    for file in
        ["/usr/bin/turnpike", "/usr/lib/systemd/system/turnpike.service", "/turnpike-drain.1.gz"]
    {
        assert!(files.contains(file), "no {file} in {files}");
    }
    assert!(query("--requires").contains("libssl.so.3"));
    assert!(query("--scripts").contains("systemd-sysusers turnpike.conf"));
    let root = output.join("root");
    let root_of = root.display().to_string();
    let unpack = ["--root", &root_of, "--nodeps", "--noscripts", "--install"];
    let unpacked = Tool::run(Command::new("rpm").args(unpack).arg(&built), PATIENCE);
    assert!(unpacked.ok, "{}", unpacked.output);
    let runs = Tool::run(Command::new(root.join("usr/bin/turnpike")).arg("--version"), PATIENCE);
    drop(fs::remove_dir_all(&output));
    assert!(runs.ok && runs.output.starts_with("turnpike "), "{}", runs.output);
}

/// The configuration of the package is valid and opens nothing to clients without credentials.
#[test]
fn the_conffile_is_checked_as_it_is_and_with_each_key() {
    let shipped =
        fs::read_to_string(repository().join("dist/turnpike.toml")).expect("the conffile");
    let check = |text: &str, name: &str| {
        let file = std::env::temp_dir().join(format!("tp{}-{name}.toml", std::process::id()));
        // This host has no such group.
        fs::write(&file, text.replace("group = \"turnpike\"", "group = \"0\"")).expect("written");
        let out = Tool::run(Command::new(binary()).args(["check", "--json"]).arg(&file), PATIENCE);
        drop(fs::remove_file(&file));
        let out = &out.output[..=out.output.rfind('}').expect("JSON")];
        serde_json::from_str::<serde_json::Value>(out)
            .unwrap_or_else(|error| panic!("{error}: {out}"))
    };
    let as_it_is = check(&shipped, "shipped");
    assert_eq!(as_it_is["valid"], true, "{as_it_is}");
    // Each key that is commented out is a key.
    let is_key = |line: &&str| {
        line.strip_prefix('#')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
    };
    assert!(shipped.lines().filter(is_key).count() > 8);
    let all: String = shipped
        .lines()
        .map(|line| if is_key(&line) { &line[1..] } else { line })
        // The files that they name are not here.
        .filter(|line| !line.starts_with("certificates") && !line.starts_with("secret_file"))
        .map(|line| format!("{line}\n"))
        .collect();
    let all = check(&all, "all");
    assert_eq!(all["valid"], true, "{all}");
}

#[test]
fn the_units_are_confined_and_valid() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return skip("systemd-analyze is not installed");
    }
    ["turnpike.service", "turnpike-keeper.service"].into_iter().for_each(is_confined_and_valid);
}

#[track_caller]
fn is_confined_and_valid(unit: &str) {
    let unit = repository().join("dist/systemd").join(unit);
    let analyze = |arguments: &[&str]| {
        Tool::run(Command::new("systemd-analyze").args(arguments).arg(&unit), PATIENCE)
    };
    // In tenths: 2.0 at most.
    let security = analyze(&["security", "--offline=yes", "--threshold=20"]);
    assert!(security.ok, "{}", security.output);
    let verified = analyze(&["verify", "--man=no"]);
    // The server is not installed here.
    let slips: Vec<_> = verified
        .output
        .lines()
        .filter(|line| !line.contains("/usr/bin/turnpike is not executable"))
        .collect();
    assert_eq!(slips, [""; 0]);
}
