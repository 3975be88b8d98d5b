//! Configurations of the wild, in the shape of their public documentation: each import gives a
//! valid configuration with the settings it should have, and `docs/migrate/installations.md` lists
//! all that is not taken, and why.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use coturn_config::{
    CommandLine, ConfigurationFile, INSTALLATIONS, Import, Variables, command_line,
    installations_markdown, left_out,
};
use settings::{Environment, Settings};

/// Number of the next directory: tests run at the same time.
static NEXT: AtomicU32 = AtomicU32::new(0);

struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("coturn-installations-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    fs::read_to_string(path).unwrap()
}

/// The import of a fixture, and the settings that a server would have.
fn imported(name: &str) -> (Import, Settings) {
    let directory = Directory::new();
    let import = coturn_config::import_any(&fixture(name), &directory.0).unwrap();
    for (path, secret) in &import.secrets {
        fs::write(path, secret).unwrap();
    }
    let file = directory.0.join("turnpike.toml");
    let settings = settings::parse(&file, &import.toml, &Environment::empty());
    let settings = settings.unwrap_or_else(|errors| panic!("{name}: {errors}\n{}", import.toml));
    (import, settings)
}

/// Names of the options that are not taken.
fn names(import: &Import) -> Vec<&str> {
    left_out(import).into_iter().map(|(name, _)| name).collect()
}

fn listen(settings: &Settings) -> Vec<String> {
    settings.listen().map(|at| at.to_string()).collect()
}

fn denied(settings: &Settings) -> Vec<String> {
    settings.peers.deny.iter().map(|prefix| prefix.0.to_string()).collect()
}

/// `cargo xtask docs` writes the page.
#[test]
fn the_page_says_of_each_installation_what_is_not_taken() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../docs/migrate/installations.md")).unwrap();
    let made = installations_markdown(&root.join("tests/fixtures")).unwrap();
    assert_eq!(page, made, "run cargo xtask docs");
}

/// Each key that an import writes is one of Turnpike, and no secret is in the file or the account.
#[test]
fn no_secret_is_shown() {
    let mut looked_for = 0;
    for (_, name) in INSTALLATIONS {
        let (import, _) = imported(name);
        for (_, secret) in &import.secrets {
            // Of the URL of a database, its password.
            let secret = std::str::from_utf8(secret).unwrap();
            let secret = secret.trim().split('@').next().unwrap().rsplit(':').next().unwrap();
            assert!(!import.toml.contains(secret) && secret.len() > 8, "{name}: {secret}");
            assert!(import.lines.iter().all(|line| !line.text.contains(secret)), "{name}");
            looked_for += 1;
        }
    }
    assert_eq!(looked_for, 10);
}

#[test]
fn a_relay_of_an_overlay_network() {
    let (import, settings) = imported("netbird.conf");
    assert_eq!(names(&import), [""; 0]);
    assert_eq!(&*settings.realm, "netbird.example.org");
    assert_eq!(import.users.len(), 1);
    assert_eq!(import.users[0].name, "self");
    assert!(settings.auth.users && settings.relay.enabled && settings.udp.enabled);
    assert_eq!(settings.certificates().len(), 1);
    assert_eq!(settings.relay.ports.to_string(), "49152-65535");
    assert!(import.toml.contains("external = \"203.0.113.40\""));
}

#[test]
fn a_relay_beside_a_mail_server() {
    let (_, settings) = imported("mailcow.conf");
    assert_eq!(listen(&settings), ["198.51.100.60:3478", "[2001:db8:60::1]:3478"]);
    assert_eq!(settings.tls_listen.len(), 2);
    assert_eq!((settings.secrets.len(), settings.auth.users), (1, false));
    assert_eq!(settings.quotas.allocations_total.get(), 100);
}

#[test]
fn a_relay_of_a_media_server() {
    let (import, settings) = imported("livekit-element.conf");
    assert_eq!(names(&import), [""; 0]);
    assert_eq!(settings.relay.ports.to_string(), "49152-49172");
    assert_eq!(listen(&settings), ["203.0.113.70:3478"]);
    let denied = denied(&settings);
    assert!(denied.contains(&"10.0.0.0/8".to_owned()), "{denied:?}");
    assert!(denied.contains(&"192.168.0.0/16".to_owned()), "the allowed peer has a longer prefix");
    assert_eq!(settings.peers.allow.len(), 1);
    assert!(!settings.tcp.relaying);
    assert_eq!(settings.quotas.allocations_per_user.get(), 12);
}

#[test]
fn options_of_a_compose_file() {
    let (import, settings) = imported("image-coturn.yml");
    assert_eq!(names(&import), ["external-ip"]);
    assert_eq!(&*settings.realm, "turn.example.org");
    assert_eq!(settings.relay.ports.to_string(), "49160-49200");
    assert_eq!(import.users.len(), 1);
    assert_eq!(import.users[0].key, coturn_config::UserKey::Password("some#where else".to_owned()));
    assert!(settings.relay.external.is_none(), "an address that the image looks for");
}

#[test]
fn options_of_a_container_by_a_command() {
    let (import, settings) = imported("image-instrumentisto.sh");
    assert_eq!(names(&import), [""; 0]);
    assert_eq!(settings.relay.ports.to_string(), "10200-49200");
    assert_eq!(listen(&settings), ["10.9.0.4:3478"]);
    assert!(import.toml.contains("{ local = \"10.9.0.4\", public = \"203.0.113.90\" }"));
    assert_eq!((settings.secrets.len(), settings.auth.users), (1, false));
}

#[test]
fn databases_of_images() {
    let (_, settings) = imported("image-kolab.conf");
    assert_eq!(settings.user_database().to_string(), "redis://10.8.0.2/2");
    assert_eq!(settings.relay.ports.to_string(), "40000-65535");
    let (import, settings) = imported("coturn-compose.conf");
    assert_eq!(settings.user_database().to_string(), "postgresql://postgresql/coturn");
    assert!(settings.mobility);
    assert!(listen(&settings).contains(&"198.51.100.80:80".to_owned()));
    assert!(!names(&import).contains(&"redis-statsdb"));
    assert_eq!(settings.statistics().unwrap().expose(), "redis://:CHANGE_ME@redis/0");
}

/// Without a user or a secret coturn relays for everyone; here nobody may.
#[test]
fn the_sample_file_is_no_open_relay_here() {
    let (import, settings) = imported("coturn-sample.conf");
    assert_eq!(names(&import), [""; 0]);
    assert!(!settings.auth.open_relay.is_open());
    assert!(import.notes.iter().any(|note| note.contains("relays for everyone")));
}

#[test]
fn a_drop_in_replaces_the_command_of_a_unit() {
    let line = command_line(&fixture("unit.service"), &Variables::new()).unwrap().unwrap();
    assert_eq!(line.configuration, ConfigurationFile::Named("/etc/turn/own.conf".to_owned()));
    assert!(!line.is_container);
    let (_, settings) = imported("unit.service");
    assert_eq!(settings.relay.ports.to_string(), "50000-51000");
    assert_eq!(&*settings.realm, "unit.example.org");
}

fn words(text: &str) -> Result<CommandLine, String> {
    command_line(text, &Variables::new()).expect("a command line")
}

#[test]
fn commands_have_all_of_their_forms() {
    let compose = |command: &str| {
        format!("services:\n  a:\n    image: coturn/coturn\n{command}    restart: always\n")
    };
    let expected = ["-n", "--realm=a b", "--min-port", "1"];
    for command in [
        "    command: [\"-n\", '--realm=a b', --min-port, \"1\"]\n",
        "    command: [\n      \"-n\", \"--realm=a b\",\n      \"--min-port\", \"1\"\n    ]\n",
        "    command: -n '--realm=a b' --min-port 1 # all\n",
        "    command: >-\n      turnserver -n\n      \"--realm=a b\"\n      --min-port 1\n",
        "    command: |\n      -n --realm='a b' \\\n      --min-port 1\n",
        "    command:\n    - turnserver\n    - -n\n    - --realm=a b\n    - --min-port\n    - \"1\"\n",
    ] {
        assert_eq!(words(&compose(command)).unwrap().words, expected, "{command}");
    }
    for command in [
        "sudo docker run -itd --name x -p 3478:3478 coturn/coturn -n '--realm=a b' --min-port 1",
        "podman run --rm --net=host -v a:/b quay.io/x turnserver -n --realm=a\\ b --min-port 1",
        "/usr/bin/turnserver -n --realm=\"a b\" \\\n --min-port 1",
        "[Service]\nExecStart=/usr/bin/turnserver -n \"--realm=a b\" --min-port 1\n",
    ] {
        assert_eq!(words(command).unwrap().words, expected, "{command}");
    }
}

#[test]
fn a_configuration_that_is_mounted_is_one_of_the_host() {
    let text = "services:\n  a:\n    image: coturn/coturn\n    volumes:\n      - ./own.conf:/etc/coturn/turnserver.conf:ro\n";
    let named = ConfigurationFile::Named("./own.conf".to_owned());
    assert_eq!(words(text).unwrap().configuration, named);
    let run = "docker run -v ./own.conf:/x.conf coturn/coturn -c /x.conf";
    assert_eq!(words(run).unwrap().configuration, named);
    assert_eq!(
        words("docker run coturn/coturn -v").unwrap().configuration,
        ConfigurationFile::None
    );
    let error = words("docker run coturn/coturn -c /x.conf").unwrap_err();
    assert!(error.contains("/x.conf is a file of the container"), "{error}");
}

/// A value that is elsewhere is an error, and never taken as it is written.
#[test]
fn values_from_elsewhere_are_errors() {
    for (text, expected) in [
        ("turnserver -n -r $REALM", "$REALM"),
        ("turnserver -n -r $(hostname)", "runs a command"),
        ("[Service]\nExecStart=/usr/bin/turnserver $EXTRA_OPTIONS", "$EXTRA_OPTIONS"),
        ("[Service]\nExecStart=/usr/bin/other", "not turnserver"),
        ("services:\n  a:\n    image: nginx\n", "no service"),
        ("docker run -d", "no image"),
        ("turnserver 'x", "not closed"),
    ] {
        let error = words(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
    assert_eq!(words("turnserver -r ${REALM:-a.example}").unwrap().words, ["-r", "a.example"]);
    assert_eq!(words("turnserver -u a:b$$c").unwrap().words, ["-u", "a:b$c"]);
    assert!(command_line("realm=x\nlistening-port=3478\n", &Variables::new()).is_none());
}

/// A command in text of which nothing else is known.
#[test]
fn a_command_is_found_in_scripts_and_images() {
    let words = |text: &str| command_line(text, &Variables::new()).unwrap().unwrap().words;
    let script = "#!/bin/sh\nset -e\n# turnserver -r wrong\nREALM=a.example\nif true; then\n  exec /usr/bin/turnserver -n --realm=$REALM \\\n    --user 'a:b c' > /dev/null 2>&1 &\nfi\n";
    assert_eq!(words(script), ["-n", "--realm=a.example", "--user", "a:b c"]);
    let started = "mkdir -p /x && sudo nohup turnserver -a -o; echo done\n";
    assert_eq!(words(started), ["-a", "-o"]);
    let task = "- name: relay\n  ansible.builtin.command: turnserver -c /etc/turnserver.conf -o\n";
    assert_eq!(words(task), ["-c", "/etc/turnserver.conf", "-o"]);
    let image = "FROM debian:12\nRUN apt-get install -y coturn\nENV REALM=a.example\nENTRYPOINT [\"/usr/bin/turnserver\"]\nCMD [\"-n\", \"--realm=${REALM}\"]\n";
    assert_eq!(words(image), ["-n", "--realm=a.example"]);
    let theirs = "FROM coturn/coturn:4.6\nCOPY my.conf /etc/coturn/turnserver.conf\nCMD [\"-c\", \"/etc/coturn/turnserver.conf\"]\n";
    let line = command_line(theirs, &Variables::new()).unwrap().unwrap();
    assert_eq!(line.configuration, ConfigurationFile::Named("my.conf".to_owned()));
    let pod = "spec:\n  containers:\n  - image: coturn/coturn\n    command: [\"turnserver\"]\n    args:\n    - -n\n    - --realm=a.example\n";
    assert_eq!(words(pod), ["-n", "--realm=a.example"]);
    let run = "podman pull coturn/coturn\npodman run -d --net host coturn/coturn -n -r a.example\n";
    assert_eq!(words(run), ["-n", "-r", "a.example"]);
    for configuration in ["realm=a\nproc-user turnserver\n", "# turnserver -n\nverbose\n", ""] {
        assert!(command_line(configuration, &Variables::new()).is_none(), "{configuration}");
    }
}

#[test]
fn variables_are_used_and_missed_ones_named_with_their_line() {
    let text = "services:\n  turn:\n    image: coturn/coturn\n    command: -n --realm=${REALM} -u $USER_AND_KEY\n";
    let known = Variables::from([("REALM".to_owned(), "a.example".to_owned())]);
    let error = command_line(text, &known).unwrap().unwrap_err();
    assert!(error.starts_with("line 4: the value of $USER_AND_KEY"), "{error}");
    let mut known = known;
    known.insert("USER_AND_KEY".to_owned(), "a:b".to_owned());
    let line = command_line(text, &known).unwrap().unwrap();
    assert_eq!(line.words, ["-n", "--realm=a.example", "-u", "a:b"]);
}

/// The output of a command is an unknown value.
#[test]
fn variables_have_the_values_of_variables() {
    let words = |text: &str| command_line(text, &Variables::new()).unwrap();
    let script = "A=a.example\nB=$A\nC='$A'\nturnserver -n -r $B\n";
    assert_eq!(words(script).unwrap().words, ["-n", "-r", "a.example"]);
    for value in ["$(hostname -d)", "`hostname -d`", "$OTHER"] {
        let error = words(&format!("A={value}\nturnserver -n -r $A\n")).unwrap_err();
        assert!(error.contains("the value of $A is elsewhere"), "{value}: {error}");
    }
    let run = "A=a.example\ndocker run -e B=$A coturn/coturn -n -r $B\n";
    assert_eq!(words(run).unwrap().words, ["-n", "-r", "a.example"]);
    let image =
        "FROM coturn/coturn\nENV A=a.example B=\"x y\"\nENV C $A\nCMD turnserver -n -r $C -u $B\n";
    assert_eq!(words(image).unwrap().words, ["-n", "-r", "a.example", "-u", "x y"]);
    let compose = "services:\n  a:\n    image: coturn/coturn\n    environment:\n      A: ${B:-b.example}\n    command: -n -r ${A}\n";
    assert_eq!(words(compose).unwrap().words, ["-n", "-r", "b.example"]);
    // The start script of the image adds an option.
    let detects = compose.replace("A: ${B:-b.example}", "DETECT_EXTERNAL_IP: \"yes\"\n      A: b");
    assert_eq!(
        words(&detects).unwrap().words,
        ["-n", "-r", "b", "--external-ip=$(detect-external-ip)"]
    );
    let pod = "containers:\n- image: coturn/coturn\n  env:\n  - name: A\n    value: a$b\n  args: [\"-n\", \"-u=$(A)\"]\n";
    assert_eq!(words(pod).unwrap().words, ["-n", "-u=a$b"]);
}
