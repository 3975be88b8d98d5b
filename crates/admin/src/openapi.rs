//! The document of the interface, for programs (OpenAPI 3.1) and for people, made from the table of
//! operations.

use std::fmt::Write as _;
use std::sync::LazyLock;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::role::Role;
use crate::routes::table::{Answer, OPERATIONS, Operation};
use crate::types;

/// Path of the schemas in the document.
const SCHEMAS: &str = "/components/schemas";

/// The document.
pub(crate) static DOCUMENT: LazyLock<Value> = LazyLock::new(document);

/// The document, as in `docs/operate/api.json`.
#[must_use]
pub fn json() -> String {
    let mut text = serde_json::to_string_pretty(&*DOCUMENT).unwrap_or_default();
    text.push('\n');
    text
}

fn document() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = SCHEMAS.into();
    settings.meta_schema = None;
    let mut generator = settings.into_generator();
    let problem = generator.subschema_for::<types::Problem>();
    let mut paths = Map::new();
    for one in OPERATIONS {
        let path = paths.entry(one.path).or_insert_with(|| json!({}));
        path[one.method.to_lowercase()] = operation(one, &mut generator, &problem.clone().into());
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Turnpike",
            "version": "1",
            "description": "The interface for operators. On the control socket no token is needed. Fields and operations \
                            are only ever added.",
            "license": { "name": "Apache-2.0 OR MIT" },
        },
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer", "description": "A token of `turnpike token add`" },
                "cookie": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "__Host-turnpike",
                    "description": "Of a browser that signed in; without TLS its name is `turnpike`",
                },
            },
        },
    })
}

fn operation(one: &Operation, generator: &mut SchemaGenerator, problem: &Value) -> Value {
    let mut parameters: Vec<Value> = one
        .parameters
        .iter()
        .map(|parameter| {
            json!({
                "name": parameter.name,
                "in": "query",
                "description": parameter.about,
                "schema": { "type": parameter.kind },
            })
        })
        .collect();
    if one.path.contains("{id}") {
        parameters.push(json!({
            "name": "id",
            "in": "path",
            "required": true,
            "description": "Id of a session: 16 hexadecimal digits",
            "schema": { "type": "string", "pattern": "^[0-9A-Fa-f]{16}$" },
        }));
    }
    let content = match one.answer {
        Answer::Json(form) => json!({ "application/json": { "schema": form(generator) } }),
        Answer::Events(form) => json!({ "text/event-stream": { "schema": form(generator) } }),
        Answer::Document => json!({ "application/json": { "schema": { "type": "object" } } }),
    };
    let mut value = json!({
        "operationId": id_of(one),
        "summary": one.summary,
        "parameters": parameters,
        "responses": {
            "200": { "description": "Done", "content": content },
            "default": {
                "description": "Refused, with the reason and advice",
                "content": { "application/json": { "schema": problem } },
            },
        },
        "security": match one.role {
            Some(_) => json!([{ "token": [] }, { "cookie": [] }]),
            None => json!([]),
        },
    });
    if let Some(role) = one.role {
        value["x-role"] = json!(role.name());
        value["x-by-realm"] = json!(one.is_by_realm);
    }
    if let Some(form) = one.body {
        value["requestBody"] =
            json!({ "content": { "application/json": { "schema": form(generator) } } });
    }
    value
}

/// `getSessionsId`.
fn id_of(one: &Operation) -> String {
    let words = one.path.trim_start_matches("/v1").split(|c: char| !c.is_ascii_alphanumeric());
    let mut id = one.method.to_lowercase();
    for word in words.filter(|word| !word.is_empty()) {
        let (first, rest) = word.split_at(1);
        id.push_str(&first.to_uppercase());
        id.push_str(rest);
    }
    id
}

const HEAD: &str = "\
# The interface for operators

HTTP/1.1 and JSON, on the control socket and, with `[api]`, over the network (see [The page](page.md) for tokens). Fields and
operations are only ever added under `/v1`. A token of one realm may call what says so, and sees and changes that realm alone. Every answer that is not 2xx has `error` and `hint`, except to what is no HTTP or has a head of more than 64 KiB or 100 headers. `api.json` is this document
as OpenAPI 3.1; a server has it at `/v1/openapi.json`.

```console
$ curl --unix-socket /var/lib/turnpike/control.sock http://localhost/v1/status
$ curl -H \"Authorization: Bearer $TOKEN\" 'http://127.0.0.1:9642/v1/sessions?sort=rate&limit=10'
```
";

/// The document as a page, for `docs/operate/api.md`.
#[must_use]
pub fn markdown() -> String {
    let mut page = HEAD.to_owned();
    let schemas = &DOCUMENT["components"]["schemas"];
    for one in OPERATIONS {
        let role = one.role.map_or("none", Role::name);
        let realm = if one.is_by_realm && one.role.is_some() { ", of a realm as well" } else { "" };
        // A string takes everything.
        let _ = write!(
            page,
            "\n## `{} {}`\n\n{}. Role: {role}{realm}.\n",
            one.method, one.path, one.summary
        );
        if !one.parameters.is_empty() {
            page.push_str("\n| parameter | type | meaning |\n|---|---|---|\n");
        }
        for parameter in one.parameters {
            let _ = writeln!(
                page,
                "| `{}` | {} | {} |",
                parameter.name, parameter.kind, parameter.about
            );
        }
        let mut generator = SchemaGenerator::default();
        for (what, form) in [("Request", one.body), ("Answer", answer(one))] {
            if let Some(form) = form {
                let _ = writeln!(page, "\n{what}: {}", link(&form(&mut generator).into()));
            }
        }
    }
    page.push_str("\n# Objects\n");
    for (name, schema) in schemas.as_object().into_iter().flatten() {
        let _ = write!(page, "\n## {name}\n\n{}\n", about(schema));
        let Some(fields) = schema["properties"].as_object() else { continue };
        page.push_str("\n| field | type | meaning |\n|---|---|---|\n");
        for (field, schema) in fields {
            let _ = writeln!(page, "| `{field}` | {} | {} |", link(schema), about(schema));
        }
    }
    page
}

fn answer(one: &Operation) -> Option<fn(&mut SchemaGenerator) -> schemars::Schema> {
    match one.answer {
        Answer::Json(form) | Answer::Events(form) => Some(form),
        Answer::Document => None,
    }
}

fn about(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    // Links of rustdoc lead nowhere here.
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace("[`", "`").replace("`]", "`")
}

/// The type of a schema, in words.
fn link(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(list) = schema["anyOf"].as_array() {
        let some = list.iter().find(|one| one["type"] != "null");
        return some.map_or_else(String::new, link);
    }
    let kind = |value: &Value| value.as_str().unwrap_or("object").to_owned();
    let one = &schema["type"];
    let name = one
        .as_array()
        .map_or_else(|| kind(one), |kinds| kinds.first().map_or_else(String::new, kind));
    match name.as_str() {
        "array" => format!("list of {}", link(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("map to {}", link(&schema["additionalProperties"]))
        }
        _ => name,
    }
}
