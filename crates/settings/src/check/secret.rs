//! Secrets, each from the configuration or from a file beside it.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use turn_types::Secret;

use crate::document::Document;
use crate::error::{Errors, Place};
use crate::limits::{SECRET_BYTES_MAX, SECRET_BYTES_MIN};
use crate::value::SecretText;

const MAKE_ONE: &str = "make one with `openssl rand -base64 32`";

/// Origin of a secret, for its errors.
pub(super) struct Source {
    pub(super) key: &'static str,
    pub(super) which: String,
    pub(super) place: Place,
    /// Names of the text and of the file.
    pub(super) words: [&'static str; 2],
    /// Least length in bytes.
    pub(super) least: usize,
}

impl Source {
    /// The secret of a separate key.
    pub(super) fn of_key(key: &'static str, words: [&'static str; 2], document: &Document) -> Self {
        let (which, place) = (String::new(), document.place(key));
        Self { key, which, place, words, least: SECRET_BYTES_MIN }
    }

    pub(super) fn refuse(&self, what: &str, help: &str, errors: &mut Errors) {
        errors.add(self.place.clone(), self.key, format!("{}{what}", self.which), help);
    }

    /// The secret, from the text or the file: exactly one of them.
    pub(super) fn secret(
        &self,
        text: Option<&SecretText>,
        file: Option<&Path>,
        document: &Document,
        errors: &mut Errors,
    ) -> Option<Secret<Arc<[u8]>>> {
        let [inline, in_file] = self.words;
        let bytes = match (text, file) {
            (Some(_), Some(_)) => {
                let what = format!("there are both {inline} and {in_file}");
                self.refuse(&what, "keep one of them", errors);
                return None;
            }
            (None, None) => {
                let help = format!("add {in_file} = \"...\" or {inline} = \"...\"");
                self.refuse(&format!("there is no {inline}"), &help, errors);
                return None;
            }
            (Some(text), None) => text.0.expose().clone().into_bytes(),
            (None, Some(file)) => match read(&document.directory().join(file)) {
                Ok(bytes) => {
                    let lines = lines(&bytes);
                    if lines > 1 {
                        let what = format!(
                            "{} has {lines} lines, and the {inline} is one",
                            document.directory().join(file).display()
                        );
                        let help = "keep one line: a line break within would be part of it";
                        self.refuse(&what, help, errors);
                        return None;
                    }
                    bytes
                }
                Err(what) => {
                    self.refuse(
                        &what,
                        "the file needs to be readable by the user that the server runs as",
                        errors,
                    );
                    return None;
                }
            },
        };
        if bytes.len() < self.least {
            let (len, least) = (bytes.len(), self.least);
            let what = format!("the {inline} has {len} bytes, and needs {least} or more");
            self.refuse(&what, MAKE_ONE, errors);
            return None;
        }
        if bytes.len() > SECRET_BYTES_MAX {
            let what = format!("the {inline} has more than {SECRET_BYTES_MAX} bytes");
            self.refuse(&what, MAKE_ONE, errors);
            return None;
        }
        Some(Secret::new(bytes.into()))
    }
}

/// The content of a secret's file without the blanks and line breaks at its ends.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let slip = |error: std::io::Error| {
        format!("{} could not be read: {}", path.display(), crate::reason(&error))
    };
    let file = crate::open(path).map_err(slip)?;
    let mut bytes = Vec::new();
    // One byte more than is allowed, so that too much is seen and no more is read; blanks aside.
    let most = 2 * SECRET_BYTES_MAX as u64;
    file.take(most).read_to_end(&mut bytes).map_err(slip)?;
    Ok(bytes.trim_ascii().to_vec())
}

/// Lines of a text; bytes that are no text are one.
fn lines(bytes: &[u8]) -> usize {
    std::str::from_utf8(bytes).map_or(1, |text| text.lines().count())
}
