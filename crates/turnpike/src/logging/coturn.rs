//! Log lines in the wording of coturn, for programs that parse them: `2026-07-30T12:34:56.789+0000
//! INFO session 000000000000000001: …`.
//!
//! An event results in one or several lines of coturn. Other events result in the message with its
//! fields.

use std::fmt;

use stun_wire::reason_phrase;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use turn_types::AllocationId;

use super::parts::Parts;
use crate::escape;

/// Maximum length of a line in characters, as in coturn.
const LINE_CHARS_MAX: usize = 1023;

/// Formatter of events in the wording of coturn.
pub(super) struct Coturn;

impl<S, N> FormatEvent<S, N> for Coturn
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = level(*event.metadata().level());
        let mut stamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut stamp))?;
        // The time has the form 2026-07-30T12:34:56.789012Z here.
        let stamp = stamp.get(..23).unwrap_or(&stamp);
        for line in Fields(Parts::of(event)).lines() {
            // Truncated after escaping, because escapes lengthen a line.
            let line: String = escape::line(&line).chars().take(LINE_CHARS_MAX).collect();
            writeln!(writer, "{stamp}+0000 {level} {line}")?;
        }
        Ok(())
    }
}

const fn level(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR",
        Level::WARN => "WARNING",
        Level::INFO => "INFO",
        Level::DEBUG | Level::TRACE => "DEBUG",
    }
}

/// Fields of an event, to be worded as by coturn.
struct Fields(Parts);

impl Fields {
    /// Returns a field that is a word of this program, an address or a number.
    fn get(&self, name: &str) -> &str {
        self.0.get(name).unwrap_or_default()
    }

    /// Returns a name that a client chose. Characters that coturn uses as delimiters, angle
    /// brackets and comma, are replaced.
    fn name(&self, name: &str) -> String {
        let plain = |c: char| if matches!(c, '<' | '>' | ',') || c.is_control() { '_' } else { c };
        self.get(name).chars().map(plain).collect()
    }

    fn lines(&self) -> Vec<String> {
        match &*self.0.message {
            "allocation made" => vec![self.begun("new")],
            "allocation refreshed" => vec![self.begun("refreshed")],
            "allocation ended" => self.ended(),
            "request refused" => self.refused(),
            _ => vec![self.other()],
        }
    }

    /// Returns the 18 digits of a session, which start with the digits of the worker.
    fn session(&self) -> String {
        let id = AllocationId::parse(self.get("id"));
        let number = id.map_or(0, |id| {
            u64::from(id.worker().0) * 1_000_000_000_000_000 + (id.0 & 0xFFFF_FFFF_FFFF)
        });
        format!("session {number:018}")
    }

    fn begun(&self, word: &str) -> String {
        format!(
            "{}: {word}, realm=<{}>, username=<{}>, lifetime={}",
            self.session(),
            self.get("realm"),
            self.name("user"),
            self.get("lifetime")
        )
    }

    fn ended(&self) -> Vec<String> {
        let (session, realm, user) = (self.session(), self.get("realm"), self.name("user"));
        let [to_peers, to_peers_bytes, to_client, to_client_bytes] =
            ["to_peer_packets", "to_peer_bytes", "to_client_packets", "to_client_bytes"]
                .map(|name| self.get(name));
        vec![
            format!(
                "{session}: usage: realm=<{realm}>, username=<{user}>, rp={to_peers}, rb={to_peers_bytes}, sp={to_client}, \
                 sb={to_client_bytes}"
            ),
            format!(
                "{session}: peer usage: realm=<{realm}>, username=<{user}>, rp={to_client}, rb={to_client_bytes}, sp={to_peers}, \
                 sb={to_peers_bytes}"
            ),
            format!("{session}: delete: realm=<{realm}>, username=<{user}>"),
            format!(
                "{session}: closed (2nd stage), user <{user}> realm <{realm}> origin <>, local {}, remote {}, reason: {}",
                self.get("server"),
                self.get("client"),
                self.get("reason")
            ),
        ]
    }

    fn refused(&self) -> Vec<String> {
        let session = self.session();
        let user = if self.0.get("user").is_some() {
            self.name("user")
        } else {
            self.name("claimed_user")
        };
        let mut lines = Vec::new();
        match self.get("reason") {
            "unknown_user" => {
                lines.push(format!("{session}: Cannot find credentials of user <{user}>"));
            }
            "wrong_password" | "wrong_secret" => {
                // Only a space delimits the name here.
                let user = user.replace(' ', "_");
                lines.push(format!("{session}: user {user} credentials are incorrect"));
            }
            "peer_forbidden" if !self.get("rule").is_empty() => lines.push(format!(
                "{session}: A peer IP {} denied in the range: {} in server 0",
                self.get("peer"),
                self.get("rule")
            )),
            _ => {}
        }
        let code = self.get("code");
        let phrase = code.parse().map_or("", reason_phrase);
        lines.push(format!(
            "{session}: realm <{}> user <{user}>: incoming packet {} processed, error {code}: {phrase} ({}, remote {})",
            self.get("realm"),
            method(self.get("method")),
            self.get("reason"),
            self.get("client"),
        ));
        lines
    }

    fn other(&self) -> String {
        let mut line = self.0.message.clone();
        for (name, value) in &self.0.fields {
            line.push_str(&format!(" {name}={}", value.replace(char::is_control, "_")));
        }
        line
    }
}

/// Converts the name of a method to coturn's form: `CreatePermission` to `CREATE_PERMISSION`.
fn method(name: &str) -> String {
    let mut words = String::new();
    for (at, c) in name.char_indices() {
        if at > 0 && c.is_ascii_uppercase() {
            words.push('_');
        }
        words.push(c.to_ascii_uppercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::LogFormat;
    use super::super::tests::written;

    /// Returns the lines without the time.
    fn lines(events: impl FnOnce()) -> Vec<String> {
        let text = written(LogFormat::Coturn, events);
        let behind = |line: &str| {
            let (stamp, rest) = line.split_once(' ').unwrap();
            assert!(stamp.len() == 28 && stamp.ends_with("+0000"), "{line}");
            rest.to_owned()
        };
        text.lines().map(behind).collect()
    }

    #[test]
    fn the_end_of_an_allocation_is_four_lines() {
        let told = lines(|| {
            tracing::info!(
                worker = 3,
                id = "0003000000000001",
                reason = "expired",
                user = "al>ice,\n",
                realm = "example.org",
                server = "203.0.113.1:3478",
                client = "192.0.2.7:5000",
                to_peer_packets = 1,
                to_peer_bytes = 2,
                to_client_packets = 3,
                to_client_bytes = 4,
                "allocation ended"
            );
        });
        let session = "session 003000000000000001";
        let who = "realm=<example.org>, username=<al_ice__>";
        assert_eq!(
            told,
            [
                format!("INFO {session}: usage: {who}, rp=1, rb=2, sp=3, sb=4"),
                format!("INFO {session}: peer usage: {who}, rp=3, rb=4, sp=1, sb=2"),
                format!("INFO {session}: delete: {who}"),
                format!(
                    "INFO {session}: closed (2nd stage), user <al_ice__> realm <example.org> origin <>, local \
                     203.0.113.1:3478, remote 192.0.2.7:5000, reason: expired"
                ),
            ]
        );
    }

    #[test]
    fn refusals_and_other_lines() {
        let told = lines(|| {
            tracing::info!(
                client = "192.0.2.7:5000",
                method = "CreatePermission",
                user = "alice",
                peer = "10.0.0.1",
                rule = "10.0.0.0/8",
                reason = "peer_forbidden",
                code = 403,
                "request refused"
            );
            tracing::warn!(error = "two\nlines", "something else");
        });
        assert_eq!(
            told,
            [
                "INFO session 000000000000000000: A peer IP 10.0.0.1 denied in the range: 10.0.0.0/8 in server 0",
                "INFO session 000000000000000000: realm <> user <alice>: incoming packet CREATE_PERMISSION processed, error \
                 403: Forbidden (peer_forbidden, remote 192.0.2.7:5000)",
                "WARNING something else error=two_lines",
            ]
        );
    }
}
