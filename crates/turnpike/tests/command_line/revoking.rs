//! Tests of revoked users, credentials and secrets. Their sessions close on all workers, and later
//! requests are refused.

use std::process::{Child, Stdio};

use super::support::*;

/// Call of a demo with these credentials.
struct Demo(Child);

impl Demo {
    fn start(port: u16, user: &str, password: &str) -> Self {
        let uri = format!("turn:127.0.0.1:{port}");
        let demo = turnpike(&["demo", "--server", &uri, "--user", user, "--password", password])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(demo.unwrap())
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Server with shared secrets and two workers.
struct Scene {
    server: Server,
    port: u16,
    data: String,
    file: std::path::PathBuf,
    directory: Directory,
}

impl Scene {
    fn start() -> Self {
        let directory = Directory::new();
        let port = free_port();
        let file = directory.file("turnpike.toml", &Self::config(port, true));
        let data = path(&directory.0).to_owned();
        let server = Self::serve(&file, &data);
        Self { server, port, data, file, directory }
    }

    fn config(port: u16, has_second: bool) -> String {
        let second = "secrets = [{ name = \"app\", secret = \"south-of-the-wall\" }]\n";
        format!(
            "realm = \"test.example\"\nlisten = [\"127.0.0.1:{port}\"]\n[relay]\naddresses = [\"127.0.0.1\"]\n\
             [workers]\ncount = 2\npin = false\n[auth]\nsecret = \"north-of-the-wall\"\nlimits_in_names = true\n{}",
            if has_second { second } else { "" }
        )
    }

    fn serve(file: &std::path::Path, data: &str) -> Server {
        Server::start(turnpike(&["run", "--config", path(file), "--data", data]))
    }

    fn restart(&mut self) {
        self.server.signal("TERM");
        self.server.wait_for("stopped");
        assert!(self.server.process.wait().unwrap().success());
        self.server = Self::serve(&self.file, &self.data);
    }

    fn ask(&self, arguments: &[&str]) -> std::process::Output {
        run(&[arguments, &["--data", &self.data]].concat())
    }

    /// Starts a call with a user's credential from a secret.
    fn call(&self, user: &str, secret: &str) -> Demo {
        let made = run(&[
            "credentials",
            "--user",
            user,
            "--secret-name",
            secret,
            "--json",
            "--config",
            path(&self.file),
        ]);
        let made = json(&made);
        let text = |key: &str| made[key].as_str().unwrap().to_owned();
        Demo::start(self.port, &text("username"), &text("password"))
    }

    /// Starts a call, and waits until it is refused for this reason.
    fn is_refused(&self, user: &str, secret: &str, reason: &str) {
        let _demo = self.call(user, secret);
        eventually("the call is refused", || stdout(&self.ask(&["why", user])).contains(reason));
        assert_eq!(self.live(user), 0);
    }

    fn live(&self, user: &str) -> usize {
        let list = json(&self.ask(&["sessions", "--user", user, "--json"]));
        list["sessions"].as_array().unwrap().len()
    }

    fn wait_for_call(&self, user: &str) {
        eventually("the call is live", || self.live(user) == 2);
    }
}

#[test]
fn a_revoked_user_is_cut_off_until_restored() {
    let mut call = Call::through("[workers]\ncount = 2\npin = false\n");
    let said = stdout(&call.ask(&["user", "revoke", "bob"]));
    assert!(said.contains("user bob") && said.contains("2 sessions were ended"), "{said}");
    assert!(call.sessions().is_empty(), "at once");
    call.server.wait_for("revoked");
    // Another client uses the password, which the database still has.
    let listener = json(&call.ask(&["status", "--json"]))["listeners"][0].clone();
    let port = listener.as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap();
    let _demo = Demo::start(port, "bob", "of-bob-alone");
    eventually("it is refused", || {
        let why = stdout(&call.ask(&["why", "bob"]));
        why.contains("credential_revoked")
    });
    assert!(call.sessions().is_empty());
    let listed = json(&call.ask(&["user", "revoked", "--json"]));
    assert_eq!(listed["revocations"][0]["name"], "bob");
    assert!(listed["revocations"][0]["until_unix"].is_null());
    let restored = call.ask(&["user", "restore", "bob"]);
    assert!(stdout(&restored).contains("accepted again"), "{restored:?}");
    assert_eq!(stdout(&call.ask(&["user", "revoked"])), "nothing is revoked\n");
    let again = call.ask(&["user", "restore", "bob"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(&again).contains("is not revoked in realm"), "{again:?}");
}

#[test]
fn a_user_part_is_refused_over_a_restart() {
    let mut scene = Scene::start();
    let _alice = scene.call("alice", "default");
    scene.wait_for_call("alice");
    let said = json(&scene.ask(&["user", "revoke", "alice", "--for", "1 h", "--json"]));
    assert_eq!((&said["ended"], &said["kind"]), (&2.into(), &"name".into()));
    assert_eq!(scene.live("alice"), 0);
    scene.restart();
    scene.is_refused("alice", "default", "credential_revoked");
    let _bob = scene.call("bob", "default");
    scene.wait_for_call("bob");
    let elsewhere = scene.ask(&["user", "--realm", "elsewhere", "revoke", "bob"]);
    assert_eq!(elsewhere.status.code(), Some(1));
    assert!(stderr(&elsewhere).contains("this server has: test.example"), "{elsewhere:?}");
    assert_eq!(scene.live("bob"), 2);
}

/// Names that commands show are accepted by commands in every spelling.
#[test]
fn what_sessions_shows_can_be_revoked() {
    let scene = Scene::start();
    let _zoe = scene.call("zoe\u{308} k", "default");
    scene.wait_for_call("zo\u{eb} k");
    assert_eq!(scene.live("zoe\u{308}\u{a0}k"), 2);
    let shown = json(&scene.ask(&["sessions", "--json"]));
    let shown = shown["sessions"][0]["user"].as_str().unwrap().to_owned();
    assert!(stdout(&scene.ask(&["sessions"])).contains(&shown), "{shown}");
    let said = json(&scene.ask(&["user", "revoke", &shown, "--json"]));
    assert_eq!((&said["ended"], &said["name"]), (&2.into(), &shown.into()));
    let said = stdout(&scene.ask(&["user", "revoke", "zoe\\u{308}\\u{a0}k"]));
    assert!(said.contains("user zo\u{eb} k in realm test.example"), "{said}");
    assert!(scene.ask(&["user", "restore", "zoe\u{308} k"]).status.success());
}

/// The name may have the limits of an earlier credential.
#[test]
fn sessions_of_a_name_with_other_limits_are_ended_and_counted() {
    let scene = Scene::start();
    let _alice = scene.call("alice", "default");
    scene.wait_for_call("alice");
    let out = scene.ask(&["user", "revoke", "alice?lifetime=700", "--json"]);
    assert_eq!(json(&out)["ended"], 2, "{out:?}");
    assert!(!stderr(&out).contains("no session was ended"), "{out:?}");
    assert_eq!(scene.live("alice"), 0);
    // The later expiry applies.
    let again = scene.ask(&["user", "revoke", "alice?lifetime=700", "--for", "1 s"]);
    assert!(stdout(&again).contains("is refused until `turnpike user restore`"), "{again:?}");
}

#[test]
fn a_command_that_ends_nothing_says_what_it_looked_for() {
    let scene = Scene::start();
    let _alice = scene.call("alice", "default");
    scene.wait_for_call("alice");
    for (arguments, looked_for) in [
        (&["user", "revoke", "alise"][..], "name or account \"alise\" in realm test.example"),
        (&["user", "revoke", "zoe\u{308}"], "name or account \"zo\u{eb}\" in realm test.example"),
        (&["user", "revoke", "--secret", "app"], "the shared secret \"app\" in realm test.example"),
        (&["session", "end", "--user", "alise"], "name or account \"alise\""),
        (&["session", "end", "--client", "192.0.2.1"], "a client at 192.0.2.1"),
    ] {
        let out = scene.ask(arguments);
        assert!(out.status.success(), "{out:?}");
        let said = stderr(&out);
        assert!(said.starts_with("warning: no session was ended"), "{arguments:?}: {said}");
        assert!(said.contains(looked_for), "{arguments:?}: {said}");
        // The name may be that of a secret or of a key.
        let is_name = arguments[0] == "user" && arguments[2] != "--secret";
        assert_eq!(said.contains("`--token-key`"), is_name, "{arguments:?}: {said}");
    }
    assert_eq!(scene.live("alice"), 2);
}

#[test]
fn a_revoked_secret_ends_its_sessions_and_no_others() {
    let mut scene = Scene::start();
    let (_carol, _dave) = (scene.call("carol", "default"), scene.call("dave", "app"));
    scene.wait_for_call("carol");
    scene.wait_for_call("dave");
    let said = stdout(&scene.ask(&["user", "revoke", "--secret", "app"]));
    assert!(said.contains("secret app") && said.contains("2 sessions were ended"), "{said}");
    assert_eq!((scene.live("carol"), scene.live("dave")), (2, 0));
    // The configuration still has the secret. Neither a reload nor a restart restores it.
    assert!(scene.ask(&["reload"]).status.success());
    scene.is_refused("dave", "app", "wrong_secret");
    scene.restart();
    scene.is_refused("dave", "app", "wrong_secret");
    let unknown = scene.ask(&["user", "revoke", "--secret", "ap"]);
    assert!(stderr(&unknown).contains("in force there: default"), "{unknown:?}");
    assert!(scene.ask(&["user", "restore", "--secret", "app"]).status.success());
    let _dave = scene.call("dave", "app");
    scene.wait_for_call("dave");
}

#[test]
fn a_reload_ends_sessions_of_removed_secrets_on_request() {
    let scene = Scene::start();
    let (_carol, _dave) = (scene.call("carol", "default"), scene.call("dave", "app"));
    scene.wait_for_call("carol");
    scene.wait_for_call("dave");
    scene.directory.file("turnpike.toml", &Scene::config(scene.port, false));
    assert!(stdout(&scene.ask(&["reload"])).contains("auth.secrets"));
    assert_eq!(scene.live("dave"), 2, "calls go on");
    let said = stdout(&scene.ask(&["reload", "--end-sessions"]));
    assert!(said.contains("counts no longer: 2"), "{said}");
    assert_eq!((scene.live("carol"), scene.live("dave")), (2, 0));
}

#[test]
fn a_deleted_user_is_cut_off_on_request() {
    let call = Call::through("");
    let deleted = call.ask(&["user", "delete", "bob", "--end-sessions"]);
    assert!(stderr(&deleted).contains("2 sessions were ended"), "{deleted:?}");
    assert!(call.sessions().is_empty());
}

/// The server would accept earlier keys if the database failed now.
#[test]
fn a_running_server_is_told_of_changed_users() {
    let mut scene = Scene::start();
    let config = path(&scene.file).to_owned();
    for change in [
        &["add", "ann"][..],
        &["add", "ann", "--replace"],
        &["password", "ann"],
        &["set", "ann", "--allocations-max", "3"],
        &["delete", "ann"],
    ] {
        let changed = scene.ask(&[&["user"], change, &["--config", &config]].concat());
        assert!(changed.status.success(), "{changed:?}");
        scene.server.wait_for("users were changed");
    }
    scene.server.signal("TERM");
    scene.server.wait_for("stopped");
    assert!(scene.server.process.wait().unwrap().success());
    let added = scene.ask(&["user", "add", "ann", "--config", &config]);
    assert!(added.status.success() && !stderr(&added).contains("warning"), "{added:?}");
}
