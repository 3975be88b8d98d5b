//! Tests of `turnpike tune` on a real kernel, in a separate network namespace. Only values of the
//! namespace or of its veth are changed.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use test_support::require;

/// Name of the test's veth in its namespace.
const VETH: &str = "tune0";

/// Ports that were reserved before the test.
const RESERVED: &str = "8080,9148-9150";

/// Network namespace with a veth, a /sys of the namespace, and a separate /etc/sysctl.d. The
/// namespace is removed when its process exits.
struct Namespace {
    process: Child,
    directory: PathBuf,
}

impl Namespace {
    /// Creates a namespace.
    ///
    /// # Errors
    /// Namespaces are unavailable. The error is the reason.
    fn new(name: &str) -> Result<Self, String> {
        let setup = format!(
            "mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs /etc/sysctl.d && ip link add {VETH} type veth peer name tune1 && \
             ip link set {VETH} up && ip route add default dev {VETH} && \
             echo {RESERVED} >/proc/sys/net/ipv4/ip_local_reserved_ports && echo ready && read line"
        );
        let spawned = Command::new("unshare")
            .args(["-n", "-m", "sh", "-c", &setup])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut process = spawned.map_err(|error| format!("cannot run unshare: {error}"))?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line != "ready\n" {
            let output = process.wait_with_output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(format!("no network namespace could be made: {error}"));
        }
        let directory =
            std::env::temp_dir().join(format!("turnpike-tune-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        Ok(Self { process, directory })
    }

    fn state(&self) -> PathBuf {
        self.directory.join("tune.json")
    }

    /// Runs a command inside the namespace.
    fn run(&self, arguments: &[&str]) -> Output {
        let process = self.process.id().to_string();
        let mut command = Command::new("nsenter");
        command.args(["-t", &process, "-n", "-m", "--"]).args(arguments).stdin(Stdio::null());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TURNPIKE_")) {
            command.env_remove(name);
        }
        command.output().unwrap()
    }

    /// Runs `turnpike tune`, only for items that belong to the namespace.
    fn tune(&self, arguments: &[&str]) -> Output {
        let ours = ["--only", "net.ipv4.ip_local_reserved_ports", "--only", "rps"];
        let state = self.state();
        let state = ["--state", state.to_str().unwrap()];
        let mut all = vec![env!("CARGO_BIN_EXE_turnpike"), "tune"];
        all.extend(arguments.iter().chain(&ours));
        if arguments[0] != "check" {
            all.extend(state);
        }
        self.run(&all)
    }

    fn tune_json(&self, arguments: &[&str]) -> Value {
        let output = self.tune(&[arguments, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    fn read(&self, path: &str) -> String {
        let output = self.run(&["cat", path]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn reserved(&self) -> String {
        self.read("/proc/sys/net/ipv4/ip_local_reserved_ports")
    }

    fn rps(&self) -> String {
        self.read(&format!("/sys/class/net/{VETH}/queues/rx-0/rps_cpus"))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Returns the namespace. Without one, reports why the test is skipped, and returns `None`.
fn namespace(test: &str) -> Option<Namespace> {
    require(Namespace::new(test))
}

fn statuses(check: &Value) -> Vec<&str> {
    check["items"].as_array().unwrap().iter().map(|item| item["status"].as_str().unwrap()).collect()
}

#[test]
fn what_is_applied_is_checked_as_good_and_put_back() {
    let Some(namespace) = namespace("what_is_applied_is_checked_as_good_and_put_back") else {
        return;
    };
    let several = std::thread::available_parallelism().unwrap().get() > 1;
    let before = (namespace.reserved(), namespace.rps());
    let check = namespace.tune_json(&["check"]);
    assert_eq!(check["interfaces"][0], VETH, "{check}");
    assert_eq!(statuses(&check), ["advise", if several { "advise" } else { "ok" }], "{check}");

    let output = namespace.tune(&["apply"]);
    assert_eq!(output.status.code(), Some(2), "nobody is asked, and nothing done: {output:?}");
    assert_eq!((namespace.reserved(), namespace.rps()), before);

    let applied = namespace.tune_json(&["apply", "--yes"]);
    for change in applied["changes"].as_array().unwrap() {
        assert_eq!(change["outcome"], "changed", "{applied}");
    }
    assert_eq!(namespace.reserved(), "3478,8080,9148-9150,49152-65535");
    assert_eq!(statuses(&namespace.tune_json(&["check"])), ["ok", "ok"]);
    assert!(namespace.state().exists());

    let output = namespace.tune(&["apply", "--yes", "--persist"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("not the machine's own network namespace"), "{error}");

    let output = namespace.tune(&["revert"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!((namespace.reserved(), namespace.rps()), before);
    assert!(!namespace.state().exists(), "nothing is left to put back");
}

#[test]
fn a_value_changed_since_is_left_alone() {
    let Some(namespace) = namespace("a_value_changed_since_is_left_alone") else {
        return;
    };
    assert!(namespace.tune(&["apply", "--yes"]).status.success());
    let set = "echo 7000 >/proc/sys/net/ipv4/ip_local_reserved_ports";
    assert!(namespace.run(&["sh", "-c", set]).status.success());

    let output = namespace.tune(&["revert"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(&format!("changed since; before tuning: {RESERVED}")), "{text}");
    assert_eq!(namespace.reserved(), "7000");

    let output = namespace.tune(&["revert", "--force"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(namespace.reserved(), RESERVED);
}

#[test]
fn a_namespace_may_not_change_the_machine() {
    let Some(namespace) = namespace("a_namespace_may_not_change_the_machine") else {
        return;
    };
    let output = namespace.run(&[env!("CARGO_BIN_EXE_turnpike"), "tune", "check", "--json"]);
    let check: Value = serde_json::from_slice(&output.stdout).unwrap();
    let find = |name: &str| {
        let items = check["items"].as_array().unwrap();
        items.iter().find(|item| item["name"] == name).unwrap_or_else(|| panic!("{name}: {check}"))
    };
    // The kernel shows this value only in the first namespace, and shows some others without their
    // limits.
    assert_eq!(find("net.core.netdev_max_backlog")["status"], "cannot");
    assert_ne!(find("net.core.rmem_max")["status"], "advise");
    assert_eq!(find("channels")["status"], "cannot");
    assert!(find("channels")["reason"].as_str().unwrap().contains("virtual"));
}
