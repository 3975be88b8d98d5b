//! `turnpike user revoke`, `restore` and `revoked`, and closing of changed users' sessions. The
//! running server performs these operations.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use admin::SessionQuery;
use admin::types::{Revocation, RevocationKind, Revoke};
use control::limits::USER_CHANGE_SEEN_WITHIN;
use turn_proto::UserName;
use turn_types::AllocationId;

use crate::cli::{self, PathOptions};
use crate::commands::{ask, ask_if_running, sessions};
use crate::escape;
use crate::failure::Result;
use crate::output::{self, Align, Table};

pub(super) fn revoke(
    paths: &PathOptions,
    realm: Option<String>,
    args: &cli::UserRevoke,
) -> Result<()> {
    let seconds = args.lasts.map(|lasts| lasts.as_secs());
    let wish = Revoke { seconds, ..what(realm, &args.what) };
    let revoked = ask(paths, async |client| client.revoke(&wish).await)?;
    if revoked.ended == 0 {
        sessions::warn_of_none(&looked_for(&revoked.revocation));
        if revoked.revocation.kind == RevocationKind::Name {
            eprintln!(
                "note: `--secret` revokes a shared secret, `--token-key` the key of access tokens"
            );
        }
    }
    if let Some(note) = note(&revoked.revocation) {
        eprintln!("{}", escape::lines(&note));
    }
    if args.what.output.json {
        return output::print_json(&revoked);
    }
    let Revocation { realm, until_unix, .. } = &revoked.revocation;
    let ended = counted(revoked.ended);
    let until = match until_unix {
        Some(until) => format!("for {}", left(*until)),
        None => "until `turnpike user restore`".to_owned(),
    };
    output::print(&format!(
        "{} in realm {realm} is refused {until}; {ended}",
        described(&revoked.revocation)
    ))
}

/// Returns a note about a name that is probably not the intended name.
fn note(revocation: &Revocation) -> Option<String> {
    let name = &revocation.name;
    if revocation.kind != RevocationKind::Name {
        return None;
    }
    if AllocationId::parse(name).is_some() {
        return Some(format!(
            "note: ids of sessions look like this name; `turnpike session end {name}` ends one"
        ));
    }
    let (time, account) = name.split_once(':')?;
    let is_time = !time.is_empty() && time.bytes().all(|byte| byte.is_ascii_digit());
    is_time.then(|| {
        format!(
            "note: this is one credential; `turnpike user revoke {}` refuses the later ones as well",
            escape::name(account)
        )
    })
}

pub(super) fn restore(
    paths: &PathOptions,
    realm: Option<String>,
    args: &cli::UserRestore,
) -> Result<()> {
    let wish = what(realm, &args.what);
    let restored = ask(paths, async |client| client.restore(&wish).await)?;
    if args.what.output.json {
        return output::print_json(&restored);
    }
    output::print(&format!(
        "{} in realm {} is accepted again, if it is valid",
        described(&restored),
        restored.realm
    ))
}

pub(super) fn list(paths: &PathOptions, realm: Option<&str>, output: cli::Output) -> Result<()> {
    let mut all = ask(paths, async |client| client.revocations().await)?;
    all.revocations.retain(|one| realm.is_none_or(|realm| one.realm == realm));
    if output.json {
        return output::print_json(&all);
    }
    if all.revocations.is_empty() {
        return output::print("nothing is revoked");
    }
    let mut table = Table::new(&[
        ("kind", Align::Left),
        ("name", Align::Left),
        ("realm", Align::Left),
        ("for", Align::Left),
    ]);
    for one in all.revocations {
        let lasts = one.until_unix.map_or_else(|| "ever".to_owned(), left);
        table.row([noun(one.kind).to_owned(), one.name, one.realm, lasts]);
    }
    output::print(&table.render())
}

/// Warns if a running server refuses an added user because of an earlier revocation. A server
/// without a response is ignored, since the user was added.
pub(super) fn warn_of_revoked(paths: &PathOptions, realm: &str, name: &str) {
    let all = ask_if_running(paths, async |client| client.revocations().await);
    let Ok(Some(all)) = all else { return };
    if let Some(warning) = all.revocations.iter().find_map(|one| still_revoked(one, realm, name)) {
        eprintln!("{}", escape::lines(&warning));
    }
}

/// Returns a warning if a revocation applies to this user.
fn still_revoked(revocation: &Revocation, realm: &str, name: &str) -> Option<String> {
    let is_theirs = revocation.kind == RevocationKind::Name
        && revocation.realm == realm
        && UserName::form_of(&revocation.name) == UserName::form_of(name);
    is_theirs.then(|| {
        format!(
            "warning: this name is revoked, and refused until `turnpike user restore {}`",
            escape::name(name)
        )
    })
}

/// Closes the sessions of a changed user immediately. Closes new sessions again when a running
/// server no longer accepts the earlier keys.
pub(super) fn end_sessions(paths: &PathOptions, realm: &str, name: &str) -> Result<()> {
    let query = SessionQuery { user: Some(name.to_owned()), ..SessionQuery::default() };
    let mut ended = 0;
    for pause in [Duration::ZERO, USER_CHANGE_SEEN_WITHIN] {
        thread::sleep(pause);
        ended += ask(paths, async |client| sessions::end_in(client, query.clone(), realm).await)?;
    }
    match ended {
        0 => sessions::warn_of_none(&format!("{} in realm {realm}", sessions::named(name))),
        _ => eprintln!("{}", counted(ended)),
    }
    Ok(())
}

fn looked_for(revocation: &Revocation) -> String {
    let Revocation { kind, realm, name, .. } = revocation;
    let shown = escape::name(name);
    let what = match kind {
        RevocationKind::Name => sessions::named(name),
        RevocationKind::Secret => format!("a credential of the shared secret \"{shown}\""),
        RevocationKind::TokenKey => format!("an access token of the key \"{shown}\""),
    };
    format!("{what} in realm {realm}")
}

fn what(realm: Option<String>, args: &cli::Revocable) -> Revoke {
    let kind = if args.secret {
        RevocationKind::Secret
    } else if args.token_key {
        RevocationKind::TokenKey
    } else {
        RevocationKind::Name
    };
    Revoke { kind, realm, name: args.name.clone(), seconds: None }
}

fn described(revocation: &Revocation) -> String {
    format!("{} {}", noun(revocation.kind), escape::name(&revocation.name))
}

const fn noun(kind: RevocationKind) -> &'static str {
    match kind {
        RevocationKind::Name => "user",
        RevocationKind::Secret => "secret",
        RevocationKind::TokenKey => "token key",
    }
}

fn counted(ended: u64) -> String {
    match ended {
        0 => "no session was live".to_owned(),
        1 => "1 session was ended".to_owned(),
        n => format!("{} sessions were ended", output::grouped(n)),
    }
}

fn left(until_unix: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    output::duration(Duration::from_secs(until_unix.saturating_sub(now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_added_name_that_is_revoked_is_told() {
        let revocation = |kind, realm: &str| Revocation {
            kind,
            realm: realm.to_owned(),
            name: "ren\u{e9}".to_owned(),
            ..Revocation::default()
        };
        let of_rene = revocation(RevocationKind::Name, "example.org");
        // Another spelling of an equal name (RFC 8265).
        let told = still_revoked(&of_rene, "example.org", "rene\u{301}").expect("a warning");
        assert!(told.contains("`turnpike user restore ren"), "{told}");
        assert_eq!(still_revoked(&of_rene, "example.org", "alice"), None);
        assert_eq!(still_revoked(&of_rene, "example.net", "ren\u{e9}"), None);
        let secret = revocation(RevocationKind::Secret, "example.org");
        assert_eq!(still_revoked(&secret, "example.org", "ren\u{e9}"), None);
    }
}
