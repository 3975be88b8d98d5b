//! `turnpike why SESSION`: describes a live session, its peers, and its past.

use std::time::Duration;

use admin::types::{Session, SessionDetails, SessionReason, Volume};

use crate::escape;
use crate::output;

/// Describes a session in lines of at most `columns` columns.
pub(super) fn describe(details: &SessionDetails, columns: usize) -> String {
    let session = &details.session;
    let mut text = heading(session);
    for (name, value) in facts(details) {
        text.push_str(&format!("\n  {name:<12} "));
        text.push_str(output::wrapped(&value, 15, columns).trim_start());
    }
    if let Some(doubt) = doubt(session) {
        text.push_str(&format!("\n\n{}", output::wrapped(&doubt, 0, columns)));
    }
    for one in details.refusals.iter().chain(&details.drops) {
        let meaning = format!("{}: {} {}", one.reason, one.meaning, one.advice);
        text.push_str(&format!("\n\n{}", output::wrapped(meaning.trim_end(), 0, columns)));
    }
    if !details.timeline.is_empty() {
        text.push_str("\n\nits past, the latest first");
        for moment in &details.timeline {
            let line = format!("{} ago: {}", seconds(moment.seconds_ago), moment.text);
            text.push_str(&format!("\n{}", output::wrapped(&line, 2, columns)));
        }
    }
    text
}

fn heading(session: &Session) -> String {
    let user = session.revocable_name();
    let owner = if user.is_empty() { String::new() } else { format!(" of {}", escape::name(user)) };
    format!("session {}{owner}", session.id)
}

fn facts(details: &SessionDetails) -> Vec<(&'static str, String)> {
    let session = &details.session;
    let left = |time| format!("({} left)", seconds(time));
    let permissions = details
        .permissions
        .iter()
        .map(|one| format!("{} {}", one.peer, left(one.expires_in_seconds)));
    let channels = details
        .channels
        .iter()
        .map(|one| format!("{} {} {}", one.number, one.peer, left(one.expires_in_seconds)));
    let mut facts = vec![
        ("client", format!("{} over {}", session.client, session.transport)),
        ("server", session.server.clone()),
        ("relayed", session.relayed.join(" ")),
        ("age", seconds(session.age_seconds)),
        ("expires in", format!("{} unless refreshed", seconds(session.expires_in_seconds))),
        ("to peers", volume(session.to_peers)),
        ("to client", volume(session.to_client)),
        ("dropped", counted(session.dropped_packets, "packets", &details.drops)),
        ("refused", {
            let total = details.refusals.iter().map(|one| one.count).sum();
            counted(total, "requests", &details.refusals)
        }),
        ("permissions", list(permissions)),
        ("channels", list(channels)),
    ];
    if session.relays == "tcp" {
        facts.push(("connections", list(details.connected_peers.iter().cloned())));
    }
    facts.push(("path", details.path.clone()));
    facts
}

/// Returns the likely reason if no packets flow in a direction.
fn doubt(session: &Session) -> Option<String> {
    let is_silent = |volume: Volume| volume.packets == 0;
    let text = match (is_silent(session.to_peers), is_silent(session.to_client)) {
        _ if session.relays == "tcp" => return None,
        _ if session.permissions == 0 => {
            "The client has permitted no peer yet: no packet of a peer reaches it. Either it has \
             another path by now, or it does not know an address of the other side."
        }
        (false, true) => {
            "Packets go to the peers, and none comes back: the peer is silent or unreachable, \
             comes from an address without a permission (counted as dropped), or the relay ports \
             are closed inwards by a firewall."
        }
        (true, false) => "Packets of peers reach the client, and it sends none.",
        _ => return None,
    };
    Some(text.to_owned())
}

fn seconds(time: u64) -> String {
    output::duration(Duration::from_secs(time))
}

fn volume(volume: Volume) -> String {
    format!("{} packets, {}", output::grouped(volume.packets), output::bytes(volume.bytes))
}

/// Formats a total with its reasons: `12 packets: 10 no_permission, 2 bandwidth`.
fn counted(total: u64, of: &str, reasons: &[SessionReason]) -> String {
    let total = format!("{} {of}", output::grouped(total));
    let named = reasons.iter().map(|one| format!("{} {}", output::grouped(one.count), one.reason));
    if reasons.is_empty() { total } else { format!("{total}: {}", list(named)) }
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<_> = items.collect();
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

#[cfg(test)]
mod tests {
    use admin::types::{Moment, PermittedPeer};

    use super::*;

    #[test]
    fn a_client_with_a_token_has_the_name_that_can_be_revoked() {
        let session = Session {
            id: "1".into(),
            user: "key".into(),
            account: "key#9b8f65607d891ebc".into(),
            by_token: true,
            ..Session::default()
        };
        assert_eq!(heading(&session), "session 1 of key#9b8f65607d891ebc");
    }

    fn details(to_client: u64) -> SessionDetails {
        let session = Session {
            id: "0000000000000001".into(),
            user: "bob\u{1b}".into(),
            transport: "udp".into(),
            client: "192.0.2.9:4000".into(),
            relayed: vec!["203.0.113.7:50000".into()],
            to_peers: Volume { packets: 1234, bytes: 2048 },
            to_client: Volume { packets: to_client, bytes: 0 },
            permissions: 1,
            dropped_packets: 1,
            ..Session::default()
        };
        SessionDetails {
            session,
            permissions: vec![PermittedPeer {
                peer: "198.51.100.7".into(),
                expires_in_seconds: 200,
            }],
            drops: vec![SessionReason {
                reason: "no_permission".into(),
                count: 1,
                meaning: "No permission.".into(),
                advice: "Look.".into(),
            }],
            path: "Sockets relay everything.".into(),
            timeline: vec![Moment { seconds_ago: 70, text: "ChannelBind refused.".into() }],
            ..SessionDetails::default()
        }
    }

    #[test]
    fn a_session_comes_with_its_peers_and_its_past() {
        let text = describe(&details(7), 100);
        for line in [
            "session 0000000000000001 of bob\\u{1b}",
            "  client       192.0.2.9:4000 over udp",
            "  to peers     1,234 packets, 2.00 KiB",
            "  permissions  198.51.100.7 (3 min 20 s left)",
            "  dropped      1 packets: 1 no_permission",
            "  refused      0 requests",
            "no_permission: No permission. Look.",
            "  channels     none",
            "  path         Sockets relay everything.",
            "  1 min 10 s ago: ChannelBind refused.",
        ] {
            assert!(text.lines().any(|one| one == line), "{line:?} in\n{text}");
        }
        assert!(!text.contains("none comes back"), "{text}");
    }

    #[test]
    fn silence_of_the_peers_comes_with_its_likely_reasons() {
        assert!(describe(&details(0), 1000).contains("none comes back"));
        let mut details = details(0);
        details.session.permissions = 0;
        assert!(describe(&details, 1000).contains("permitted no peer"));
    }
}
