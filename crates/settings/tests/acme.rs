//! `[acme]`: means of verification by the listeners' ports.

use std::path::Path;

use settings::{AcmeChallenge, Environment, Settings};

fn parse(text: &str) -> Result<Settings, String> {
    let text = format!("acme.names = ['turn.example.org']\n{text}");
    settings::parse(Path::new("test.toml"), &text, &Environment::empty())
        .map_err(|errors| errors.to_string())
}

#[test]
fn the_port_of_a_listener_decides() {
    let of = |text| parse(text).unwrap().acme_challenge;
    assert_eq!(of("tls.listen = ['0.0.0.0:443']"), Some(AcmeChallenge::TlsAlpn01));
    assert_eq!(of("tls.listen = ['0.0.0.0:443', '0.0.0.0:80']"), Some(AcmeChallenge::TlsAlpn01));
    assert_eq!(of("listen = ['0.0.0.0:3478', '0.0.0.0:80']"), Some(AcmeChallenge::Http01));
    assert_eq!(of("acme.challenge = 'http-01'"), Some(AcmeChallenge::Http01));
    let off = settings::parse(Path::new("test.toml"), "", &Environment::empty()).unwrap();
    assert_eq!((off.acme_challenge, off.tls_listen.len()), (None, 0));
}

/// Before there is a certificate, too: the authority comes to them.
#[test]
fn listeners_for_tls_are_there_from_the_start() {
    let settings = parse("tls.listen = ['192.0.2.1:443']").unwrap();
    assert_eq!(settings.tls_listen, ["192.0.2.1:443".parse().unwrap()]);
    assert!(!settings.tls_listen_is_unused());
}

#[test]
fn a_port_that_no_authority_comes_to_is_refused() {
    for text in
        ["", "tls.listen = ['0.0.0.0:8443']", "tcp.enabled = false\nlisten = ['0.0.0.0:443']"]
    {
        let refused = parse(text).unwrap_err();
        assert!(refused.contains("test.toml:1") && refused.contains("port 443 or 80"), "{refused}");
    }
}

#[test]
fn names_are_hosts_and_named_once() {
    let refused = |names: &str| {
        let text = format!("acme.names = {names}\ntls.listen = ['0.0.0.0:443']");
        let errors = settings::parse(Path::new("test.toml"), &text, &Environment::empty());
        errors.unwrap_err().to_string()
    };
    assert!(refused("['a.example', 'A.example']").contains("there twice"));
    assert!(refused("['*.example.org']").contains("one by one"));
    assert!(refused("['192.0.2.1']").contains("not the name of a host"));
}
