//! The restrictions of the running server, as the kernel shows them, and its function under them.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::certificates::ECDSA;
use e2e::{Account, Certificates, Config, Host, Lab, Server, Tool, require};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// A field of `/proc/PID/task/TID/status` for each thread of a process, with the thread's name.
fn of_each_named_thread(pid: u32, field: &str) -> Vec<(String, String)> {
    let tasks = format!("/proc/{pid}/task");
    let tasks = fs::read_dir(&tasks).unwrap_or_else(|error| panic!("{tasks}: {error}"));
    let status = tasks.map(|task| {
        let path = task.expect("a thread").path().join("status");
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    });
    let value = |status: &str, field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {field} in\n{status}")).trim().to_owned()
    };
    status.map(|status| (value(&status, "Name"), value(&status, field))).collect()
}

/// The same for each thread of the server, without names.
fn of_each_thread(server: &Server, field: &str) -> Vec<String> {
    let all = of_each_named_thread(server.process.pid(), field);
    all.into_iter().map(|(_, value)| value).collect()
}

#[track_caller]
fn assert_all(server: &Server, field: &str, wanted: &str) {
    let values = of_each_thread(server, field);
    assert!(values.len() > 3, "{values:?}");
    assert!(values.iter().all(|value| value == wanted), "{field}: {values:?}");
}

/// Of these bits of linux/capability.h.
fn capabilities(bits: &[u32]) -> String {
    format!("{:016x}", bits.iter().fold(0u64, |set, bit| set | 1 << bit))
}

#[test]
fn every_thread_is_confined_and_keeps_no_capability() {
    let Some(lab) = require(Lab::new()) else { return };
    let mut config = Config::for_lab(&lab);
    config.tables = "[offload]\nmode = \"off\"\n".to_owned();
    let server = Server::start(&lab, &config);
    assert_all(&server, "NoNewPrivs", "1");
    assert_all(&server, "Seccomp", "2");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_all(&server, set, &capabilities(&[]));
    }
    let told = &server.json(&["status"])["confinement"];
    assert_eq!((&told["landlock"]["on"], &told["seccomp"]["on"]), (&true.into(), &true.into()));
    assert_eq!(told["capabilities"], Value::Array(Vec::new()));
    let text = server.ask(&["status"]).output;
    assert!(text.contains("confinement  landlock on; seccomp on; no capabilities"), "{text}");
}

#[test]
fn the_kernel_path_keeps_its_capabilities_and_no_other() {
    let Some(lab) = require(Lab::new()) else { return };
    let server = Server::start(&lab, &Config::for_lab(&lab));
    let status = server.json(&["status"]);
    let off = status["offload"]["off_because"].as_str().map(ToOwned::to_owned);
    if require(off.map_or(Ok(()), Err)).is_none() {
        return;
    }
    // CAP_NET_ADMIN, CAP_PERFMON, CAP_BPF in the thread that attaches programs.
    let kept = capabilities(&[12, 38, 39]);
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let all = of_each_named_thread(server.process.pid(), set);
        assert!(all.iter().any(|(name, _)| name.starts_with("worker-")), "{set}: {all:?}");
        let mut with_some = all.iter().filter(|(_, value)| *value != capabilities(&[]));
        let is_its = set != "CapInh" && set != "CapAmb";
        let wanted = is_its.then(|| ("kernel-path".to_owned(), kept.clone()));
        assert_eq!(with_some.next().cloned(), wanted, "{set}: {all:?}");
        assert_eq!(with_some.next(), None, "{set}: {all:?}");
    }
    // Those of all others limit bpf(2) as well, and those of workers twice.
    let filters = |prefix: &str| {
        let all = of_each_named_thread(server.process.pid(), "Seccomp_filters");
        let of_it = all.into_iter().filter(|(name, _)| name.starts_with(prefix));
        of_it.map(|(_, count)| count.parse().expect("a number")).collect::<Vec<u32>>()
    };
    let of_path = filters("kernel-path")[0];
    assert!(filters("turnpike").iter().all(|count| *count == of_path + 1), "{of_path}");
    assert!(filters("worker-").iter().all(|count| *count == of_path + 2), "{of_path}");
    let kept = status["confinement"]["capabilities"].as_array().expect("a list");
    let names: Vec<&str> = kept.iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, ["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"]);
}

/// Container of root with a volume of the host's user. The server cannot change owners of files.
#[test]
fn a_server_of_root_serves_from_a_directory_of_another_user() {
    let Some(lab) = require(Lab::new()) else { return };
    let mut server = Server::start(&lab, &Config::for_lab(&lab));
    assert!(server.stop());
    let directory = server.config_file().parent().expect("a directory").to_owned();
    fs::remove_file(directory.join("users.sqlite")).expect("the database is removed");
    chown(&directory, Some(65_534), Some(65_534)).expect("root gives it away");
    for name in ["yan", "zoe"] {
        server.start_again(&lab, &[]);
        let added = server.ask(&["user", "add", name, "--password", "a password"]);
        assert!(added.ok, "{}", added.output);
        let of_database = ["users.sqlite", "users.sqlite-wal", "users.sqlite-shm"];
        for file in of_database.map(|name| directory.join(name)) {
            assert_eq!(fs::metadata(&file).expect("a file").uid(), 65_534, "{}", file.display());
        }
        assert!(server.stop());
    }
}

/// Options of setpriv(1): root without the rights to look into other processes.
const WITHOUT_PTRACE: [&str; 5] =
    ["setpriv", "--bounding-set", "-sys_ptrace,-perfmon,-sys_admin", "--inh-caps", "-all"];

/// Another process of the same user gets none of the keys in memory, by a core dump or by ptrace.
#[track_caller]
fn assert_memory_is_protected(lab: &Lab, pid: u32) {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("limits");
    let core = limits.lines().find(|line| line.starts_with("Max core file size"));
    let words: Vec<&str> = core.expect("a limit").split_whitespace().collect();
    assert_eq!(words[4..], ["0", "0", "bytes"]);
    let [setpriv, options @ ..] = WITHOUT_PTRACE;
    for (file, readable) in [("status", true), ("environ", false), ("mem", false)] {
        let path = format!("/proc/{pid}/{file}");
        let mut command = lab.command(Host::Server, setpriv);
        let read = Tool::run(command.args(options).args(["head", "-c1", &path]), PATIENCE);
        let is_refused = ["Permission denied", "Operation not permitted"]
            .iter()
            .any(|refused| read.output.contains(refused));
        assert_eq!((read.ok, is_refused), (readable, !readable), "{path}: {}", read.output);
    }
}

#[test]
fn a_keeper_is_confined_and_keeps_no_capability() {
    let Some(lab) = require(Lab::new()) else { return };
    let mut config = Config::for_lab(&lab);
    config.tables = "[offload]\nmode = \"off\"\n".to_owned();
    let server = Server::start(&lab, &config);
    let keeper = server.keeper(&lab);
    let assert_all = |field: &str, wanted: &str| {
        let all = of_each_named_thread(keeper.pid(), field);
        assert!(all.iter().all(|(_, value)| value == wanted), "{field}: {all:?}");
    };
    assert_all("NoNewPrivs", "1");
    assert_all("Seccomp", "2");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_all(set, &capabilities(&[]));
    }
    assert_memory_is_protected(&lab, keeper.pid());
}

#[test]
fn memory_is_protected_and_an_upgrade_finds_how_the_server_was_started() {
    let Some(lab) = require(Lab::new()) else { return };
    let mut config = Config::for_lab(&lab);
    config.tables = "[offload]\nmode = \"off\"\n".to_owned();
    let mut server = Server::start(&lab, &config);
    let arguments = |pid: u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).expect("a command");
        let name = command.iter().position(|byte| *byte == 0).expect("a name");
        command[name..].to_vec()
    };
    let first = arguments(server.serving());
    // The second upgrade queries a successor.
    for _ in 0..2 {
        assert_memory_is_protected(&lab, server.serving());
        let out = server.upgrade_through(&lab, &WITHOUT_PTRACE);
        assert!(out.ok, "{}\n{}", out.output, server.process.output());
        assert_eq!(arguments(server.serving()), first);
    }
}

#[test]
fn disabled_layers_are_off_and_reported() {
    let Some(lab) = require(Lab::new()) else { return };
    let mut config = Config::for_lab(&lab);
    config.tables =
        "[offload]\nmode = \"off\"\n[confinement]\nlandlock = false\nseccomp = false\n".to_owned();
    let server = Server::start(&lab, &config);
    assert_all(&server, "Seccomp", "0");
    assert_all(&server, "NoNewPrivs", "1");
    assert_all(&server, "CapPrm", &capabilities(&[]));
    let told = &server.json(&["status"])["confinement"];
    assert_eq!(told["landlock"]["why"], "confinement.landlock is false");
}

/// A temporary directory of a test.
struct Directory(PathBuf);

impl Directory {
    fn new(lab: &Lab, name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("{}-{name}", lab.namespace(Host::Server)));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn secret(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, format!("a-secret-called-{name}\n")).expect("written");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn with_secret(path: &Path, tls: &str, more: &str) -> String {
    format!("[auth]\nsecret_file = \"{}\"\n{tls}{more}", path.display())
}

/// All that a reload reads is read by the confined process: the configuration, secrets,
/// certificates that have moved behind their link, users.
#[test]
fn a_reload_reads_new_files_where_it_may_and_reports_others() {
    let Some(lab) = require(Lab::new()) else { return };
    let (named, more, outside) =
        (Directory::new(&lab, "named"), Directory::new(&lab, "more"), Directory::new(&lab, "out"));
    // As certbot has it: live/x.pem leads to archive/x1.pem, and next time to archive/x2.pem.
    let certificates = Certificates::new(&lab);
    certificates.make("x1", "turn.example.org", ECDSA, "90");
    let live = Directory::new(&lab, "live");
    let link = |file: &str| {
        for end in ["pem", "key"] {
            let at = live.0.join(format!("x.{end}"));
            drop(fs::remove_file(&at));
            symlink(certificates.path(&format!("{file}.{end}")), at).expect("a link");
        }
    };
    link("x1");
    let tls = format!(
        "[tls]\ncertificates = [{{ chain = \"{0}/x.pem\", key = \"{0}/x.key\" }}]\n",
        live.0.display()
    );
    let readable =
        format!("[confinement]\nreadable = [\"{}\"]\n[log]\nlevel = \"debug\"\n", more.0.display());
    let mut config = Config::for_lab(&lab);
    config.tables = with_secret(&named.secret("first"), &tls, &readable);
    let server = Server::start(&lab, &config);
    let expires = |server: &Server| {
        server.json(&["status"])["certificates"][0]["expires_unix"].as_u64().expect("a time")
    };
    let before = expires(&server);

    certificates.make("x2", "turn.example.org", ECDSA, "300");
    link("x2");
    for secret in [named.secret("second"), more.secret("third")] {
        config.tables = with_secret(&secret, &tls, &readable);
        server.rewrite(&config);
        let report = server.json(&["reload"]);
        assert_eq!(report["refused"], Value::Null, "{}: {report}", secret.display());
        assert_eq!(report["applied"][0]["key"], "auth.secrets", "{report}");
    }
    assert!(expires(&server) > before, "the new certificate is in force");

    let secret = outside.secret("fourth");
    config.tables = with_secret(&secret, &tls, &readable);
    server.rewrite(&config);
    let refused = server.ask(&["reload"]);
    assert!(!refused.ok, "{}", refused.output);
    for said in [secret.to_str().expect("text"), "confinement.readable", "start the server again"] {
        assert!(refused.output.contains(said), "no {said} in {}", refused.output);
    }

    // A user added now: the server reads the database and its log of changes.
    let bob = Account { name: "bob", password: "of-bob-alone" };
    let added = server.ask(&["user", "add", bob.name, "--password", bob.password]);
    assert!(added.ok && added.output.contains("realm turn.test"), "{}", added.output);
    let call = Tool::run(
        lab.command(Host::Client, "turnutils_uclient")
            .args(["-u", bob.name, "-w", bob.password, "-e", &lab.v4.peer.to_string(), "-y"])
            .args(["-c", "-n", "1", &lab.v4.listen.to_string()]),
        PATIENCE,
    );
    let refused = &server.json(&["status"])["refusals"];
    assert!(call.ok, "{}\n{refused}\n{}", call.output, server.process.output());
}
