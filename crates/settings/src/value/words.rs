//! Words: names, secrets, and switches that need to be said in full.

use serde::de::Error;
use serde_json::{Map, Value, json};
use turn_types::Secret;

use super::{Written, advice, written};

/// Text of `MIN` to `MAX` bytes without control characters and without blanks at its ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text<const MIN: usize, const MAX: usize>(String);

impl<const MIN: usize, const MAX: usize> Text<MIN, MAX> {
    /// This text; for defaults, which must be within the bounds.
    pub(crate) fn fixed(text: &'static str) -> Self {
        assert!((MIN..=MAX).contains(&text.len()), "the default is out of its own bounds");
        Self(text.to_owned())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<const MIN: usize, const MAX: usize> Written for Text<MIN, MAX> {
    const KIND: &'static str = "text";

    fn forms() -> String {
        format!("write {MIN} to {MAX} bytes of text in quotes, without control characters")
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text.len() < MIN {
            return Err(if text.is_empty() {
                "the text is empty".to_owned()
            } else {
                "the text is too short".to_owned()
            });
        }
        if text.len() > MAX {
            return Err(format!("the text has {} bytes, and the most is {MAX}", text.len()));
        }
        if text.chars().any(char::is_control) {
            return Err("the text has a control character in it".to_owned());
        }
        if text.trim() != text {
            return Err(format!("\"{text}\" begins or ends with a blank"));
        }
        Ok(Self(text.to_owned()))
    }

    fn show(&self) -> String {
        self.0.clone()
    }

    fn describe(schema: &mut Map<String, Value>) {
        schema.insert("minLength".to_owned(), json!(MIN));
        schema.insert("maxLength".to_owned(), json!(MAX));
        schema.insert("x-bounds".to_owned(), json!(format!("{MIN} to {MAX} bytes")));
    }
}
written!([const MIN: usize, const MAX: usize] Text<MIN, MAX>);

/// A secret in the file itself. Shown as `<secret>`, in errors not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretText(pub(crate) Secret<String>);

impl Written for SecretText {
    const KIND: &'static str = "secret";

    fn forms() -> String {
        "write the secret in quotes: 16 bytes or more, such as the output of `openssl rand -base64 32`".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        Ok(Self(Secret::new(text.to_owned())))
    }

    fn parse_number(_: i64) -> Result<Self, String> {
        Err("it is a bare number, and text in quotes is needed".to_owned())
    }

    fn show(&self) -> String {
        self.0.to_string()
    }

    fn describe(schema: &mut Map<String, Value>) {
        schema.insert("minLength".to_owned(), json!(crate::limits::SECRET_BYTES_MIN));
        schema.insert(
            "x-bounds".to_owned(),
            json!(format!("{} bytes or more", crate::limits::SECRET_BYTES_MIN)),
        );
    }
}
written!([] SecretText);

/// The beginning of an address on the web, that something is appended to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebPrefix(String);

impl WebPrefix {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Written for WebPrefix {
    const KIND: &'static str = "address on the web";

    fn forms() -> String {
        "write one that begins with http:// or https:// and ends with /, such as \
         \"http://acme.example.org/.well-known/acme-challenge/\""
            .to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        let is_good = host.is_some_and(|host| host.ends_with('/') && !host.starts_with('/'))
            && text.len() <= 512
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_good { Ok(Self(text.to_owned())) } else { Err(format!("\"{text}\" is none")) }
    }

    fn show(&self) -> String {
        self.0.clone()
    }

    fn describe(schema: &mut Map<String, Value>) {
        schema.insert("maxLength".to_owned(), json!(512));
        schema.insert("x-bounds".to_owned(), json!("http:// or https://, up to 512 bytes"));
    }
}
written!([] WebPrefix);

/// Whether anybody may relay without proving who they are. Only the whole sentence says yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenRelay {
    /// Everybody proves who they are.
    No,
    /// Anybody relays.
    Yes,
}

impl OpenRelay {
    /// What an operator has to write.
    pub const SENTENCE: &str = "yes, relay for anyone";
}

impl Written for OpenRelay {
    const KIND: &'static str = "choice";

    fn forms() -> String {
        format!(
            "write \"no\", or, where anybody at all shall relay through this host, \"{}\"",
            Self::SENTENCE
        )
    }

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "no" => Ok(Self::No),
            Self::SENTENCE => Ok(Self::Yes),
            other => {
                Err(format!("\"{other}\" does not say clearly enough whether anybody may relay"))
            }
        }
    }

    fn parse_switch(switch: bool) -> Result<Self, String> {
        if switch {
            return Err("true does not say clearly enough that anybody may relay".to_owned());
        }
        Ok(Self::No)
    }

    fn show(&self) -> String {
        match self {
            Self::No => "no".to_owned(),
            Self::Yes => Self::SENTENCE.to_owned(),
        }
    }

    fn describe(schema: &mut Map<String, Value>) {
        schema.insert("enum".to_owned(), json!(["no", Self::SENTENCE]));
    }
}
written!([] OpenRelay);

/// How many workers there are: `"auto"` or a number from 1 to [`WorkerCount::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerCount {
    /// One per processor that this process may run on.
    Auto,
    /// That many.
    Fixed(u16),
}

impl WorkerCount {
    /// As many as the kernel path has rings for: xdp-relay's `WORKERS_MAX`. The largest hosts have no
    /// more processors that a worker each would serve.
    pub const MAX: u16 = 256;

    fn forms() -> String {
        format!(
            "write \"auto\" for one per processor, or a whole number from 1 to {}, the most that the \
             kernel path serves",
            Self::MAX
        )
    }

    fn fixed(number: i64) -> Option<Self> {
        u16::try_from(number)
            .ok()
            .filter(|number| (1..=Self::MAX).contains(number))
            .map(Self::Fixed)
    }
}

impl serde::Serialize for WorkerCount {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => to.serialize_str("auto"),
            Self::Fixed(number) => to.serialize_u16(*number),
        }
    }
}

impl<'de> serde::Deserialize<'de> for WorkerCount {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = WorkerCount;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("\"auto\" or a number")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<WorkerCount, E> {
                match text {
                    "auto" => Ok(WorkerCount::Auto),
                    text => text.parse().ok().and_then(WorkerCount::fixed).ok_or_else(|| {
                        E::custom(advice(
                            format!("\"{text}\" is neither \"auto\" nor a number in range"),
                            WorkerCount::forms(),
                        ))
                    }),
                }
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<WorkerCount, E> {
                WorkerCount::fixed(number).ok_or_else(|| {
                    E::custom(advice(format!("{number} is out of range"), WorkerCount::forms()))
                })
            }
        }
        from.deserialize_any(Visitor)
    }
}

impl schemars::JsonSchema for WorkerCount {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "WorkerCount".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "anyOf": [{ "const": "auto" }, { "type": "integer", "minimum": 1, "maximum": Self::MAX }],
            "x-kind": "\"auto\" or number",
            "x-forms": Self::forms(),
            "x-bounds": format!("1 to {}", Self::MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_bounded_in_bytes() {
        type Short = Text<1, 8>;
        assert_eq!(Short::parse("éééé").unwrap().as_str(), "éééé");
        assert_eq!(
            Short::parse("ééééé"),
            Err("the text has 10 bytes, and the most is 8".to_owned())
        );
        assert_eq!(Short::parse(""), Err("the text is empty".to_owned()));
        assert_eq!(Short::parse("a\tb"), Err("the text has a control character in it".to_owned()));
        assert_eq!(Short::parse("a "), Err("\"a \" begins or ends with a blank".to_owned()));
    }

    #[test]
    fn an_open_relay_needs_the_sentence() {
        for text in ["yes", "true", "Yes, relay for anyone", ""] {
            assert!(OpenRelay::parse(text).is_err(), "{text}");
        }
        assert_eq!(OpenRelay::parse(OpenRelay::SENTENCE), Ok(OpenRelay::Yes));
    }
}
