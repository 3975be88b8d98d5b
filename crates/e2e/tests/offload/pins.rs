//! The maps have names in the BPF file system while the server runs, where there is one.

use std::fs;
use std::path::Path;

use turn_types::IpFamily::V4;

use super::Scene;

/// A server that alone sees a BPF file system with these options.
fn scene(options: &str) -> Option<Scene> {
    Scene::new("tc", |_, config| {
        let line = format!("mount -t bpf -o {options} bpf /sys/fs/bpf && exec \"$0\" \"$@\"");
        config.through = ["unshare", "--mount", "sh", "-c", &line].map(str::to_owned).to_vec();
    })
}

/// Entries of a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries =
        fs::read_dir(directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    let name = |entry: Result<fs::DirEntry, _>| entry.ok()?.file_name().into_string().ok();
    let mut names: Vec<_> = entries.filter_map(name).collect();
    names.sort();
    names
}

#[test]
fn maps_have_names_while_the_server_runs() {
    let Some(mut scene) = scene("rw") else { return };
    let process = scene.server.process.pid();
    // Held open, so that it can be looked into when the server and its mounts are gone.
    let own_root = Path::new("/proc").join(process.to_string()).join("root");
    let path = own_root.join("sys/fs/bpf/turnpike");
    let held = fs::File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let root = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&held));
    let root = Path::new(&root);
    let directories = names(root);
    let [own] = directories.as_slice() else { panic!("{directories:?}") };
    assert!(own.ends_with(&format!("-{process}")), "{own}");
    assert_eq!(
        names(&root.join(own)),
        ["buckets", "cells", "entries", "leases", "port_filter", "routes"]
    );
    assert!(scene.server.stop());
    assert_eq!(names(root), [""; 0]);
}

#[test]
fn where_names_cannot_be_given_the_kernel_relays_without() {
    let Some(scene) = scene("ro") else { return };
    scene.wait_for_kernel(&scene.call(V4, V4));
}
