//! Questions and answers in JSON (docs/operate/credentials.md).

use std::num::{NonZeroU32, NonZeroU64};

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use turn_proto::limits::GRANT_PEERS_MAX;
use turn_proto::{Applicant, Authorization, GrantLimits};
use turn_types::Prefix;

use crate::json_object::JsonObject;

/// Reason why a question has no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The question was not sent in time.
    Unsent,
    /// No response arrived in time.
    Silent(String),
    /// No connection was possible, or the server responded with an error status.
    Failed(String),
    /// The response contains no valid decision.
    Unusable(String),
    /// The service rejected the question because of too many questions (429).
    Busy,
}

/// Question about a client.
#[derive(Debug, Serialize)]
struct Question<'a> {
    method: &'static str,
    realm: &'a str,
    username: &'a str,
    account: &'a str,
    transport: &'static str,
    client_address: String,
    client_port: u16,
}

/// Answer of a service that may permit. An unknown field is an error, because ignoring a
/// restriction could grant more than the service intended.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    /// Always true, because [`Consent`] is checked first.
    #[serde(rename = "allow")]
    _allow: bool,
    /// Text for people, such as the reason.
    #[serde(default, rename = "reason")]
    _reason: IgnoredAny,
    #[serde(default)]
    limits: JsonObject<Limits>,
}

/// Answer reduced to the consent. A refusal is valid regardless of other fields.
#[derive(Debug, Deserialize)]
struct Consent {
    allow: bool,
}

/// Limits in JSON. A limit of `null` is an error, because the meaning could be no limit or no
/// permission.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Limits {
    #[serde(deserialize_with = "given")]
    allocations: Option<NonZeroU32>,
    #[serde(deserialize_with = "given")]
    bytes_per_second: Option<NonZeroU64>,
    #[serde(deserialize_with = "given")]
    lifetime: Option<NonZeroU32>,
    #[serde(deserialize_with = "given")]
    peers: Option<Vec<String>>,
}

/// Reads the value of a field that must not be `null`.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

impl Limits {
    /// Converts the limits.
    ///
    /// # Errors
    /// A value is invalid. The text names the field.
    pub(crate) fn read(self) -> Result<GrantLimits, String> {
        let Self { allocations, bytes_per_second, lifetime, peers } = self;
        if peers.as_ref().is_some_and(|peers| peers.len() > GRANT_PEERS_MAX) {
            return Err(format!("limits.peers has more than {GRANT_PEERS_MAX} prefixes"));
        }
        let prefix = |text: String| {
            text.parse::<Prefix>().map_err(|error| format!("limits.peers: \"{text}\": {error}"))
        };
        let read = |peers: Vec<String>| peers.into_iter().map(prefix).collect();
        let peers = peers.map(read).transpose()?;
        Ok(GrantLimits { allocations, bytes_per_second, lifetime, peers })
    }
}

/// Returns the question about a client, in JSON.
pub(super) fn question(applicant: &Applicant) -> Vec<u8> {
    let Applicant { realm, user, account, transport, client } = applicant;
    let question = Question {
        method: "Allocate",
        realm,
        username: user,
        account,
        transport: transport.label(),
        client_address: client.0.ip().to_string(),
        client_port: client.0.port(),
    };
    // Text and numbers can always be represented in JSON.
    serde_json::to_vec(&question).unwrap_or_default()
}

/// Reads an answer: 200 with `{"allow": true}` or `{"allow": false}`, 204 as permission, 403 as
/// refusal.
///
/// # Errors
/// The response has another status, or its body is not valid JSON of this form.
pub(super) fn read(status: u16, body: &[u8]) -> Result<Authorization, String> {
    match status {
        200 => {}
        204 => return Ok(Authorization::Granted(GrantLimits::default())),
        403 => return Ok(Authorization::Denied),
        other => return Err(format!("it answers with status {other}")),
    }
    let not_understood = |error| format!("its answer is not understood: {error}");
    let JsonObject(Consent { allow }) = serde_json::from_slice(body).map_err(not_understood)?;
    if !allow {
        return Ok(Authorization::Denied);
    }
    let JsonObject(answer): JsonObject<Answer> =
        serde_json::from_slice(body).map_err(not_understood)?;
    let limits = answer.limits.0.read();
    limits
        .map(Authorization::Granted)
        .map_err(|error| format!("its answer is not understood: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(limits: &str) -> Result<Authorization, String> {
        Ok(Authorization::Granted(limits.parse().unwrap()))
    }

    #[test]
    fn the_answers_of_a_service() {
        let limits = br#"{"allow": true, "reason": "paid", "limits": {"allocations": 2, "peers": ["10.0.0.0/8"]}}"#;
        assert_eq!(read(200, limits), granted("allocations=2&peers=10.0.0.0/8"));
        assert_eq!(read(204, b""), Ok(Authorization::Granted(GrantLimits::default())));
        assert_eq!(read(403, b"no"), Ok(Authorization::Denied));
        let no = br#"{"allow": false, "limits": {"allocations": 2}}"#;
        assert_eq!(read(200, no), Ok(Authorization::Denied));
        let with_more = br#"{"allow": false, "limit": {"allocations": 2}, "code": 7}"#;
        assert_eq!(read(200, with_more), Ok(Authorization::Denied), "nothing weakens a refusal");
    }

    #[test]
    fn a_field_that_is_unknown_is_named() {
        for (body, name) in [
            (&br#"{"allow": true, "limit": {"allocations": 2}}"#[..], "`limit`"),
            (br#"{"allow": true, "limits": {"rate": 2}}"#, "`rate`"),
            (br#"{"allow": true, "Limits": {}}"#, "`Limits`"),
        ] {
            let why = read(200, body).unwrap_err();
            assert!(why.contains("unknown field") && why.contains(name), "{why}");
        }
    }

    #[test]
    fn whatever_is_not_understood_grants_nothing() {
        for body in [
            &b""[..],
            b"ok",
            b"{}",
            br#"{"allow": "yes"}"#,
            b"[true]",
            b"[true, {}]",
            b"[]",
            b"true",
            b"null",
            br#"{"allow": true, "allow": false}"#,
            br#"{"allow": true, "limits": []}"#,
            br#"{"allow": true, "limits": [2]}"#,
            br#"{"allow": true, "limits": null}"#,
            br#"{"allow": true, "limits": {"allocations": null}}"#,
            br#"{"allow": true, "limits": {"bytes_per_second": null}}"#,
            br#"{"allow": true, "limits": {"lifetime": null}}"#,
            br#"{"allow": true, "limits": {"peers": null}}"#,
            br#"{"allow": true, "limit": {"allocations": 2}}"#,
            br#"{"allow": true} {"allow": false}"#,
            br#"{"allow": true, "limits": {"allocation": 2}}"#,
            br#"{"allow": true, "limits": {"allocations": 0}}"#,
            br#"{"allow": true, "limits": {"allocations": -1}}"#,
            br#"{"allow": true, "limits": {"peers": ["example.org"]}}"#,
            br#"{"allow": true, "limits": {"peers": ["1.1.1.1","1.1.1.2","1.1.1.3","1.1.1.4","1.1.1.5","1.1.1.6","1.1.1.7","1.1.1.8","1.1.1.9"]}}"#,
        ] {
            assert!(read(200, body).is_err(), "{}", String::from_utf8_lossy(body));
        }
        for status in [199, 201, 302, 401, 404, 429, 500, 503] {
            assert!(read(status, br#"{"allow": true}"#).is_err(), "{status}");
        }
    }
}
