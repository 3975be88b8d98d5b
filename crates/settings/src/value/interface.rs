//! Network interfaces.

use serde_json::{Map, Value, json};

use super::{Written, written};
use crate::limits::INTERFACE_NAME_BYTES_MAX;

/// The name of a network interface, one that the kernel would give or take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceName(String);

impl InterfaceName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Written for InterfaceName {
    const KIND: &'static str = "interface name";

    fn forms() -> String {
        "write the name of a network interface in quotes, such as \"eth0\"; `ip link` lists them"
            .to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("the name is empty".to_owned());
        }
        if text.len() > INTERFACE_NAME_BYTES_MAX {
            return Err(format!(
                "\"{text}\" has {} bytes, and an interface's name has at most {INTERFACE_NAME_BYTES_MAX}",
                text.len()
            ));
        }
        // What the kernel refuses (dev_valid_name), and what would spoil the lines it is shown in.
        let foreign = |c: char| matches!(c, '/' | ':') || c.is_whitespace() || c.is_control();
        if text.contains(foreign) || matches!(text, "." | "..") {
            return Err(format!("{text:?} cannot be the name of an interface"));
        }
        Ok(Self(text.to_owned()))
    }

    fn written(&self) -> Value {
        json!(self.0)
    }

    fn describe(schema: &mut Map<String, Value>) {
        schema.insert("minLength".to_owned(), json!(1));
        schema.insert("maxLength".to_owned(), json!(INTERFACE_NAME_BYTES_MAX));
        schema.insert("pattern".to_owned(), json!("^[^/:\\s]+$"));
        schema.insert(
            "x-bounds".to_owned(),
            json!(format!("each of 1 to {INTERFACE_NAME_BYTES_MAX} bytes, and once")),
        );
    }
}
written!([] InterfaceName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_the_kernel_takes() {
        for name in ["eth0", "enp0s31f6", "br-lan", "eth0.100", "veth@x", "fifteen-letters"] {
            assert_eq!(InterfaceName::parse(name).unwrap().written(), name);
        }
        for (name, what) in [
            ("", "the name is empty"),
            (
                "sixteen-letters-",
                "\"sixteen-letters-\" has 16 bytes, and an interface's name has at most 15",
            ),
            ("eth0:1", "\"eth0:1\" cannot be the name of an interface"),
            ("net/eth0", "\"net/eth0\" cannot be the name of an interface"),
            ("eth0 ", "\"eth0 \" cannot be the name of an interface"),
            ("eth0\n", "\"eth0\\n\" cannot be the name of an interface"),
            ("..", "\"..\" cannot be the name of an interface"),
        ] {
            assert_eq!(InterfaceName::parse(name), Err(what.to_owned()));
        }
    }
}
