//! The filter for fail2ban, with its own program, on lines of a real server.

use std::process::Command;
use std::time::Duration;

use e2e::{Config, Host, Lab, Server, Tool, coturn, repository, require};

const PATIENCE: Duration = Duration::from_secs(60);

/// The addresses that the filter finds in a log, installed beside those of fail2ban.
fn found(log: &str) -> Vec<String> {
    let directory = std::env::temp_dir().join(format!("turnpike-fail2ban-{}", std::process::id()));
    let filters = directory.join("filter.d");
    std::fs::create_dir_all(&filters).expect("a directory");
    let ours = repository().join("dist/fail2ban/filter.d/turnpike.conf");
    std::fs::copy(ours, filters.join("turnpike.conf")).expect("the filter");
    std::fs::copy("/etc/fail2ban/filter.d/common.conf", filters.join("common.conf"))
        .expect("fail2ban's");
    let file = directory.join("log");
    // fail2ban leaves a line out until its end is written.
    std::fs::write(&file, format!("{log}\n")).expect("a log");
    let mut command = Command::new("fail2ban-regex");
    command.args(["--out", "ip"]).arg(&file).arg(filters.join("turnpike.conf"));
    let out = Tool::run(&mut command, PATIENCE);
    drop(std::fs::remove_dir_all(directory));
    let is_address = |line: &&str| line.parse::<std::net::IpAddr>().is_ok();
    out.output.lines().map(str::trim).filter(is_address).map(str::to_owned).collect()
}

#[test]
fn clients_with_wrong_credentials_are_found_and_no_others() {
    let Some(()) = require(coturn()) else { return };
    let Some(lab) = require(Lab::new()) else { return };
    let server = Server::start(&lab, &Config::for_lab(&lab));
    let call = |name: &str, password: &str| {
        let mut command = lab.command(Host::Client, "turnutils_uclient");
        command.args(["-u", name, "-w", password, "-y", "-c", "-m", "1", "-n", "1"]);
        Tool::run(command.arg(lab.v4.listen.to_string()), Duration::from_secs(6))
    };
    let forged = "x\" reason=\"wrong_password\" code=401 client=192.0.2.66:1 x=\"";
    for (name, password) in
        [("alice", "correct-horse-battery"), ("alice", "wrong"), ("mallory", "x"), (forged, "x")]
    {
        let _ = call(name, password);
    }
    let log = server.process.output();
    let refused = log.lines().filter(|line| line.contains("code=401")).count();
    assert!(refused >= 2, "{log}");
    let client = lab.v4.client.to_string();
    let addresses = found(&log);
    assert_eq!(addresses, vec![client; refused], "{log}");

    // As the journal has them, of IPv6 as well, and other refusals.
    let line = "Nov 23 12:47:34 host turnpike[7]:  INFO request refused worker=0 client=[2001:db8::7]:39310 \
                transport=\"tls\" method=\"Allocate\" claimed_user=\"a b\" reason=\"unknown_user\" code=401 times=2 \
                left_out=0\n";
    assert_eq!(found(line), ["2001:db8::7"]);
    for other in ["reason=\"quota\" code=486", "reason=\"peer_forbidden\" code=403"] {
        let line = line.replace("reason=\"unknown_user\" code=401", other);
        assert!(found(&line).is_empty(), "{line}");
    }
}
