//! Ports that clients come to are not lent to clients, in a file and after a reload.

use std::path::Path;

use settings::{Environment, Settings, parse};

const TLS: &str = "tls.certificates = [{ chain = '/a.pem', key = '/a.key' }]\n";

fn read(text: &str) -> Result<Settings, String> {
    parse(Path::new("t.toml"), text, &Environment::empty()).map_err(|errors| errors.to_string())
}

fn good(text: &str) -> Settings {
    read(text).unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn a_listener_for_tls_counts_by_the_protocols_it_speaks() {
    let ports = "relay.ports = '5340-5360'\n";
    let listen = "tls.listen = ['0.0.0.0:5349']\n";
    for (text, said) in [
        (
            format!("{ports}{TLS}{listen}"),
            "t.toml:3: tls.listen: port 5349 (UDP, for DTLS) is one of relay.ports (5340-5360)",
        ),
        (
            format!("{ports}{TLS}{listen}dtls.enabled = false\ntcp.relaying = true\n"),
            "t.toml:3: tls.listen: port 5349 (TCP, which tcp.relaying relays) is one of",
        ),
        // Nobody wrote tls.listen: its default is 5349.
        (
            format!("{ports}{TLS}"),
            "t.toml:1: relay.ports: port 5349 of 5340-5360 is a listener's (tls.listen, UDP, for DTLS)",
        ),
    ] {
        let errors = read(&text).unwrap_err();
        assert!(errors.contains(said), "{text}: {errors}");
        assert_eq!(errors.lines().count(), 2, "told once: {errors}");
    }
    for text in [
        format!("{ports}{listen}"), // without a certificate nobody listens there
        format!("{ports}{TLS}{listen}dtls.enabled = false\n"),
        format!(
            "{ports}{TLS}{listen}dtls.enabled = false\ntls.enabled = false\ntcp.relaying = true\n"
        ),
        format!("{ports}{TLS}tls.listen = ['0.0.0.0:443']\ntcp.relaying = true\n"),
    ] {
        good(&text);
    }
}

/// The listeners stay as at the start, and are checked against the new ports.
#[test]
fn a_reload_is_checked_as_what_would_be_in_force() {
    let started = good(&format!("{TLS}tls.listen = ['0.0.0.0:5349']\ndtls.enabled = false\n"));
    for (new, said) in [
        ("listen = ['0.0.0.0:3000']\nrelay.ports = '3400-3500'\n", "port 3478 of 3400-3500"),
        ("tcp.relaying = true\nrelay.ports = '5340-5360'\n", "port 5349 of 5340-5360"),
    ] {
        let new = good(new);
        let errors = started.reloaded(&new).unwrap_err().to_string();
        assert!(errors.contains("relay.ports") && errors.contains(said), "{errors}");
        assert!(errors.contains("until the server is started again"), "{errors}");
    }
    let elsewhere = good("relay.ports = '6000-7000'\n");
    assert_eq!(started.reloaded(&elsewhere).unwrap().relay.ports, elsewhere.relay.ports);

    let discovery = "discovery = { addresses = ['10.0.0.5', '10.0.0.6'], ports = [3478, 3479] }\n";
    let started = good(discovery);
    let errors = started.reloaded(&good("listen = ['0.0.0.0:1']\nrelay.ports = '3479-3490'"));
    assert!(errors.unwrap_err().to_string().contains("discovery.ports"));
}
