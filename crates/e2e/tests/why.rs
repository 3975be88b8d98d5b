//! Explanations of refusals, and the log of one client in detail.

use std::time::Duration;

use e2e::{Config, Host, Lab, Server, Tool, coturn, require};

const PATIENCE: Duration = Duration::from_secs(30);

/// A server, and coturn's client as `alice`.
struct Scene {
    lab: Lab,
    server: Server,
}

impl Scene {
    fn new(change: impl FnOnce(&mut Config)) -> Option<Self> {
        require(coturn())?;
        let lab = require(Lab::new())?;
        let mut config = Config::for_lab(&lab);
        change(&mut config);
        let server = Server::start(&lab, &config);
        Some(Self { lab, server })
    }

    /// Lets the client name a peer, of which no packet comes back.
    fn call(&self, peer: &str) -> Tool {
        let mut command = self.lab.command(Host::Client, "turnutils_uclient");
        command.args(["-u", "alice", "-w", "correct-horse-battery", "-e", peer, "-r", "3480"]);
        command.args(["-c", "-n", "1", "-m", "1", &self.lab.v4.listen.to_string()]);
        // It waits for echoes that do not come.
        Tool::run(&mut command, Duration::from_secs(4))
    }

    fn ask(&self, arguments: &[&str]) -> String {
        let answer = self.server.ask(arguments);
        assert!(answer.ok, "{arguments:?}: {}", answer.output);
        answer.output
    }
}

#[test]
fn a_denied_peer_is_explained_with_the_line_of_its_rule() {
    let deny = |config: &mut Config| config.deny = vec!["10.77.2.0/24".to_owned()];
    let Some(mut scene) = Scene::new(deny) else { return };
    let refused = scene.call("10.77.2.9");
    assert!(refused.output.contains("403"), "{}", refused.output);
    let text = scene.ask(&["why", "alice"]);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("`peers.deny` has it: \"10.77.2.0/24\" at "), "{text}");
    let json = scene.server.json(&["why", "alice"]);
    let place = json["refusals"][0]["rule_at"].as_str().unwrap_or_default().to_owned();
    let (file, line) = place.rsplit_once(':').expect("a file and a line");
    let config = std::fs::read_to_string(file).expect("the configuration");
    let line = config.lines().nth(line.parse::<usize>().expect("a line") - 1);
    assert_eq!(line, Some("deny = [\"10.77.2.0/24\"]"), "{place}");
    scene.server.process.wait_for(&place, PATIENCE);
}

#[test]
fn one_client_is_logged_in_detail_while_it_is_asked_for() {
    let Some(mut scene) = Scene::new(|_| ()) else { return };
    let peer = scene.lab.v4.peer.to_string();
    let detailed = |scene: &Scene| scene.server.process.output().matches("DEBUG").count();
    let others = scene.ask(&["log-level", "debug", "--client", "192.0.2.1"]);
    assert!(others.starts_with("clients at 192.0.2.1/32: logged in detail for "), "{others}");
    let _: Tool = scene.call(&peer);
    assert_eq!(detailed(&scene), 0, "{}", scene.server.process.output());

    let of = ["--client", "10.77.1.0/24", "--for", "1 min"];
    let both = scene.ask(&[&["log-level", "debug"], &of[..]].concat());
    assert!(both.contains("clients at 10.77.1.0/24"), "{both}");
    let _: Tool = scene.call(&peer);
    // The first step of the login, too, which no other level shows.
    scene.server.process.wait_for("no_credentials", PATIENCE);
    scene.server.process.wait_for("allocation made", PATIENCE);

    let none = scene.ask(&["log-level", "configured"]);
    assert!(none.contains("configured level"), "{none}");
    let before = detailed(&scene);
    let _: Tool = scene.call(&peer);
    assert_eq!(detailed(&scene), before, "{}", scene.server.process.output());
    let misplaced = scene.server.ask(&["log-level", "--user", "alice"]);
    assert!(!misplaced.ok && misplaced.output.contains("log-level debug"), "{}", misplaced.output);
}

#[test]
fn a_log_of_pseudonyms_names_no_client() {
    let log = "[log]\nlevel = \"debug\"\naddresses = \"pseudonym\"\n";
    let Some(mut scene) = Scene::new(|config| config.tables = log.to_owned()) else { return };
    let _: Tool = scene.call(&scene.lab.v4.peer.to_string());
    let _: Tool = scene.call("10.77.2.9");
    scene.server.process.wait_for("peer_forbidden", PATIENCE);
    scene.server.process.wait_for("allocation made", PATIENCE);
    let output = scene.server.process.output();
    for address in [scene.lab.v4.client.to_string(), "10.77.2.9".to_owned()] {
        assert!(!output.contains(&address), "{address}:\n{output}");
    }
    assert!(output.contains("client=~"), "{output}");
}
