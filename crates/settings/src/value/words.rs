//! Text: names, secrets, and switches that are written in full.

use std::fmt;
use std::ops::Deref;

use serde_json::{Map, Value, json};
use turn_types::Secret;

use super::{Written, written};

/// Text of `MIN` to `MAX` bytes without control characters and without blanks at its ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text<const MIN: usize, const MAX: usize>(String);

impl<const MIN: usize, const MAX: usize> Text<MIN, MAX> {
    /// The text itself; for defaults, which must be within the bounds.
    pub(crate) fn fixed(text: &'static str) -> Self {
        assert!((MIN..=MAX).contains(&text.len()), "the default is out of its own bounds");
        Self(text.to_owned())
    }
}

impl<const MIN: usize, const MAX: usize> Deref for Text<MIN, MAX> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<const MIN: usize, const MAX: usize> fmt::Display for Text<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
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

    fn written(&self) -> Value {
        json!(self.0)
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

    fn written(&self) -> Value {
        json!(self.0.to_string())
    }

    fn describe(schema: &mut Map<String, Value>) {
        schema.insert("x-secret".to_owned(), json!(true));
        schema.insert("minLength".to_owned(), json!(crate::limits::SECRET_BYTES_MIN));
        schema.insert(
            "x-bounds".to_owned(),
            json!(format!("{} bytes or more", crate::limits::SECRET_BYTES_MIN)),
        );
    }
}
written!([] SecretText);

/// Prefix of a URL.
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

    fn written(&self) -> Value {
        json!(self.0)
    }

    fn describe(schema: &mut Map<String, Value>) {
        schema.insert("maxLength".to_owned(), json!(512));
        schema.insert("x-bounds".to_owned(), json!("http:// or https://, up to 512 bytes"));
    }
}
written!([] WebPrefix);

/// Relaying without authentication. Only the whole sentence turns it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenRelay {
    /// All clients authenticate.
    No,
    /// Everyone may relay.
    Yes,
}

impl OpenRelay {
    /// Returns whether everyone may relay.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Yes)
    }

    /// The sentence that an operator has to write.
    pub const SENTENCE: &str = "yes, relay for anyone";
}

impl Written for OpenRelay {
    const KIND: &'static str = "choice";

    fn forms() -> String {
        format!(
            "write \"no\", or, to relay for everyone, without authentication, \"{}\"",
            Self::SENTENCE
        )
    }

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "no" => Ok(Self::No),
            Self::SENTENCE => Ok(Self::Yes),
            other => Err(format!("\"{other}\" is not clear enough")),
        }
    }

    fn parse_switch(switch: bool) -> Result<Self, String> {
        if switch {
            return Err("true is not clear enough".to_owned());
        }
        Ok(Self::No)
    }

    fn written(&self) -> Value {
        match self {
            Self::No => json!("no"),
            Self::Yes => json!(Self::SENTENCE),
        }
    }

    fn describe(schema: &mut Map<String, Value>) {
        schema.insert("enum".to_owned(), json!(["no", Self::SENTENCE]));
    }
}
written!([] OpenRelay);

/// Number of workers: `"auto"` or 1 to [`WorkerCount::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerCount {
    /// One per processor that this process may run on.
    Auto,
    /// A fixed number.
    Fixed(u16),
}

impl WorkerCount {
    /// Rings of the kernel path: xdp-relay's `WORKERS_MAX`. The largest hosts have no more
    /// processors that a worker each would serve.
    pub const MAX: u16 = 256;
}

impl Written for WorkerCount {
    const KIND: &'static str = "\"auto\" or number";

    fn forms() -> String {
        format!(
            "write \"auto\" for one per processor, or a whole number from 1 to {}, the most that the \
             kernel path serves",
            Self::MAX
        )
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let number = text.parse().ok().and_then(|number| Self::parse_number(number).ok());
        number.ok_or_else(|| format!("\"{text}\" is neither \"auto\" nor a number in range"))
    }

    fn parse_number(number: i64) -> Result<Self, String> {
        let count = u16::try_from(number).ok().filter(|count| (1..=Self::MAX).contains(count));
        count.map(Self::Fixed).ok_or_else(|| format!("{number} is out of range"))
    }

    fn written(&self) -> Value {
        match self {
            Self::Auto => json!("auto"),
            Self::Fixed(number) => json!(number),
        }
    }

    fn describe(schema: &mut Map<String, Value>) {
        schema.remove("type");
        let number = json!({ "type": "integer", "minimum": 1, "maximum": Self::MAX });
        schema.insert("anyOf".to_owned(), json!([{ "const": "auto" }, number]));
        schema.insert("x-bounds".to_owned(), json!(format!("1 to {}", Self::MAX)));
    }
}
written!([] WorkerCount);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_bounded_in_bytes() {
        type Short = Text<1, 8>;
        assert_eq!(&*Short::parse("éééé").unwrap(), "éééé");
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
