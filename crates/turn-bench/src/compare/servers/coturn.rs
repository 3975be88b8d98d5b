//! coturn.

use std::path::Path;

use super::{Certificate, Prepared, Terms, find, version};
use crate::traffic::Transport;

pub(super) fn prepare(
    path: Option<&Path>,
    terms: &Terms,
    directory: &Path,
) -> anyhow::Result<Prepared> {
    let program = find(
        path,
        "turnserver",
        "install coturn (Debian's package coturn has it), or name it: coturn=PATH",
    )?;
    let mut command = vec![program.display().to_string()];
    command.extend(arguments(terms, directory));
    let version = version(&program);
    Ok(Prepared { command, configuration: None, version, knows_secret: true })
}

fn arguments(terms: &Terms, directory: &Path) -> Vec<String> {
    let Terms { listen, relay, peer, secret, realm, ports: (first, last), workers, .. } = terms;
    let file = |name: &str| directory.join(name).display().to_string();
    let mut arguments = vec![
        // No configuration file but these.
        "-n".to_owned(),
        format!("--listening-ip={}", listen.ip()),
        format!("--listening-port={}", listen.port()),
        format!("--relay-ip={}", relay.ip()),
        format!("--min-port={first}"),
        format!("--max-port={last}"),
        format!("--realm={realm}"),
        "--use-auth-secret".to_owned(),
        format!("--static-auth-secret={secret}"),
        format!("--allowed-peer-ip={}", peer.ip()),
        format!("--relay-threads={workers}"),
        "--no-cli".to_owned(),
        format!("--userdb={}", file("turndb")),
        format!("--pidfile={}", file("turnserver.pid")),
        format!("--log-file={}", file("turnserver.log")),
        "--simple-log".to_owned(),
        "--no-stdout-log".to_owned(),
    ];
    if !terms.transport.is_stream() {
        arguments.push("--no-tcp".to_owned());
    }
    if terms.transport != Transport::Dtls {
        arguments.push("--no-dtls".to_owned());
    }
    match &terms.certificate {
        Some(Certificate { chain, key }) => arguments.extend([
            format!("--tls-listening-port={}", terms.tls_listen.port()),
            format!("--cert={}", chain.display()),
            format!("--pkey={}", key.display()),
        ]),
        None => arguments.push("--no-tls".to_owned()),
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::servers::{terms, tls_terms};

    #[test]
    fn what_was_agreed_is_said() {
        let arguments = arguments(&terms(), Path::new("/run/bench"));
        for argument in [
            "--listening-ip=10.78.1.1",
            "--listening-port=3478",
            "--relay-ip=10.78.2.1",
            "--min-port=10000",
            "--max-port=65535",
            "--static-auth-secret=0123456789abcdef0123456789abcdef",
            "--relay-threads=2",
            "--userdb=/run/bench/turndb",
            "--no-tcp",
            "--no-tls",
            "--no-dtls",
        ] {
            assert!(arguments.iter().any(|given| given == argument), "{argument}");
        }
    }

    #[test]
    fn tls_has_a_port_and_a_certificate() {
        let arguments = arguments(&tls_terms(), Path::new("/run/bench"));
        for argument in
            ["--tls-listening-port=5349", "--cert=/run/c.pem", "--pkey=/run/c.key", "--no-dtls"]
        {
            assert!(arguments.iter().any(|given| given == argument), "{argument}");
        }
        assert!(!arguments.iter().any(|given| given == "--no-tls" || given == "--no-tcp"));
    }

    #[test]
    fn dtls_is_on_where_it_is_measured() {
        let terms = Terms { transport: Transport::Dtls, ..tls_terms() };
        let arguments = arguments(&terms, Path::new("/run/bench"));
        assert!(arguments.iter().any(|given| given == "--tls-listening-port=5349"));
        assert!(!arguments.iter().any(|given| given == "--no-dtls"));
    }
}
