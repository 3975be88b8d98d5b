use super::super::devices;
use super::super::testing::{Namespace, may_load, namespace, succeeds};
use super::*;
use crate::bpf::object::{TAP, TC};
use crate::options::{Options, Proof};
use crate::path::KernelPath;

/// Attaches a server's programs to `v0` by filters, as before Linux 6.6. With `marked`, the handles
/// contain the presence mark.
fn path_on_v0(host: &Namespace, marked: bool) -> KernelPath {
    host.run(|| {
        let options = Options { flows: 1024, look_up_from: 1, proof: Proof::NOT_REQUIRED };
        let mut path = KernelPath::make(options).unwrap();
        if !marked {
            path.drop_mark();
        }
        path.attach_filter("v0").unwrap();
        path.tap_by_filter("v0").unwrap();
        path
    })
}

fn swept(host: &Namespace) -> Vec<String> {
    host.run(|| sweep(&devices().unwrap(), [TC, TAP]).unwrap())
}

/// Counts the filters that run the relay's programs on `v0`, at ingress and at egress.
fn filters(host: &Namespace) -> [usize; 2] {
    ["ingress", "egress"].map(|place| {
        host.run(|| {
            let shown = std::process::Command::new("tc")
                .args(["filter", "show", "dev", "v0", place])
                .output()
                .unwrap();
            String::from_utf8_lossy(&shown.stdout).matches("direct-action").count()
        })
    })
}

#[test]
fn programs_of_killed_servers_go_and_those_of_others_stay() {
    let Some(host) = namespace() else { return };
    if !may_load() {
        return;
    }
    host.ip("link add v0 type veth peer name v1
        link set v0 up");
    if !host.run(|| succeeds("tc", "qdisc add dev v0 clsact")) {
        return test_support::skip("this kernel has no clsact");
    }
    // The filter of another program has another kind of handle, although the program's name is
    // equal.
    let other = path_on_v0(&host, false);
    let mut killed = path_on_v0(&host, true);
    let living = path_on_v0(&host, true);
    assert_eq!(filters(&host), [3, 3]);
    assert_eq!(swept(&host), [""; 0], "all live");
    killed.drop_mark();
    // A program that another test starts at this moment has copies of the marks until the program
    // runs. It may hold the mark of only one of the two filters.
    let mut found = Vec::new();
    test_support::eventually("the living one's stays, and somebody else's", || {
        found.extend(swept(&host));
        filters(&host) == [2, 2]
    });
    assert!(found.iter().all(|name| name == "v0") && !found.is_empty(), "{found:?}");
    assert_eq!(swept(&host), [""; 0], "nothing else goes");
    assert_eq!(filters(&host), [2, 2]);
    // Dropped in the namespace of the devices, as by servers.
    host.run(|| drop((other, living)));
    assert_eq!(filters(&host), [0, 0]);
}

#[test]
fn a_truncated_answer_is_no_filter() {
    let mut answer = vec![0; FILTER_HEADER];
    answer[8..12].copy_from_slice(&0x5450_0001_u32.to_ne_bytes());
    let attribute = |kind: u16, value: &[u8]| {
        let mut bytes = (value.len() as u16 + 4).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    answer.extend(attribute(TCA_KIND, b"bpf\0"));
    answer.extend(attribute(TCA_OPTIONS, &attribute(TCA_BPF_NAME, b"relay_tc\0")));
    assert_eq!(read_filter(&answer, "relay_tc").unwrap().handle, 0x5450_0001);
    assert!(read_filter(&answer, "another").is_none());
    for len in 0..answer.len() {
        assert!(read_filter(&answer[..len], "relay_tc").is_none(), "{len}");
    }
}
