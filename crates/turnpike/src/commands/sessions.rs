//! `turnpike sessions` and `turnpike session end`.

use std::collections::HashSet;
use std::result;
use std::thread;
use std::time::Duration;

use admin::limits::SESSIONS_MAX;
use admin::types::{Ended, Session, SessionPeers, Sessions};
use admin::{Client, ClientError, SessionQuery};
use turn_proto::UserName;

use crate::cli::{self, ClientAddress, PathOptions};
use crate::commands::{ask, failed};
use crate::confirmation;
use crate::escape;
use crate::failure::{Failure, Result};
use crate::output::{self, Align, Table};

pub(crate) fn list(paths: &PathOptions, args: &cli::Sessions) -> Result<()> {
    let query = SessionQuery {
        user: args.user.clone(),
        realm: args.realm.clone(),
        client: args.client.map(|at| at.ip),
        sort: args.sort.clone(),
        peers: args.peers,
        ..SessionQuery::default()
    };
    let most = usize::try_from(args.limit).unwrap_or(usize::MAX);
    if args.watch {
        return watch(paths, &SessionQuery { rates: true, ..query }, args.client, most);
    }
    let sessions = ask(paths, async |client| selected(client, query, args.client, most).await)?;
    if args.output.json {
        return output::print_json(&sessions);
    }
    output::print(&describe(&sessions))
}

/// Shows the sessions repeatedly, until the terminal or the server closes.
fn watch(
    paths: &PathOptions,
    query: &SessionQuery,
    at: Option<ClientAddress>,
    most: usize,
) -> Result<()> {
    /// Number of further lines: the heading, and the number of omitted sessions.
    const OTHER_LINES: usize = 2;
    loop {
        let Some(screen) = output::screen() else {
            let error = anyhow::anyhow!("--watch repaints a terminal, and the output is none");
            return Err(Failure::usage(error).hint("for programs there is --json"));
        };
        let most = most.min(screen.1.saturating_sub(OTHER_LINES)).max(1);
        let sessions = ask(paths, async |client| selected(client, query.clone(), at, most).await)?;
        output::repaint(&describe(&sessions), screen)?;
        thread::sleep(Duration::from_secs(1));
    }
}

/// Queries at most `most` sessions of a selection, page by page.
async fn pages(
    client: &mut Client,
    mut query: SessionQuery,
    most: usize,
) -> result::Result<Sessions, ClientError> {
    query.limit = most.min(SESSIONS_MAX);
    let mut all = client.session_page(&query).await?;
    // A session whose rate or traffic changes between two queries can be on both pages.
    let mut seen: HashSet<String> = all.sessions.iter().map(|one| one.id.clone()).collect();
    while let Some(next) = all.next.take_if(|_| all.sessions.len() < most) {
        query.limit = (most - all.sessions.len()).min(SESSIONS_MAX);
        query.after = Some(next);
        let page = client.session_page(&query).await?;
        all.sessions.extend(page.sessions.into_iter().filter(|one| seen.insert(one.id.clone())));
        (all.more, all.next, all.total) = (page.more, page.next, page.total);
    }
    Ok(all)
}

/// Queries at most `most` sessions of a selection. If `at` has a port, queries all sessions at this
/// address instead.
async fn selected(
    client: &mut Client,
    query: SessionQuery,
    at: Option<ClientAddress>,
    most: usize,
) -> result::Result<Sessions, ClientError> {
    let Some(at) = at.filter(|at| at.port.is_some()) else {
        return pages(client, query, most).await;
    };
    let mut all = pages(client, query, usize::MAX).await?;
    all.sessions.retain(|one| at.is(&one.client));
    all.total = all.sessions.len() as u64;
    Ok(all)
}

pub(crate) fn act(paths: &PathOptions, args: &cli::Session) -> Result<()> {
    let cli::Session::End { ids, user, client: at, yes, output } = args;
    let is_selection = ids.is_empty();
    let found = if is_selection {
        let client = at.map(|at| at.ip);
        let query = SessionQuery { user: user.clone(), client, ..SessionQuery::default() };
        let found = ask(paths, async |client| selected(client, query, *at, usize::MAX).await)?;
        if found.sessions.is_empty() {
            warn_of_none(&looked_for(user.as_deref(), *at));
            return if output.json { print_ended(&[], false, true) } else { Ok(()) };
        }
        if !yes && !agreed(found.sessions.len(), output.json)? {
            return output::print("no session was ended");
        }
        &found.sessions.into_iter().map(|session| session.id).collect()
    } else {
        ids
    };
    let (ended, refused) = ask(paths, async |client| end_all(client, found).await)?;
    // Sessions of a selection may have closed since the query.
    let refused = refused.filter(|error| {
        !(is_selection && matches!(error, ClientError::Refused { status: 404, .. }))
    });
    if refused.is_none() || !ended.is_empty() {
        print_ended(&ended, ids.len() == 1, output.json)?;
    }
    refused.map_or(Ok(()), |error| Err(failed(error, None)))
}

/// Warns that a command has closed no session, and names the filter. A misspelt name would leave
/// sessions open.
pub(crate) fn warn_of_none(looked_for: &str) {
    let text = format!(
        "warning: no session was ended: none is live with {looked_for}; `turnpike sessions` shows the names of all"
    );
    eprintln!("{}", escape::lines(&text));
}

/// Describes the sessions of a user.
pub(crate) fn named(user: &str) -> String {
    format!("the user name or account \"{}\"", escape::name(&UserName::form_of(user)))
}

/// Describes the selection of a command.
fn looked_for(user: Option<&str>, client: Option<ClientAddress>) -> String {
    let user = user.map(named);
    let client = client.map(|at| format!("a client at {at}"));
    [user, client].into_iter().flatten().collect::<Vec<_>>().join(" and ")
}

/// Requests a confirmation on the terminal, with the number of selected sessions.
fn agreed(number: usize, as_json: bool) -> Result<bool> {
    let s = if number == 1 { "" } else { "s" };
    let number = output::grouped(number as u64);
    if as_json || !confirmation::is_possible() {
        let error = anyhow::anyhow!(
            "this would end {number} live session{s}; it asks first, and there is no terminal to ask"
        );
        return Err(Failure::usage(error).hint("--yes ends them without a question"));
    }
    confirmation::ask(&format!("end {number} live session{s}?"))
}

fn print_ended(ended: &[Ended], is_one: bool, as_json: bool) -> Result<()> {
    match ended {
        [one] if as_json && is_one => output::print_json(one),
        all if as_json => output::print_json(&all),
        [] => output::print("no live session matches"),
        all => {
            let line = |one: &Ended| format!("session {} was ended", one.id);
            output::print(&all.iter().map(line).collect::<Vec<_>>().join("\n"))
        }
    }
}

/// Closes the selected sessions that belong to a realm. Returns the number of closed sessions.
pub(crate) async fn end_in(
    client: &mut Client,
    query: SessionQuery,
    realm: &str,
) -> result::Result<u64, ClientError> {
    let found = pages(client, query, usize::MAX).await?.sessions;
    let ids: Vec<_> =
        found.into_iter().filter(|one| one.realm == realm).map(|one| one.id).collect();
    let (ended, _) = end_all(client, &ids).await?;
    Ok(ended.len() as u64)
}

/// Closes each session. Continues after a refusal, and returns the last refusal.
async fn end_all(
    client: &mut Client,
    ids: &[String],
) -> result::Result<(Vec<Ended>, Option<ClientError>), ClientError> {
    let (mut ended, mut refused) = (Vec::new(), None);
    for id in ids {
        match client.end_session(id).await {
            Ok(one) => ended.push(one),
            Err(error @ ClientError::Refused { .. }) => refused = Some(error),
            Err(error) => return Err(error),
        }
    }
    Ok((ended, refused))
}

fn describe(sessions: &Sessions) -> String {
    if sessions.sessions.is_empty() {
        return "no live sessions".to_owned();
    }
    let mut columns = vec![
        ("id", Align::Left),
        ("user", Align::Left),
        ("client", Align::Left),
        ("relayed", Align::Left),
        ("age", Align::Right),
        ("expires", Align::Right),
        ("to peers", Align::Right),
        ("to client", Align::Right),
        ("dropped", Align::Right),
        ("kernel", Align::Left),
    ];
    if sessions.sessions.iter().any(|session| session.rates.is_some()) {
        columns.push(("Mbit/s", Align::Right));
    }
    let mut table = Table::new(&columns);
    for session in &sessions.sessions {
        table.row(row(session));
    }
    let mut text = table.render();
    if sessions.sessions.iter().any(|session| session.peers.is_some()) {
        let mut lines = text.lines();
        let mut with_peers = vec![lines.next().unwrap_or_default().to_owned()];
        for (line, session) in lines.zip(&sessions.sessions) {
            with_peers.push(line.to_owned());
            with_peers.extend(session.peers.as_ref().map(peers));
        }
        text = with_peers.join("\n");
    }
    if sessions.more {
        let shown = output::grouped(sessions.sessions.len() as u64);
        let total = output::grouped(sessions.total);
        let more =
            format!("\n{shown} of {total} sessions; see more with --limit, --user or --client");
        text.push_str(&more);
    }
    text
}

/// Describes the peers of a session, below the session's line.
fn peers(peers: &SessionPeers) -> String {
    const INDENT: usize = 4;
    let left = |seconds| output::duration(Duration::from_secs(seconds));
    let permissions = peers
        .permissions
        .iter()
        .map(|one| format!("permission {} ({})", one.peer, left(one.expires_in_seconds)));
    let channels = peers.channels.iter().map(|one| {
        format!("channel {} to {} ({})", one.number, one.peer, left(one.expires_in_seconds))
    });
    let connected = peers.connected_peers.iter().map(|peer| format!("connection with {peer}"));
    let all: Vec<String> = permissions.chain(channels).chain(connected).collect();
    let text = if all.is_empty() { "no peers".to_owned() } else { all.join(", ") };
    output::wrapped(&text, INDENT, output::columns())
}

fn row(session: &Session) -> [String; 11] {
    let time = |seconds| output::duration(Duration::from_secs(seconds));
    let user = match session.revocable_name() {
        "" => "-",
        user => user,
    };
    [
        session.id.clone(),
        user.to_owned(),
        format!("{} {}", session.transport, session.client),
        relayed(session),
        time(session.age_seconds),
        time(session.expires_in_seconds),
        output::bytes(session.to_peers.bytes),
        output::bytes(session.to_client.bytes),
        output::grouped(session.dropped_packets),
        kernel_path(session),
        megabits(session),
    ]
}

/// Returns the session's rate in both directions together.
fn megabits(session: &Session) -> String {
    let Some(rates) = session.rates else { return String::new() };
    let bits = rates.to_peers.bits_per_second.saturating_add(rates.to_client.bits_per_second);
    output::megabits(bits)
}

/// Returns the session's relayed addresses, with a mark for TCP.
fn relayed(session: &Session) -> String {
    let addresses = session.relayed.join(" ");
    if session.relays == "tcp" { format!("tcp {addresses}") } else { addresses }
}

/// Returns the number of the session's channels with a route in the kernel, or the reason for none.
fn kernel_path(session: &Session) -> String {
    let offload = &session.offload;
    match &offload.reason {
        Some(reason) => reason.replace('_', " "),
        None if offload.by == "kernel" => {
            // An existing route may be unused. The first packets must pass the host's rules through
            // the sockets.
            let unused = if offload.packets == 0 { ", unused" } else { "" };
            format!("{} of {}{unused}", offload.channels, session.channels)
        }
        None => "-".to_owned(), // the server does not report it
    }
}

#[cfg(test)]
mod tests {
    use admin::types::{Rate, SessionOffload, SessionRates, Volume};

    use super::*;

    #[test]
    fn a_session_is_a_line() {
        let session = Session {
            id: "0000000000000001".into(),
            user: "bob".into(),
            transport: "udp".into(),
            client: "192.0.2.9:4000".into(),
            relayed: vec!["203.0.113.7:50000".into()],
            age_seconds: 70,
            expires_in_seconds: 530,
            to_peers: Volume { packets: 3, bytes: 2048 },
            dropped_packets: 1234,
            channels: 3,
            offload: SessionOffload {
                by: "kernel".into(),
                channels: 2,
                packets: 2,
                ..SessionOffload::default()
            },
            ..Session::default()
        };
        let text =
            describe(&Sessions { sessions: vec![session], more: true, total: 2, next: None });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        let words: Vec<&str> = lines[1].split("  ").filter(|word| !word.is_empty()).collect();
        assert_eq!(
            words.iter().map(|word| word.trim()).collect::<Vec<_>>(),
            [
                "0000000000000001",
                "bob",
                "udp 192.0.2.9:4000",
                "203.0.113.7:50000",
                "1 min 10 s",
                "8 min 50 s",
                "2.00 KiB",
                "0 B",
                "1,234",
                "2 of 3"
            ]
        );
        assert!(lines[0].ends_with("  kernel"), "{text}");
        assert!(lines[2].contains("--limit"));
        assert_eq!(describe(&Sessions::default()), "no live sessions");
    }

    #[test]
    fn a_name_neither_steers_the_terminal_nor_makes_a_row_of_its_own() {
        let user = "1800000000:x\u{1b}]0;owned\u{7}\n0000000000000002  root";
        let session = Session { user: user.into(), ..Session::default() };
        let text =
            describe(&Sessions { sessions: vec![session], more: false, ..Sessions::default() });
        assert_eq!(text.lines().count(), 2, "{text:?}");
        assert!(!text.contains(['\u{1b}', '\u{7}']), "{text:?}");
        assert!(text.contains("x\\u{1b}]0;owned\\u{7}\\u{a}0000"), "{text:?}");
    }

    #[test]
    fn a_client_with_a_token_has_the_name_that_can_be_revoked() {
        let session = |by_token| Session {
            user: "key".into(),
            account: "key#9b8f65607d891ebc".into(),
            by_token,
            ..Session::default()
        };
        assert_eq!(row(&session(true))[1], "key#9b8f65607d891ebc");
        assert_eq!(row(&session(false))[1], "key");
    }

    #[test]
    fn a_session_that_relays_tcp_says_so() {
        let of = |relays: &str| {
            let addresses = vec!["203.0.113.7:50000".into()];
            relayed(&Session { relays: relays.into(), relayed: addresses, ..Session::default() })
        };
        assert_eq!(of("tcp"), "tcp 203.0.113.7:50000");
        assert_eq!(of("udp"), "203.0.113.7:50000");
    }

    #[test]
    fn peers_stand_below_their_session() {
        use admin::types::{BoundChannel, PermittedPeer};
        let of = |peers| Session { id: "1".into(), peers: Some(peers), ..Session::default() };
        let permission = PermittedPeer { peer: "192.0.2.9".into(), expires_in_seconds: 290 };
        let (number, peer) = ("0x4000".into(), "192.0.2.9:5000".into());
        let channel = BoundChannel { number, peer, expires_in_seconds: 600 };
        let some = SessionPeers {
            permissions: vec![permission],
            channels: vec![channel],
            connected_peers: Vec::new(),
        };
        let sessions = vec![of(some), of(SessionPeers::default())];
        let text = describe(&Sessions { sessions, ..Sessions::default() });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[2],
            "    permission 192.0.2.9 (4 min 50 s), channel 0x4000 to 192.0.2.9:5000 (10 min)"
        );
        assert!(lines[3].starts_with('1') && lines[4] == "    no peers", "{text}");
    }

    #[test]
    fn rates_are_shown_where_they_are_known() {
        let mut sessions = vec![Session::default(); 2];
        let list = |sessions: &Vec<Session>| {
            describe(&Sessions { sessions: sessions.clone(), ..Sessions::default() })
        };
        assert!(!list(&sessions).contains("Mbit/s"));
        let rate = |bits_per_second| Rate { bits_per_second, packets_per_second: 1 };
        sessions[0].rates =
            Some(SessionRates { to_peers: rate(1_200_000), to_client: rate(34_000) });
        let text = list(&sessions);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].ends_with("  Mbit/s") && lines[1].ends_with("   1.234"), "{text}");
    }

    #[test]
    fn a_session_that_the_kernel_does_not_relay_says_why() {
        let told = |by: &str, reason: Option<&str>| {
            let offload = SessionOffload {
                by: by.into(),
                reason: reason.map(Into::into),
                ..SessionOffload::default()
            };
            kernel_path(&Session { channels: 1, offload, ..Session::default() })
        };
        assert_eq!(told("sockets", Some("no_channel")), "no channel");
        assert_eq!(told("sockets", Some("full")), "full");
        assert_eq!(told("", None), "-");
    }
}
