//! Kinds of TOML values, and the errors about wrong ones.

use toml::de::DeValue;

use crate::keys::Key;
use crate::suggest::nearest;

/// Refuses the wrong kind of TOML value, with an error and advice. Numbers and switches where text
/// belongs pass: the value knows better what is missing (a unit, the end of a range, a whole
/// sentence).
pub(super) fn right_kind(key: &Key, value: &toml::Value) -> Result<(), (String, String)> {
    let is = format!("is {}", kind_of_value(value));
    let list = key.may_be("array");
    let text = key.may_be("string");
    if value.is_array() {
        return if list {
            Ok(())
        } else {
            Err((format!("{is}, and one value is needed"), forms(key)))
        };
    }
    if list && !(value.is_str() && text) {
        return Err((format!("{is}, and a list is needed"), forms(key)));
    }
    if key.may_be("boolean") {
        let help = "write true or false, without quotes".to_owned();
        return if value.is_bool() {
            Ok(())
        } else {
            Err((format!("{is}, and true or false is needed"), help))
        };
    }
    if key.text("x-kind").is_some() {
        let simple = value.is_str() || value.is_integer() || value.is_bool();
        return if simple {
            Ok(())
        } else {
            Err((format!("{is}, which it cannot be"), forms(key)))
        };
    }
    let Some(word) = value.as_str() else {
        return Err((format!("{is}, and text is needed"), forms(key)));
    };
    match key.choices() {
        Some(choices) if !choices.contains(&word) => {
            let help = nearest(word, choices.iter().copied()).map_or_else(
                || forms(key),
                |near| format!("did you mean \"{near}\"? Otherwise {}", forms(key)),
            );
            Err((format!("\"{word}\" is not one of the choices"), help))
        }
        Some(_) | None => Ok(()),
    }
}

/// The first name in a table that is none of its parts, or of a table within it, with advice.
pub(super) fn unknown_part(
    schema: &serde_json::Value,
    table: &toml::Value,
    within: &str,
) -> Option<(String, String)> {
    let (parts, table) = (crate::keys::parts(schema)?, table.as_table()?);
    table.iter().find_map(|(name, value)| {
        let path = format!("{within}{name}");
        let Some(part) = parts.get(name) else {
            let names = || parts.keys().map(String::as_str);
            let help = match nearest(name, names()) {
                Some(near) => format!("did you mean {within}{near}?"),
                None => format!("write {}", names().collect::<Vec<_>>().join(", ")),
            };
            return Some((format!("there is no {path}"), help));
        };
        unknown_part(part, value, &format!("{path}."))
    })
}

/// Advice on the form of a key's value.
pub(super) fn forms(key: &Key) -> String {
    let name = key.path.rsplit('.').next().unwrap_or_default();
    let entries = key.schema.get("items").is_some();
    if let Some(forms) = key.text("x-forms") {
        return if entries {
            format!("write a list: {name} = [...]; in each entry {forms}")
        } else {
            forms.to_owned()
        };
    }
    if let Some(choices) = key.choices() {
        let quoted = choices.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>();
        return format!("write one of {}", quoted.join(", "));
    }
    if entries {
        format!("write a list of tables: {name} = [{{ ... }}]")
    } else {
        "write text in quotes".to_owned()
    }
}

/// The value that a variable's text stands for. Text is taken as it is; where something else may
/// stand, TOML is read (`true`, `20`, `["a", "b"]`), and a list may also be comma-separated.
pub(super) fn value_of_variable(key: &Key, text: &str) -> toml::Value {
    let as_text = || toml::Value::String(text.to_owned());
    let list = key.may_be("array");
    if !list && (key.may_be("string") || key.choices().is_some()) {
        return as_text();
    }
    if let Ok(mut table) = toml::from_str::<toml::Table>(&format!("value = {text}"))
        && table.len() == 1
        && let Some(value) = table.remove("value")
    {
        return value;
    }
    if list {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        return toml::Value::Array(
            entries.map(|entry| toml::Value::String(entry.to_owned())).collect(),
        );
    }
    as_text()
}

pub(super) fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

fn kind_of_value(value: &toml::Value) -> &'static str {
    match value {
        toml::Value::String(_) => "text",
        toml::Value::Integer(_) => "a whole number",
        toml::Value::Float(_) => "a number with a point",
        toml::Value::Boolean(_) => "true or false",
        toml::Value::Datetime(_) => "a date",
        toml::Value::Array(_) => "a list",
        toml::Value::Table(_) => "a table",
    }
}
