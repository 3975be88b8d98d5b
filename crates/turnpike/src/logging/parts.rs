//! Message and fields of an event as text, for formats that write each field separately.

use std::fmt;

use tracing::Event;
use tracing::field::{Field, Visit};

/// Parts of an event.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Message of the event.
    pub(super) message: String,
    /// Fields of the event, in recorded order.
    pub(super) fields: Vec<(&'static str, String)>,
}

impl Parts {
    pub(super) fn of(event: &Event<'_>) -> Self {
        let mut parts = Self::default();
        event.record(&mut parts);
        parts
    }

    /// Returns the text of a field.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| *key == name).map(|(_, text)| &**text)
    }

    fn add(&mut self, field: &Field, text: String) {
        match field.name() {
            "message" => self.message = text,
            name => self.fields.push((name, text)),
        }
    }
}

impl Visit for Parts {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }
}
