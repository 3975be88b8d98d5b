//! `compare` with real servers in real network namespaces.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use test_support::skip;
use turn_bench::outcome::{Compare, Outcome};
use turn_bench::traffic::Transport;

const BENCH: &str = env!("CARGO_BIN_EXE_turnpike-bench");

/// Servers have a core for themselves: one comparison at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Two of the installed servers, one twice if need be; `None`, and a skip, without any.
fn servers() -> Option<[&'static str; 2]> {
    let turnpike = Path::new(BENCH).with_file_name("turnpike").is_file();
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let coturn = std::env::split_paths(&paths).any(|path| path.join("turnserver").is_file());
    match (turnpike, coturn) {
        (true, true) => Some(["turnpike", "coturn"]),
        (true, false) => Some(["turnpike", "turnpike"]),
        (false, true) => Some(["coturn", "coturn"]),
        (false, false) => {
            skip("there is neither turnpike beside turnpike-bench nor coturn in PATH");
            None
        }
    }
}

fn start(servers: [&str; 2], cells: &str, json: &Path) -> Child {
    let mut command = Command::new(BENCH);
    // Rates that any machine offers and any server relays: searches end with their first try.
    command.args([
        "compare",
        "--rounds",
        "1",
        "--duration",
        "0.5",
        "--max-rate",
        "2000",
        "--cells",
    ]);
    command.args(cells.split(' '));
    command.args(servers.map(|server| format!("--server={server}")));
    command.arg("--json").arg(json).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Returns `true`, and counts a skip, where this machine allows no comparison.
fn cannot(output: &Output) -> bool {
    let said = String::from_utf8_lossy(&output.stderr);
    let known = ["network namespaces cannot be made", "a comparison wants", "cannot be seen"];
    let reason = said.lines().find(|line| known.iter().any(|known| line.contains(known)));
    reason.inspect(|reason| skip(reason)).is_some()
}

/// Leftovers of a run: namespaces, its directory, its programs.
fn left_of(run: u32) -> Vec<String> {
    let directory = std::env::temp_dir().join(format!("turnpike-bench-{run}"));
    let mark = format!("turnpike-bench-{run}/");
    let names = |path| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok())
    };
    let namespaces =
        names("/run/netns").filter(|name| name.starts_with(&format!("turnpike-bench-{run}-")));
    let programs = names("/proc")
        .filter_map(|name| fs::read_to_string(format!("/proc/{name}/cmdline")).ok())
        .filter(|command| command.contains(&mark));
    let directory = directory.exists().then(|| directory.display().to_string());
    namespaces.chain(programs).chain(directory).collect()
}

fn json_file(test: &str) -> PathBuf {
    std::env::temp_dir().join(format!("compare-{test}-{}.json", std::process::id()))
}

#[test]
fn two_servers_are_compared_and_nothing_remains() {
    let Some(servers) = servers() else { return };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let json = json_file("table");
    let child = start(servers, "audio:2:c2p,alloc", &json);
    let run = child.id();
    let output = child.wait_with_output().unwrap();
    if cannot(&output) {
        return;
    }
    assert!(output.status.success(), "{output:?}");
    assert_eq!(left_of(run), Vec::<String>::new());

    let text = String::from_utf8(output.stdout).unwrap();
    let rows = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    assert!(rows("| audio:2:c2p:200 ") >= 4, "{text}");
    assert!(rows("| alloc ") >= 3, "{text}");
    let columns = text.lines().filter(|line| line.starts_with('|'));
    assert!(columns.clone().all(|line| line.matches('|').count() == 7), "{text}");

    let line = fs::read_to_string(&json).unwrap();
    fs::remove_file(&json).unwrap();
    let Outcome::Compare(compare) = serde_json::from_str(&line).unwrap() else {
        panic!("{line}");
    };
    check(&compare);
}

/// Everything was measured, by the cores too.
fn check(compare: &Compare) {
    assert_eq!(compare.failures, Vec::<String>::new());
    let names: Vec<_> = compare.cells.iter().map(|cell| cell.name.as_str()).collect();
    assert_eq!(names, ["audio:2:c2p:200", "alloc"]);
    for cell in &compare.cells {
        assert!(cell.common_rate.is_some_and(|rate| rate > 0), "{cell:?}");
        for measure in &cell.measures {
            for (rounds, refused) in measure.values.iter().zip(&cell.refused) {
                // Other programs on the server's core can make a reading of its meter impossible.
                let may_miss = measure.name.contains("cores") && *refused > 0;
                assert!(may_miss || rounds.iter().all(Option::is_some), "{measure:?}");
            }
        }
        // The highest rate, and the time of the server's core.
        for measure in &cell.measures[..2] {
            assert!(measure.values.iter().flatten().flatten().all(|value| *value > 0.0));
        }
    }
    // Allocations are the work of the server's own threads.
    let threads = compare.cells[1].measures.iter().filter(|one| one.name.contains("threads"));
    let values: Vec<_> = threads.flat_map(|one| one.values.iter().flatten().flatten()).collect();
    assert_eq!(values.len(), 4, "of two servers, at most and at the common rate");
    assert!(values.iter().all(|value| **value > 0.0), "{values:?}");
    assert!(compare.raw.iter().any(|step| step.round == 0));
}

#[test]
fn two_servers_are_compared_over_tls() {
    let Some(servers) = servers() else { return };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let json = json_file("tls");
    let child = start(servers, "audio:2:c2p,audio:2:p2c --transport tls12", &json);
    let output = child.wait_with_output().unwrap();
    if cannot(&output) {
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("over TLS 1.2 (ECDHE-ECDSA-AES128-GCM-SHA256, P-256)"), "{text}");

    let line = fs::read_to_string(&json).unwrap();
    fs::remove_file(&json).unwrap();
    let Outcome::Compare(compare) = serde_json::from_str(&line).unwrap() else {
        panic!("{line}");
    };
    assert_eq!(compare.transport, Transport::Tls12);
    assert_eq!(compare.failures, Vec::<String>::new());
    for cell in &compare.cells {
        let most = &cell.measures[0];
        assert_eq!(most.name, "throughput at ≤ 0.1 % loss");
        assert!(most.values.iter().flatten().flatten().all(|value| *value > 0.0), "{cell:?}");
        assert!(cell.measures.iter().any(|measure| measure.name == "server cores busy, at most"));
    }
}

#[test]
fn a_run_that_is_killed_leaves_nothing_behind() {
    let Some(servers) = servers() else { return };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let json = json_file("killed");
    let mut child = start(servers, "audio:2:c2p", &json);
    let run = child.id();
    let until = Instant::now() + Duration::from_secs(60);
    // Three namespaces, the directory, a server that was told of it.
    while left_of(run).len() < 5 {
        if child.try_wait().unwrap().is_some() {
            let output = child.wait_with_output().unwrap();
            assert!(cannot(&output), "{output:?}");
            return;
        }
        assert!(Instant::now() < until, "it did not start: {:?}", left_of(run));
        thread::sleep(Duration::from_millis(20));
    }
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while !left_of(run).is_empty() {
        assert!(Instant::now() < until, "{:?}", left_of(run));
        thread::sleep(Duration::from_millis(20));
    }
    assert!(!json.exists());
}
