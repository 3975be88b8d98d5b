//! `docs/configuration.md` and the JSON schema, from the table of keys.

use std::fmt::Write;

use serde_json::Value;

use crate::keys::{Applied, Key, SCHEMA, SECTIONS, Section};

/// The JSON schema of the configuration file, for editors and other tools.
#[must_use]
pub fn json_schema() -> String {
    let mut text = serde_json::to_string_pretty(&*SCHEMA).unwrap_or_default();
    text.push('\n');
    text
}

/// The reference page.
#[must_use]
pub fn reference_markdown() -> String {
    let mut page = HEAD.replace("{EXAMPLE}", crate::EXAMPLE);
    page.push_str(
        "\n## All keys\n\n| key | default | a change takes effect |\n| --- | --- | --- |\n",
    );
    for key in SECTIONS.iter().flat_map(|section| &section.keys) {
        let path = &key.path;
        let anchor = path.replace('.', "");
        let _ = writeln!(page, "| [`{path}`](#{anchor}) | {} | {} |", default(key), effect(key));
    }
    for section in SECTIONS.iter() {
        write_section(&mut page, section);
    }
    page
}

const HEAD: &str = r#"<!-- Generated from crates/settings/src/file/ by `cargo xtask docs`; edit there. -->
# Configuration

Turnpike reads one TOML file ([which one](#places)). A safe public relay is five lines:

```toml
{EXAMPLE}```

`external` is for hosts behind 1:1 NAT, as in most clouds; leave it out where the host has its public
address. The secret is shared with the service that hands out credentials: `openssl rand -base64 32`
makes one. `turnpike check FILE` lists all errors of a file, with advice.

Every key has a default, so a file needs only the differences; without a file the server relays for the
users of its database. A key that does not exist is an error, never ignored.

Values with a unit carry it in the value: `"10 min"` (ms, s, min, h, d), `"64 MiB"` (B, KiB, MiB, GiB).

## Places

The configuration file is the first of `--config FILE`, the variable
`TURNPIKE_CONFIG`, `/etc/turnpike/turnpike.toml`. Without any the defaults below hold.

The data directory is the first of `--data DIR`, the variable `TURNPIKE_DATA`,
`data.directory`. Without a configuration file it is `/var/lib/turnpike` for root, and wherever that
directory exists; for others `$XDG_DATA_HOME/turnpike`, which is `~/.local/share/turnpike` by default.

The control socket is `--socket PATH`, else `control.socket`, else `control.sock` in the data directory.
Commands look for a running server in the same places as the server itself.

## Environment variables

A variable overrides each key: `TURNPIKE_`, then the key in capitals, with two underscores between
table and key. `TURNPIKE_REALM` is `realm`, `TURNPIKE_AUTH__SECRET_FILE` is `auth.secret_file`. Text is
written without quotes; a list as in the file, or comma-separated:

```sh
TURNPIKE_LISTEN="0.0.0.0:3478, [::]:3478"
TURNPIKE_QUOTAS__BYTES_PER_SECOND="2 MiB"
TURNPIKE_RELAY__ADDRESSES='[{ local = "10.0.0.5", public = "203.0.113.7" }]'
```

Besides these there are `TURNPIKE_CONFIG` and `TURNPIKE_DATA` (see [Places](#places)). Another variable
that begins with `TURNPIKE_` is an error if its name is near a key's, since a setting without effect would be
noticed too late, and otherwise a warning. The
variables that Kubernetes makes for a service whose name begins with "turnpike" are known by name and
value, and ignored: `…_SERVICE_HOST` with an address, `…_SERVICE_PORT` and `…_SERVICE_PORT_<NAME>` with a
port, `…_PORT` and `…_PORT_<N>_<PROTOCOL>` with a URL such as `udp://10.0.0.1:3478`, and of the latter
`_PROTO`, `_PORT` and `_ADDR`.

A secret is set by variable as `TURNPIKE_AUTH__SECRET`, or by file as `TURNPIKE_AUTH__SECRET_FILE`, the path
of a file that holds it (a mounted secret, for instance). The file is better: variables are visible to everyone who may
read `/proc/PID/environ`, and a reload reads the file again.

## Reload

`turnpike reload`, or SIGHUP, reads the file again. Keys marked *reload* take effect at once; those
marked *restart* are reported, and wait for the next start. When anything in the file is wrong, nothing
changes and the old configuration stays in force.

For allocations that exist, a change means:

- peer rules: data to and from forbidden peers is dropped at once;
- relay addresses: allocations on one that was removed end at once;
- secrets: credentials of a removed secret cannot refresh allocations;
- token keys: likewise;
- lifetimes: in force from the next refresh on;
- quotas: in force from the next allocation on; existing allocations stay.
"#;

fn write_section(page: &mut String, section: &Section) {
    match &section.name {
        Some(name) => {
            let _ = writeln!(page, "\n## `[{name}]`\n\n{}", joined(&section.text));
        }
        None => page.push_str("\n## At the top of the file\n"),
    }
    for key in &section.keys {
        write_key(page, key);
    }
}

fn write_key(page: &mut String, key: &Key) {
    let _ = writeln!(
        page,
        "\n### `{}`\n\n{}\n",
        key.path,
        joined(key.text("description").unwrap_or_default())
    );
    let _ = writeln!(page, "- Type: {}", kind(key));
    if let Some(bounds) = key.text("x-bounds") {
        let _ = writeln!(page, "- Bounds: {bounds}");
    }
    let _ = writeln!(page, "- Default: {}", default(key));
    let _ = writeln!(page, "- A change takes effect at: {}", effect(key));
    let _ = writeln!(page, "- Variable: `{}`", key.variable());
    let examples = key.schema.get("examples").and_then(Value::as_array).into_iter().flatten();
    let name = key.path.rsplit('.').next().unwrap_or_default();
    for example in examples {
        let _ = writeln!(page, "- Example: `{name} = {}`", toml(example));
    }
    write_parts(page, key);
}

/// Parts of the tables in a list.
fn write_parts(page: &mut String, key: &Key) {
    if let Some(entry) = key.schema.get("items") {
        write_parts_of(page, entry, "");
    }
}

/// Parts of a table, each after the name of the table within its entry.
fn write_parts_of(page: &mut String, table: &Value, within: &str) {
    for (name, schema) in crate::keys::parts(table).into_iter().flatten() {
        let name = format!("{within}{name}");
        let text = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        let _ = writeln!(page, "- In an entry, `{name}`: {}", joined(text));
        let inner = schema.get("items").unwrap_or(schema);
        write_parts_of(page, inner, &format!("{name}."));
    }
}

fn kind(key: &Key) -> String {
    if let Some(words) = key.choices() {
        return words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(" or ");
    }
    let of_entries = key.schema.get("items").is_some();
    match key.text("x-kind") {
        Some(kind) if of_entries => format!("list, each entry: {kind}"),
        Some(kind) => kind.to_owned(),
        None if key.may_be("boolean") => "`true` or `false`".to_owned(),
        None if of_entries => "list of tables".to_owned(),
        None => "text".to_owned(),
    }
}

fn default(key: &Key) -> String {
    let value = key.schema.get("default");
    let empty = value.is_none_or(|value| value.as_array().is_some_and(Vec::is_empty));
    match value {
        Some(value) if !empty => format!("`{}`", toml(value)),
        Some(_) | None => "none".to_owned(),
    }
}

fn effect(key: &Key) -> &'static str {
    match key.applied() {
        Applied::Live => "reload",
        Applied::Restart => "restart",
    }
}

/// A doc comment's lines as one paragraph.
fn joined(text: &str) -> String {
    text.split("\n\n")
        .map(|paragraph| paragraph.replace('\n', " "))
        .collect::<Vec<_>>()
        .join("\n\n")
}

/// A JSON value as TOML on one line.
pub(crate) fn toml(value: &Value) -> String {
    if let Some(list) = value.as_array() {
        return format!("[{}]", list.iter().map(toml).collect::<Vec<_>>().join(", "));
    }
    if let Some(table) = value.as_object() {
        let fields = table.iter().filter(|(_, value)| !value.is_null());
        let fields = fields.map(|(name, value)| format!("{name} = {}", toml(value)));
        return format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "));
    }
    value.to_string()
}
