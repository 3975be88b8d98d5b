//! Tests of the program under coturn's name: command line, process, log.

use std::path::PathBuf;
use std::process::Command;

use super::support::*;

/// Returns a command of the program under coturn's name.
fn turnserver(directory: &Directory, arguments: &[&str]) -> Command {
    let link = directory.0.join("turnserver");
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_turnpike"), &link).unwrap();
    }
    let mut command = Command::new(link);
    command.args(arguments).current_dir(&directory.0);
    command.env("TURNPIKE_DATA", directory.0.join("data"));
    command.env("TURNPIKE_OFFLOAD__MODE", "off");
    command
}

#[test]
fn the_program_under_coturns_name_takes_coturns_command_line() {
    let directory = Directory::new();
    let port = free_port().to_string();
    let text = "listening-ip=127.0.0.1\nrelay-ip=127.0.0.1\nlt-cred-mech\nrealm=a.example\nuser=alice:battery\n";
    directory.file("turnserver.conf", text);
    let pid_file = directory.0.join("pid");
    let pid_option = format!("--pidfile={}", path(&pid_file));
    // The file is found in the current directory. Options on the command line take precedence.
    let found = turnserver(&directory, &["-p", &port, "-v", "--server-relay", &pid_option]);
    let server = Server::start(found);
    let pid = std::fs::read_to_string(&pid_file).unwrap();
    assert_eq!(pid.trim(), server.process.id().to_string());
    let data = directory.0.join("data");
    let status = run(&["status", "--json", "--data", path(&data)]);
    assert_eq!(json(&status)["realm"], "a.example");
    server.stop();
    assert!(!pid_file.exists(), "it is gone with the server");

    // Without a file, all options are on the command line.
    let port = free_port().to_string();
    let options =
        ["-n", "-L", "127.0.0.1", "-E", "127.0.0.1", "-p", &port, "-a", "-r", "b.example"];
    let server = Server::start(turnserver(&directory, &options));
    let status = run(&["status", "--json", "--data", path(&data)]);
    assert_eq!(json(&status)["realm"], "b.example");
    server.stop();
}

#[test]
fn the_program_under_coturns_name_explains_itself_and_fails_as_coturn_does() {
    let directory = Directory::new();
    let output = |arguments: &[&str]| turnserver(&directory, arguments).output().unwrap();
    let help = output(&["--help"]);
    assert!(help.status.success() && stdout(&help).starts_with("Usage: turnserver"), "{help:?}");
    assert_eq!(stdout(&output(&["--version"])).trim(), env!("CARGO_PKG_VERSION"));
    let missing = output(&["-c", "/nowhere/turnserver.conf"]);
    assert_eq!(missing.status.code(), Some(255), "{missing:?}");
    directory.file("turnserver.conf", "denied-peer-ip=10.0.0.0/8x\n");
    let wrong = output(&[]);
    assert_eq!(wrong.status.code(), Some(255), "{wrong:?}");
    assert!(stderr(&wrong).contains("turnserver.conf:1: denied-peer-ip"), "{wrong:?}");
    let misspelt = output(&["-n", "-r", "b.example", "--denied-peer-pi=10.0.0.1"]);
    assert_eq!(misspelt.status.code(), Some(255), "{misspelt:?}");
    let line = "command line: --denied-peer-pi=<hidden>: coturn has no such option";
    assert!(stderr(&misspelt).contains(line), "{misspelt:?}");
}

/// coturn needs no data directory. Natively a setting permits a start without a data directory.
#[test]
fn without_a_writable_directory_a_temporary_one_serves() {
    let directory = Directory::new();
    let port = free_port().to_string();
    let temporary = directory.0.join(format!("turnpike-{}", rustix::process::geteuid().as_raw()));
    let status = || json(&run(&["status", "--json", "--data", path(&temporary)]));
    let options = ["-n", "-L", "127.0.0.1", "-p", &port, "-a", "-u", "bob:pw", "-r", "b.example"];
    let mut command = turnserver(&directory, &options);
    command.env("TURNPIKE_DATA", "/proc/no").env("TMPDIR", &directory.0);
    let server = Server::start(command);
    assert!(status()["coturn_differences"].to_string().contains("cannot be written"));
    server.stop();

    let file = |when: &str| {
        let text = format!(
            "realm = \"a.example\"\nlisten = [\"127.0.0.1:{port}\"]\n[data]\ndirectory = \"/proc/no\"\n{when}"
        );
        directory.file("turnpike.toml", &text)
    };
    let start = |when: &str| {
        let mut command = turnpike(&["run", "--config", path(&file(when))]);
        command.env("TMPDIR", &directory.0);
        command
    };
    let refused = start("").output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let server = Server::start(start("when_unwritable = \"temporary\"\n"));
    assert_eq!(status()["realm"], "a.example");
    server.stop();
}

/// Options of a server at `port` that only this host can reach.
fn here(port: &str) -> [&str; 9] {
    ["-n", "-L", "127.0.0.1", "-E", "127.0.0.1", "-p", port, "-r", "b.example"]
}

fn reads(file: &PathBuf, text: &str) -> bool {
    std::fs::read_to_string(file).is_ok_and(|read| read.contains(text))
}

#[test]
fn the_log_goes_to_a_file_that_may_be_rotated() {
    let directory = Directory::new();
    let logs = directory.0.join("log");
    std::fs::create_dir(&logs).unwrap();
    let [log, old] = ["turn.log", "turn.log.1"].map(|name| logs.join(name));
    let (port, log_option) = (free_port().to_string(), format!("--log-file={}", path(&log)));
    let own = ["--simple-log", &log_option, "--pidfile=/proc/no/pid"];
    let mut command = turnserver(&directory, &[&here(&port)[..], &own].concat());
    let mut process = Running(
        command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap(),
    );
    eventually("the server serves", || reads(&log, "ready"));
    // Rename the file as logrotate does.
    std::fs::rename(&log, &old).unwrap();
    process.signal("HUP");
    eventually("the new file", || reads(&log, "reload"));
    assert!(!reads(&old, "WARN cannot open"), "the server may open it again");
    process.signal("TERM");
    assert!(process.0.wait().unwrap().success());
    assert!(reads(&log, "stopped"));
    let out = process.output();
    assert!(out.contains("ready") && out.contains("stopped"), "coturn copies the lines: {out}");
    assert!(out.contains("cannot write the process id to /proc/no/pid"), "{out}");

    // An unwritable log file does not prevent a start.
    let options = ["-l", "/proc/no/such/log"];
    let mut server = Server::start(turnserver(&directory, &[&here(&port)[..], &options].concat()));
    server.signal("TERM");
    server.wait_for("stopped");
}

/// Most containers have no system log.
#[test]
fn on_a_host_without_a_system_log_lines_go_to_standard_error() {
    if std::path::Path::new("/dev/log").exists() {
        return test_support::skip("this host has a system log");
    }
    let directory = Directory::new();
    let port = free_port().to_string();
    let options = [&here(&port)[..], &["-a", "--syslog"]].concat();
    // The start finds "ready" on standard error.
    Server::start(turnserver(&directory, &options)).stop();
}

#[test]
fn a_server_in_the_background_has_said_that_it_serves_or_why_it_does_not() {
    let directory = Directory::new();
    let [log, pid_file] = ["turn.log", "turn.pid"].map(|name| directory.0.join(name));
    let port = free_port().to_string();
    let own = ["-o", "--no-stdout-log", "-l", path(&log), "--pidfile", path(&pid_file)];
    let started = turnserver(&directory, &[&here(&port)[..], &own].concat()).output().unwrap();
    // The command has exited without output, and the server serves.
    assert!(started.status.success() && stderr(&started).is_empty(), "{started:?}");
    eventually("lines that waited", || reads(&log, "ready"));
    let pid = std::fs::read_to_string(&pid_file).unwrap().trim().to_owned();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let session = fields.split(' ').nth(3).unwrap();
    assert_eq!(session, pid, "it leads a session of its own");
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    eventually("its end", || !pid_file.exists() && reads(&log, "stopped"));

    let wrong = [&here(&port)[..], &["-o", "--denied-peer-ip=10.0.0.0/8x"]].concat();
    let refused = turnserver(&directory, &wrong).output().unwrap();
    assert_eq!(refused.status.code(), Some(255), "{refused:?}");
    assert!(stderr(&refused).contains("denied-peer-ip=10.0.0.0/8x"), "{refused:?}");
}

#[test]
fn root_becomes_the_user_of_the_options_and_keeps_no_right() {
    if Command::new("id").arg("-u").output().unwrap().stdout != b"0\n" {
        return test_support::skip("only root can become another user");
    }
    let directory = Directory::new();
    // A privileged port can be bound nevertheless.
    let mut own = here("1");
    let port = (900..1000).find(|port| std::net::UdpSocket::bind(("127.0.0.1", *port)).is_ok());
    let port = port.unwrap().to_string();
    own[6] = &port;
    let user = ["--proc-user=nobody", "--log-file=stdout"];
    // All users can enter the data directory.
    let mut process = turnserver(&directory, &[&own[..], &user].concat());
    process.stdout(std::process::Stdio::piped());
    let mut process = Running(process.spawn().unwrap());
    process.wait_for_line("ready");
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.0.id())).unwrap();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(of("Uid:"), ["65534"; 4]);
    assert_eq!(of("Groups:"), [""; 0]);
    assert_eq!(of("CapPrm:"), ["0000000000000000"]);
    process.signal("TERM");
    assert!(process.0.wait().unwrap().success());

    let unknown = [&own[..], &["--proc-user=no-such-user"]].concat();
    let refused = turnserver(&directory, &unknown).output().unwrap();
    assert_eq!(refused.status.code(), Some(255), "{refused:?}");
    assert!(stderr(&refused).contains("proc-user: this host has no no-such-user"), "{refused:?}");
}

#[test]
fn root_gives_no_file_to_the_user_of_the_options_through_a_link() {
    use std::os::unix::fs::{MetadataExt as _, chown, symlink};
    let nobody = Some(65_534);
    let directory = Directory::new();
    let shared = directory.0.join("shared");
    std::fs::create_dir(&shared).unwrap();
    if chown(&shared, nobody, nobody).is_err() {
        return test_support::skip("only root can become another user");
    }
    let [log, pid_file] = ["turn.log", "turn.pid"].map(|name| shared.join(name));
    let foreign = ["log", "pid"].map(|name| directory.0.join(name));
    for (file, link) in foreign.iter().zip([&log, &pid_file]) {
        std::fs::write(file, "root's\n").unwrap();
        symlink(file, link).unwrap();
    }
    let port = free_port().to_string();
    let options = ["--proc-user=nobody", "-l", path(&log), "--pidfile", path(&pid_file)];
    let mut process = turnserver(&directory, &[&here(&port)[..], &options].concat());
    let pipe = std::process::Stdio::piped;
    let mut process = Running(process.stdout(pipe()).stderr(pipe()).spawn().unwrap());
    eventually("the process id", || reads(&pid_file, &process.0.id().to_string()));
    process.signal("TERM");
    process.0.wait().unwrap();
    for file in &foreign {
        assert_eq!(std::fs::read_to_string(file).unwrap(), "root's\n");
        assert_eq!(std::fs::metadata(file).unwrap().uid(), 0, "{}", file.display());
    }
    let out = process.output();
    assert!(out.contains("cannot write the log") && out.contains("symbolic link"), "{out}");
}

#[test]
fn a_server_in_the_background_without_its_pid_file_does_not_start() {
    let directory = Directory::new();
    let port = free_port().to_string();
    let options = ["-o", "--no-stdout-log", "--pidfile=/proc/no/pid"];
    let refused = turnserver(&directory, &[&here(&port)[..], &options].concat()).output().unwrap();
    assert_eq!(refused.status.code(), Some(255), "{refused:?}");
    assert!(
        stderr(&refused).contains("cannot write the process id to /proc/no/pid"),
        "{refused:?}"
    );
}

/// Process that exits with its test.
struct Running(std::process::Child);

impl Running {
    fn signal(&self, name: &str) {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    fn wait_for_line(&mut self, text: &str) {
        use std::io::BufRead as _;
        let out = std::io::BufReader::new(self.0.stdout.as_mut().unwrap());
        assert!(out.lines().map_while(Result::ok).any(|line| line.contains(text)), "no {text}");
    }

    /// Returns the complete output of the process.
    fn output(&mut self) -> String {
        let mut all = String::new();
        let read =
            |from: &mut dyn std::io::Read, all: &mut String| from.read_to_string(all).unwrap();
        read(self.0.stdout.as_mut().unwrap(), &mut all);
        read(self.0.stderr.as_mut().unwrap(), &mut all);
        all
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
