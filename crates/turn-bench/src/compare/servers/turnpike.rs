//! Turnpike.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::{Certificate, Prepared, Terms, find, version};
use crate::traffic::Transport;

pub(super) fn prepare(
    path: Option<&Path>,
    offload: Option<&str>,
    terms: &Terms,
    directory: &Path,
) -> anyhow::Result<Prepared> {
    let program =
        find(path, "turnpike", "build it (cargo build --release), or name it: turnpike=PATH")?;
    let configuration = configuration(terms, offload, directory);
    let file = directory.join("turnpike.toml");
    fs::write(&file, &configuration).with_context(|| format!("writing {}", file.display()))?;
    let command = vec![
        program.display().to_string(),
        "--config".to_owned(),
        file.display().to_string(),
        "run".to_owned(),
    ];
    let version = version(&program);
    Ok(Prepared { command, configuration: Some(configuration), version, knows_secret: true })
}

/// Quotas that are on by default and others do not have are off.
fn configuration(terms: &Terms, offload: Option<&str>, directory: &Path) -> String {
    let Terms { listen, relay, peer, secret, realm, ports: (first, last), workers, .. } = terms;
    let (relay, peer) = (relay.ip(), peer.ip());
    // In TOML a literal string is as it stands; a path of ours has no quotes in it.
    let data = directory.join("data");
    let data = data.display();
    let offload = offload.map(|mode| format!("[offload]\nmode = '{mode}'\n")).unwrap_or_default();
    // Named only where they are measured: older builds do not know them.
    let connections = match terms.transport {
        Transport::Udp => "",
        Transport::Tcp | Transport::Tls | Transport::Tls12 => {
            "[tcp]\nconnections = 0\nconnections_per_address = 0\n"
        }
        Transport::Dtls => "[dtls]\nsessions = 0\nsessions_per_address = 0\n",
    };
    let tls = terms.certificate.as_ref().map(|Certificate { chain, key }| {
        let (listen, chain, key) = (terms.tls_listen, chain.display(), key.display());
        format!("[tls]\nlisten = ['{listen}']\ncertificates = [{{ chain = '{chain}', key = '{key}' }}]\n")
    });
    let tls = tls.unwrap_or_default();
    format!(
        "realm = '{realm}'\n\
         listen = ['{listen}']\n\
         [relay]\n\
         addresses = ['{relay}']\n\
         ports = '{first}-{last}'\n\
         [auth]\n\
         secret = '{secret}'\n\
         [peers]\n\
         allow = ['{peer}']\n\
         [quotas]\n\
         allocations_per_user = 0\n\
         allocations_per_address = 0\n\
         new_peers_per_second = 0\n\
         unauthenticated_responses_per_second = 0\n\
         [workers]\n\
         count = {workers}\n\
         [data]\n\
         directory = '{data}'\n\
         {connections}{tls}{offload}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::servers::{terms, tls_terms};

    #[test]
    fn what_was_agreed_is_in_the_file() {
        let text = configuration(&terms(), Some("tc"), Path::new("/run/bench"));
        for line in [
            "listen = ['10.78.1.1:3478']",
            "addresses = ['10.78.2.1']",
            "ports = '10000-65535'",
            "secret = '0123456789abcdef0123456789abcdef'",
            "allow = ['10.78.2.2']",
            "count = 2",
            "directory = '/run/bench/data'",
            "mode = 'tc'",
        ] {
            assert!(text.lines().any(|given| given == line), "{line}\n{text}");
        }
        assert!(!text.contains("[tcp]") && !text.contains("[tls]"), "{text}");
    }

    #[test]
    fn dtls_has_the_same_certificate_and_no_bounds() {
        let terms = Terms { transport: Transport::Dtls, ..tls_terms() };
        let text = configuration(&terms, None, Path::new("/run/bench"));
        for line in ["sessions_per_address = 0", "listen = ['10.78.1.1:5349']"] {
            assert!(text.lines().any(|given| given == line), "{line}\n{text}");
        }
        assert!(!text.contains("[tcp]"), "{text}");
    }

    #[test]
    fn tls_has_a_port_and_a_certificate() {
        let text = configuration(&tls_terms(), None, Path::new("/run/bench"));
        for line in [
            "connections_per_address = 0",
            "listen = ['10.78.1.1:5349']",
            "certificates = [{ chain = '/run/c.pem', key = '/run/c.key' }]",
        ] {
            assert!(text.lines().any(|given| given == line), "{line}\n{text}");
        }
    }
}
