//! The container image: built by buildah from its build file and the server that Cargo has built,
//! and run as its user.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use e2e::{
    Account, Caller, Host, Lab, Running, Tool, binary, debian_packed, repository, require, skip,
};
use turn_types::IpFamily;

const PATIENCE: Duration = Duration::from_secs(300);

/// Images and containers of this test, in a directory of its own.
struct Store(PathBuf);

impl Store {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("tp{}-container", std::process::id()));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(path.join("context/dist")).expect("a directory");
        Self(path)
    }

    /// Arguments of every command.
    fn options(&self) -> Vec<String> {
        let at = |name: &str| self.0.join(name).display().to_string();
        vec![
            "--storage-driver".into(),
            "vfs".into(),
            "--root".into(),
            at("root"),
            "--runroot".into(),
            at("run"),
        ]
    }

    fn buildah(&self, arguments: &[&str]) -> Result<String, String> {
        let out = Tool::run(Command::new("buildah").args(self.options()).args(arguments), PATIENCE);
        if out.ok {
            Ok(out.output.trim().to_owned())
        } else {
            Err(format!("{arguments:?}: {}", out.output))
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        drop(self.buildah(&["rm", "--all"]));
        drop(self.buildah(&["rmi", "--all", "--force"]));
        drop(fs::remove_dir_all(&self.0));
    }
}

/// The stage that builds needs Debian alone here: the server is built already.
fn builder(store: &Store) -> Result<(), String> {
    let packed = debian_packed()?;
    let container = store.buildah(&["from", "scratch"])?;
    store.buildah(&["add", "-q", &container, &packed.display().to_string(), "/"])?;
    store.buildah(&["commit", "-q", "--rm", &container, "localhost/builder"]).map(drop)
}

#[test]
fn the_image_has_the_server_alone_and_relays() {
    if Command::new("buildah").arg("--version").output().is_err() {
        return skip("buildah is not installed");
    }
    let Some(lab) = require(Lab::new()) else { return };
    let store = Store::new();
    if require(builder(&store)).is_none() {
        return;
    }
    let context = store.0.join("context");
    let run = |command: &mut Command| assert!(Tool::run(command, PATIENCE).ok, "{command:?}");
    run(Command::new("strip")
        .arg("--strip-debug")
        .arg("-o")
        .arg(context.join("turnpike"))
        .arg(binary()));
    run(Command::new("cp")
        .arg("-r")
        .arg(repository().join("dist/container"))
        .arg(context.join("dist")));
    let build = ["bud", "--isolation", "chroot", "--build-arg", "BUILDER=localhost/builder"];
    let file = context.join("dist/container/Containerfile").display().to_string();
    let from = [
        "--build-arg",
        "BINARY=turnpike",
        "-f",
        &file,
        "-t",
        "turnpike",
        &context.display().to_string(),
    ];
    store.buildah(&[&build[..], &from].concat()).expect("an image");

    let container = store.buildah(&["from", "localhost/turnpike"]).expect("a container");
    let root = PathBuf::from(store.buildah(&["mount", &container]).expect("its root"));
    for absent in ["bin/sh", "usr/bin/sh", "usr/bin/apt", "usr/bin/dpkg"] {
        assert!(!root.join(absent).exists(), "{absent}");
    }
    let user = store.buildah(&["inspect", "--format", "{{.OCIv1.Config.User}}", &container]);
    assert_eq!(user.expect("a user"), "65532:65532");

    let server = |arguments: &[&str]| {
        let mut command = lab.command(Host::Server, "buildah");
        command.args(store.options()).args(["run", "--isolation", "chroot"]);
        for variable in [
            format!("TURNPIKE_LISTEN={}:3478", lab.v4.listen),
            format!("TURNPIKE_RELAY__ADDRESSES={}", lab.v4.relay),
        ] {
            command.args(["--env", &variable]);
        }
        command.args([&container, "--", "/usr/bin/turnpike"]).args(arguments);
        command
    };
    let account = Account { name: "alice", password: "correct-horse-battery" };
    let add = ["user", "add", account.name, "--password", account.password];
    let added = Tool::run(&mut server(&add), PATIENCE);
    assert!(added.ok, "{}", added.output);
    let mut process = Running::start(&mut server(&["run"]));
    process.wait_for("INFO ready", PATIENCE);
    let socket = lab.socket(Host::Client, (lab.v4.client, 0));
    let mut caller = Caller::allocate(socket, (lab.v4.listen, 3478).into(), account, IpFamily::V4);
    assert_eq!(caller.relayed().ip(), lab.v4.relay);
    let status = Tool::run(&mut server(&["status"]), PATIENCE);
    assert!(status.output.contains("1 allocation is live"), "{}", status.output);
    caller.release();
    let drained = Tool::run(&mut server(&["drain", "--wait"]), PATIENCE);
    assert!(drained.ok, "{}", drained.output);
    assert!(process.wait(PATIENCE), "{}", process.output());
}
