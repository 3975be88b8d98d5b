//! The tables of options, commands and names have all that an installed coturn prints of itself,
//! and all names of newer versions that `fixtures/names-of-4.17.txt` lists.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use coturn_config::{OPTIONS, inventory};

/// All that a program of coturn prints as its help; `None`, and a counted skip, if it is not
/// installed.
fn help(program: &str) -> Option<String> {
    let installed = Command::new(program).arg("-h").output();
    let reason = |error| format!("{program} is not installed: {error} (Debian package coturn)");
    let help = test_support::require(installed.map_err(reason))?;
    Some(String::from_utf8_lossy(&[help.stdout, help.stderr].concat()).into_owned())
}

/// Long options in a help.
fn options(help: &str) -> Vec<&str> {
    let words = help.split_whitespace().filter_map(|word| word.strip_prefix("--"));
    let end = |name: &str| name.find(|c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c));
    words.map(|name| &name[..end(name).unwrap_or(name.len())]).collect()
}

#[test]
fn every_option_of_an_installed_coturn_has_a_row() {
    let Some(help) = help("turnserver") else { return };
    let mut count = 0;
    for name in options(&help) {
        // A slip of the help, and what prints and ends.
        if matches!(name, "" | "no_dtls" | "version" | "help") {
            continue;
        }
        count += 1;
        assert!(OPTIONS.iter().any(|option| option.name == name), "{name}");
    }
    assert!(count > 90, "{count} options in\n{help}");
}

#[test]
fn every_command_and_option_of_an_installed_turnadmin_has_a_row() {
    let Some(help) = help("turnadmin") else { return };
    let mut count = 0;
    for line in help.lines().map(str::trim_start).filter(|line| line.starts_with('-')) {
        for word in line
            .split([' ', '\t', ',', '='])
            .take_while(|word| word.is_empty() || word.starts_with('-'))
        {
            if !word.is_empty() {
                count += 1;
                assert!(inventory::TURNADMIN.has(word), "{word}\n{line}");
            }
        }
    }
    assert!(count > 50, "{count} names in\n{help}");
}

/// A running coturn, ended with the value.
struct Coturn(Child);

impl Drop for Coturn {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Ports that were free just now.
fn ports() -> [u16; 2] {
    let bound = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    bound.map(|socket| socket.local_addr().unwrap().port())
}

/// The console's answer to `?`.
fn console(port: u16) -> Option<String> {
    let mut console = TcpStream::connect(("127.0.0.1", port)).ok()?;
    console.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut text = String::new();
    let mut buffer = [0; 4096];
    for line in ["", "x\r\n", "?\r\n"] {
        console.write_all(line.as_bytes()).ok()?;
        for _ in 0..20 {
            match console.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => text.push_str(&String::from_utf8_lossy(&buffer[..length])),
                Err(_) if text.contains("cancel session") || line != "?\r\n" => break,
                Err(_) => {}
            }
        }
    }
    text.contains("cancel session").then_some(text)
}

#[test]
fn every_command_of_an_installed_coturns_console_has_a_row() {
    let [port, listening] = ports();
    let directory = std::env::temp_dir().join(format!("coturn-console-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let coturn = Command::new("turnserver")
        .args(["-n", "--cli-ip=127.0.0.1", "--cli-password=x", "--listening-ip=127.0.0.1"])
        .args(["--no-tls", "--no-dtls", "--log-file=stdout"])
        .arg(format!("--cli-port={port}"))
        .arg(format!("--listening-port={listening}"))
        .arg(format!("--pidfile={}", directory.join("pid").display()))
        .arg(format!("--userdb={}", directory.join("turndb").display()))
        .current_dir(&directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let reason = |error| format!("turnserver is not installed: {error} (Debian package coturn)");
    let Some(coturn) = test_support::require(coturn.map_err(reason)) else { return };
    let coturn = Coturn(coturn);
    let answer = (0..50).find_map(|_| {
        std::thread::sleep(Duration::from_millis(200));
        console(port)
    });
    drop(coturn);
    drop(std::fs::remove_dir_all(&directory));
    let answer = answer.expect("an answer of the console");
    let mut count = 0;
    for line in answer.lines().filter_map(|line| line.strip_prefix("  ")) {
        let Some((names, _)) = line.split_once('-').filter(|_| !line.starts_with(' ')) else {
            continue;
        };
        for name in names.split(',') {
            let name = name.split([' ', '[']).find(|word| !word.is_empty()).unwrap_or_default();
            count += 1;
            assert!(inventory::CONSOLE.has(name), "{name}\n{line}");
        }
    }
    // "tc" and "cc" have their dash behind two words, like the others.
    assert!(count >= 24, "{count} commands in\n{answer}");
}

#[test]
fn every_name_of_the_newest_version_has_a_row() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/names-of-4.17.txt");
    let text = std::fs::read_to_string(fixture).unwrap();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (part, name) = line.split_once(' ').unwrap();
        let known = match part {
            "option" => OPTIONS.iter().any(|option| option.name == name),
            "turnadmin" => inventory::TURNADMIN.has(name),
            "console" => inventory::CONSOLE.has(name),
            "metric" => inventory::METRICS.has(name),
            "redis" => inventory::REDIS.has(name),
            "web" => inventory::WEB.has(name),
            _ => panic!("{line}"),
        };
        assert!(known, "{line}");
    }
}

#[test]
fn every_name_has_one_row() {
    for part in inventory::PARTS {
        let names: Vec<_> = part.items.iter().flat_map(|item| item.names.split("; ")).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{}: {name}", part.title);
        }
    }
}
