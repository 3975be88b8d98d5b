//! `turnpike why`: shows recent refusals with meaning and remedy, or a session with its peers and
//! past.

mod session;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use admin::types::{Overview, ReasonCount, Refusal, Refusals, SessionDetails};
use admin::{Client, ClientError};
use turn_types::AllocationId;

use crate::cli::{self, ClientAddress, PathOptions};
use crate::commands::ask;
use crate::escape;
use crate::failure::Result;
use crate::output;

pub(crate) fn run(paths: &PathOptions, args: &cli::Why) -> Result<()> {
    if let Some(id) = args.who.as_deref().filter(|who| AllocationId::parse(who).is_some())
        && let Some(live) = ask(paths, async |server| live_session(server, id).await)?
    {
        return if args.output.json {
            output::print_json(&live)
        } else {
            output::print(&session::describe(&live, output::columns()))
        };
    }
    let client = args.who.as_deref().and_then(ClientAddress::read).map(|client| client.ip);
    let user = args.who.as_deref().filter(|_| client.is_none());
    let (refusals, overview) = ask(paths, async |server| {
        let refusals = server.refusals(user, client, args.limit).await?;
        let is_answer = args.output.json || !refusals.refusals.is_empty();
        let overview = if is_answer { Overview::default() } else { server.overview().await? };
        Ok((refusals, overview))
    })?;
    if args.output.json {
        return output::print_json(&refusals);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let text = describe(&refusals, args.who.as_deref(), now);
    output::print(&[text, without_records(&overview.refusals)].concat())
}

/// Reasons that are only counted, without a record of the client. A client's address may be forged
/// then.
const WITHOUT_RECORDS: [turn_proto::Refusal; 2] =
    [turn_proto::Refusal::InvalidNonce, turn_proto::Refusal::IncompleteCredentials];

/// Describes refusals of the last minute without a record of the client.
fn without_records(counts: &[ReasonCount]) -> String {
    let is_counted = |one: &&ReasonCount| {
        one.last_minute > 0 && WITHOUT_RECORDS.iter().any(|reason| reason.label() == one.reason)
    };
    let text = |one: &ReasonCount| {
        let ReasonCount { reason, last_minute, meaning, advice, .. } = one;
        let text = format!(
            "requests refused in the last minute whose address is not proved: {}, {reason}: {meaning} {advice}",
            output::grouped(*last_minute)
        );
        format!("\n\n{}", output::wrapped(&text, 0, output::columns()))
    };
    counts.iter().filter(is_counted).map(text).collect()
}

/// Queries the session with an id. Returns `None` if the session has closed, or if the id is a
/// user's name.
async fn live_session(
    server: &mut Client,
    id: &str,
) -> std::result::Result<Option<SessionDetails>, ClientError> {
    match server.session(id).await {
        Err(ClientError::Refused { status: 404, .. }) => Ok(None),
        found => found.map(Some),
    }
}

fn describe(refusals: &Refusals, who: Option<&str>, now: Duration) -> String {
    if refusals.refusals.is_empty() {
        if let Some(id) = who.filter(|who| AllocationId::parse(who).is_some()) {
            return format!(
                "no live session {id}, and no recent refusals of a user with this name\n\
                 a session that has ended is in the log, with its reason"
            );
        }
        let whose = who.map(|who| format!(" of {}", escape::name(who))).unwrap_or_default();
        return format!(
            "no recent refusals{whose}\n\
             if a client cannot connect, perhaps nothing of it arrives: run `turnpike probe` on its host; \
             `turnpike sessions` lists allocations"
        );
    }
    let kinds: Vec<_> = refusals.refusals.iter().map(|one| kind(one, now)).collect();
    let mut text = kinds.join("\n\n");
    let has_other_names = refusals.refusals.iter().any(|one| one.other_claimed_users);
    if let Some(who) = who.filter(|who| has_other_names && ClientAddress::read(who).is_none()) {
        text.push_str(&format!("\n\n{}", output::wrapped(&mixed(who), 0, output::columns())));
    }
    if refusals.more {
        text.push_str("\n\nthere are more; see them with --limit, or name a user or an address");
    }
    text
}

/// Explains that rows may be about another name than the requested name.
fn mixed(who: &str) -> String {
    format!(
        "Names without proof are counted together by network and reason, and only the latest is \
         kept: refusals of clients with other names may be of {} or not. The log of one client has \
         each name: `turnpike log-level debug --client ADDRESS`.",
        escape::name(who)
    )
}

/// Formats refusals of one kind: a line of facts, followed by meaning and remedy.
fn kind(refusal: &Refusal, now: Duration) -> String {
    let mut text = format!(
        "{} at {} over {}: {} refused with {}, {}",
        subject(refusal),
        refusal.client,
        refusal.transport,
        refusal.method,
        refusal.code,
        times(refusal)
    );
    let mut meaning = format!("{}: {}", refusal.reason, refusal.meaning);
    for more in [peer(refusal), share(refusal), expiry(refusal, now)].into_iter().flatten() {
        meaning.push(' ');
        meaning.push_str(&more);
    }
    let settings = match refusal.settings.as_slice() {
        [] => String::new(),
        settings => format!("In force: {}.", settings.join(", ")),
    };
    for paragraph in [meaning.as_str(), refusal.advice.as_str(), settings.as_str()] {
        if !paragraph.is_empty() {
            text.push('\n');
            text.push_str(&output::wrapped(paragraph, 4, output::columns()));
        }
    }
    text
}

fn subject(refusal: &Refusal) -> String {
    match (&refusal.user, &refusal.claimed_user) {
        (Some(user), _) if !user.is_empty() => escape::name(user).into_owned(),
        (_, Some(claimed)) if refusal.other_claimed_users => {
            format!("clients that call themselves \"{}\" and other names", escape::name(claimed))
        }
        (_, Some(claimed)) => format!("a client that calls itself \"{}\"", escape::name(claimed)),
        (_, None) if refusal.other_claimed_users => "clients with several names".to_owned(),
        (_, None) => "a client".to_owned(),
    }
}

fn times(refusal: &Refusal) -> String {
    let ago = |seconds| match seconds {
        0 => "just now".to_owned(),
        _ => format!("{} ago", output::duration(Duration::from_secs(seconds))),
    };
    let last = ago(refusal.seconds_ago);
    let times = output::grouped(refusal.count);
    if refusal.count == 1 {
        last
    } else if refusal.first_seconds_ago == refusal.seconds_ago {
        format!("{times} times, {last}")
    } else {
        format!("{times} times, first {} and last {last}", ago(refusal.first_seconds_ago))
    }
}

/// Describes the forbidden peer, the rule, and whether another rule can allow the peer.
fn peer(refusal: &Refusal) -> Option<String> {
    const BUILT_IN: &str = "The rule is built in.";
    let peer = refusal.peer.as_ref()?;
    Some(match refusal.denied_by.as_deref()? {
        "peers_deny" => match (&refusal.rule, &refusal.rule_at) {
            (Some(rule), Some(place)) => {
                format!("The peer is {peer}, and `peers.deny` has it: \"{rule}\" at {place}.")
            }
            _ => format!("The peer is {peer}, and `peers.deny` has it."),
        },
        "never" => format!("The peer is {peer}, which no rule can allow. {BUILT_IN}"),
        "own_address" => format!(
            "The peer is {peer}, an address of this host; to allow it, write `peers.allow = [\"{peer}\"]`. {BUILT_IN}"
        ),
        "credential" => format!("The peer is {peer}, which the client's own limits do not name."),
        _ => format!(
            "The peer is {peer}, of a private or otherwise special network; to allow it, write \
             `peers.allow = [\"{peer}\"]`. {BUILT_IN}"
        ),
    })
}

/// Describes the network, account or realm whose share is used up.
fn share(refusal: &Refusal) -> Option<String> {
    let (level, holder) = (refusal.share_level.as_ref()?, refusal.share_holder.as_ref()?);
    Some(format!(
        "The largest part of the client's use is that of the {level} {}.",
        escape::name(holder)
    ))
}

/// Describes when a time-limited credential expired.
fn expiry(refusal: &Refusal, now: Duration) -> Option<String> {
    if refusal.reason != "credential_expired" {
        return None;
    }
    let name = refusal.user.as_ref().or(refusal.claimed_user.as_ref())?;
    let expired = Duration::from_secs(name.split_once(':')?.0.parse().ok()?);
    let used = now.checked_sub(Duration::from_secs(refusal.seconds_ago))?;
    let late = used.checked_sub(expired)?;
    Some(format!("It had expired {} before, by the clock of this host.", output::duration(late)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_700_000_200);

    fn refusal(reason: &str) -> Refusal {
        Refusal {
            seconds_ago: 20,
            first_seconds_ago: 140,
            count: 1,
            client: "192.0.2.9:5000".into(),
            transport: "udp".into(),
            server: "203.0.113.7:3478".into(),
            method: "CreatePermission".into(),
            reason: reason.into(),
            code: 403,
            meaning: "The peer rules forbid the peer.".into(),
            advice: "Add it.".into(),
            ..Refusal::default()
        }
    }

    fn one(refusal: Refusal) -> String {
        describe(&Refusals { refusals: vec![refusal], more: false }, None, NOW)
    }

    /// A proxy assigns another port to each packet of a client.
    #[test]
    fn refusals_without_a_record_are_told_by_their_number() {
        let count = |reason: &str, last_minute| ReasonCount {
            reason: reason.to_owned(),
            last_minute,
            meaning: "It is of another address.".to_owned(),
            ..ReasonCount::default()
        };
        let counts = [count("invalid_nonce", 11), count("wrong_password", 7)];
        let text = without_records(&counts).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(": 11, invalid_nonce") && text.contains("another address"), "{text}");
        assert!(!text.contains("wrong_password"), "{text}");
        assert_eq!(without_records(&[count("invalid_nonce", 0)]), "");
    }

    #[test]
    fn a_forbidden_peer_comes_with_the_line_that_allows_it() {
        let text = one(Refusal {
            user: Some("alice".into()),
            peer: Some("10.1.1.2".into()),
            denied_by: Some("special_purpose".into()),
            count: 12,
            ..refusal("peer_forbidden")
        });
        let first = text.lines().next().unwrap();
        assert_eq!(
            first,
            "alice at 192.0.2.9:5000 over udp: CreatePermission refused with 403, 12 times, first 2 min 20 s ago \
             and last 20 s ago"
        );
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("write `peers.allow = [\"10.1.1.2\"]`. The rule is built in. Add it."),
            "{text}"
        );
    }

    #[test]
    fn a_rule_of_the_operator_comes_with_its_place() {
        let text = one(Refusal {
            peer: Some("198.51.100.7".into()),
            denied_by: Some("peers_deny".into()),
            rule: Some("198.51.100.0/24".into()),
            rule_at: Some("/etc/turnpike/turnpike.toml:12".into()),
            ..refusal("peer_forbidden")
        });
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let rule = "`peers.deny` has it: \"198.51.100.0/24\" at /etc/turnpike/turnpike.toml:12.";
        assert!(words.contains(rule), "{text}");
    }

    #[test]
    fn an_expired_credential_comes_with_its_age() {
        let text = one(Refusal {
            claimed_user: Some("1700000000:alice".into()),
            ..refusal("credential_expired")
        });
        assert!(text.starts_with("a client that calls itself \"1700000000:alice\" at "), "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("It had expired 3 min before"), "{text}");
    }

    #[test]
    fn a_full_share_comes_with_its_level() {
        let text = one(Refusal {
            share_level: Some("network".into()),
            share_holder: Some("2001:db8::/48".into()),
            ..refusal("ports_share")
        });
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("client's use is that of the network 2001:db8::/48."), "{text}");
    }

    #[test]
    fn names_without_proof_that_share_a_row_are_told_as_such() {
        let row = Refusal {
            claimed_user: Some("bob".into()),
            other_claimed_users: true,
            ..refusal("wrong_password")
        };
        let list = Refusals { refusals: vec![row], more: false };
        let text = describe(&list, Some("alice"), NOW);
        let first = "clients that call themselves \"bob\" and other names at 192.0.2.9:5000 ";
        assert!(text.starts_with(first), "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("may be of alice or not"), "{text}");
        assert!(!describe(&list, None, NOW).contains("or not"));
    }

    #[test]
    fn limits_of_a_credential_are_no_rule_of_the_server() {
        let text = one(Refusal {
            peer: Some("198.51.100.7".into()),
            denied_by: Some("credential".into()),
            ..refusal("peer_forbidden")
        });
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("198.51.100.7, which the client's own limits do not name"),
            "{text}"
        );
        assert!(!words.contains("built in") && !words.contains("private"), "{text}");
    }

    #[test]
    fn without_refusals_there_is_advice() {
        let text = describe(&Refusals::default(), Some("b\u{202e}b"), NOW);
        assert!(!text.contains('\u{202e}'), "{text:?}");
        let text = describe(&Refusals::default(), Some("bob"), NOW);
        assert!(text.starts_with("no recent refusals of bob\n"), "{text}");
        assert!(text.contains("turnpike probe"), "{text}");
        let ended = describe(&Refusals::default(), Some("0000000000000001"), NOW);
        assert!(ended.starts_with("no live session 0000000000000001") && ended.contains("the log"));
    }
}
