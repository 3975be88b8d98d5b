//! The message of an event and its fields as text, for the formats that write them one by one.

use std::fmt;

use tracing::Event;
use tracing::field::{Field, Visit};

/// The parts of an event.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Its message.
    pub(super) message: String,
    /// Its fields, in their order.
    pub(super) fields: Vec<(&'static str, String)>,
}

impl Parts {
    pub(super) fn of(event: &Event<'_>) -> Self {
        let mut parts = Self::default();
        event.record(&mut parts);
        parts
    }

    /// The text of a field.
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
