//! The document of the interface against the server: every operation is asked, and its answer has
//! the form that the document promises, no more and no less.

use admin::Role;
use serde_json::{Value, json};

use crate::support::Server;

/// Checks a value against a schema; a field that the schema does not name is a fault as well.
fn check(document: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    if let Some(path) = schema["$ref"].as_str() {
        let schema = document.pointer(path.trim_start_matches('#'));
        let schema = schema.ok_or_else(|| format!("{at}: {path} leads nowhere"))?;
        return check(document, schema, value, at);
    }
    if let Some(choices) = schema["anyOf"].as_array().or_else(|| schema["oneOf"].as_array()) {
        let faults: Vec<_> =
            choices.iter().filter_map(|one| check(document, one, value, at).err()).collect();
        return if faults.len() < choices.len() { Ok(()) } else { Err(faults.join(" or ")) };
    }
    if let Some(constant) = schema.get("const") {
        return (constant == value).then_some(()).ok_or_else(|| format!("{at}: {value}"));
    }
    if let Some(words) = schema["enum"].as_array() {
        return words.contains(value).then_some(()).ok_or_else(|| format!("{at}: {value}"));
    }
    let kind = &schema["type"];
    let kinds = kind.as_array().cloned().unwrap_or_else(|| vec![kind.clone()]);
    let is = |kind: &Value| match kind.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("null") => value.is_null(),
        other => panic!("{at}: the schema has the type {other:?}: {schema}"),
    };
    if !kinds.iter().any(is) {
        return Err(format!("{at}: {value} is no {kinds:?}"));
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        check(document, &schema["items"], item, &format!("{at}[{index}]"))?;
    }
    let Some(object) = value.as_object() else { return Ok(()) };
    for name in schema["required"].as_array().into_iter().flatten() {
        if !object.contains_key(name.as_str().unwrap_or_default()) {
            return Err(format!("{at}: there is no {name}"));
        }
    }
    for (name, value) in object {
        let field = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
        let field = field.filter(|field| field.is_object());
        let field = field.ok_or_else(|| format!("{at}: {name} is not in the document"))?;
        check(document, field, value, &format!("{at}.{name}"))?;
    }
    Ok(())
}

/// The value of the first event of a stream.
async fn first_event(server: &Server, token: &str, path: &str) -> Value {
    let head = format!("authorization: Bearer {token}\r\n");
    let text = server.beginning(path, &head, "\n\n", 2).await;
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    serde_json::from_str(data).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_answers_as_documented() {
    let server = Server::start().await;
    let token = server.token(Role::Admin);
    let answer = server.with(&token, "GET", "/v1/openapi.json").await;
    let document: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let mut count = 0;
    let mut operations: Vec<(String, String, Value)> = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            operations.push((path.clone(), method.to_uppercase(), operation.clone()));
        }
    }
    // What ends a session or a sign-in comes last.
    operations.sort_by_key(|(path, method, _)| {
        (method != "GET", path == "/v1/sign-out", method != "POST")
    });
    for (path, method, operation) in operations {
        let content = &operation["responses"]["200"]["content"];
        let at = path.replace("{id}", "0000000000000001");
        let at = if at == "/turn" { "/turn?service=turn".to_owned() } else { at };
        if let Some(events) = content.get("text/event-stream") {
            let event = first_event(&server, &token, &at).await;
            check(&document, &events["schema"], &event, &path).unwrap();
            count += 1;
            continue;
        }
        let schema = &content["application/json"]["schema"];
        let with = format!("authorization: Bearer {token}\r\ncontent-type: application/json\r\n");
        let body = match (method.as_str(), path.as_str()) {
            ("POST", "/v1/sign-in") => format!("{{\"token\": \"{token}\"}}"),
            ("POST", "/v1/traces") => r#"{"client": "192.0.2.0/24", "seconds": 60}"#.to_owned(),
            ("POST" | "DELETE", "/v1/revocations") => r#"{"name": "alice"}"#.to_owned(),
            ("POST", "/v1/accounts/forget") => r#"{"names": ["alice"]}"#.to_owned(),
            ("POST" | "DELETE", "/v1/accounts") => r#"{"name": "alice"}"#.to_owned(),
            _ => String::new(),
        };
        let answer = server.ask(&method, &at, &with, &body).await;
        let value: Value = serde_json::from_str(&answer.body).unwrap();
        let expected = match answer.status {
            200 => schema,
            // The test's server does not drain.
            409 => &operation["responses"]["default"]["content"]["application/json"]["schema"],
            other => panic!("{method} {path}: {other} {}", answer.body),
        };
        if path != "/v1/openapi.json" {
            check(&document, expected, &value, &path)
                .unwrap_or_else(|fault| panic!("{method} {fault}"));
        }
        count += 1;
    }
    assert!(count >= 20, "the document lost an operation: {count}");
}

#[tokio::test]
async fn every_route_is_documented() {
    let server = Server::start().await;
    let token = server.token(Role::Admin);
    let answer = server.with(&token, "GET", "/v1/openapi.json").await;
    let document: Value = serde_json::from_str(&answer.body).unwrap();
    // The routes as they are written in the program.
    let mut routes = Vec::new();
    for source in [include_str!("../src/routes.rs"), include_str!("../src/api.rs")] {
        let paths = source.split(".route(").skip(1);
        routes.extend(paths.filter_map(|route| route.trim_start().split('"').nth(1)));
    }
    assert!(routes.len() > 12, "{routes:?}");
    for route in routes {
        assert!(document["paths"].get(route).is_some(), "{route} is not in the document");
    }
    assert_eq!(server.with(&token, "GET", "/v1/../etc/passwd").await.status, 404);
    assert_eq!(server.with(&token, "GET", "/page/../../etc/passwd").await.status, 404);
    assert_eq!(server.with(&token, "GET", "/page/%2e%2e/app.js").await.status, 404);
}

#[test]
fn the_check_finds_what_is_missing_and_what_is_more() {
    let schema = json!({
        "type": "object", "required": ["a"], "properties": { "a": { "type": "integer" }, "b": { "type": ["string", "null"] } },
    });
    let of = |value: Value| check(&json!({}), &schema, &value, "x").is_ok();
    assert!(of(json!({ "a": 1 })) && of(json!({ "a": 1, "b": null })));
    assert!(!of(json!({})) && !of(json!({ "a": "1" })) && !of(json!({ "a": 1, "c": 2 })));
}

#[tokio::test]
async fn the_page_is_there_with_a_policy_that_runs_no_foreign_script() {
    let server = Server::start().await;
    let page = server.ask("GET", "/", "", "").await;
    assert_eq!(page.status, 200);
    let policy = page.header("content-security-policy").unwrap();
    for part in [
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    let mut files = vec!["page/app.js".to_owned(), "page/style.css".to_owned()];
    let mut next = 0;
    while let Some(file) = files.get(next).cloned() {
        let answer = server.ask("GET", &format!("/{file}"), "", "").await;
        assert_eq!(answer.status, 200, "{file}");
        for import in
            answer.body.split("from \"./").skip(1).filter_map(|rest| rest.split('"').next())
        {
            let import = format!("page/{import}");
            if !files.contains(&import) {
                files.push(import);
            }
        }
        for foreign in ["http:", "https:", "innerHTML", "insertAdjacent", "document.write", "eval("]
        {
            let body = answer.body.replace("http://www.w3.org/2000/svg", "");
            assert!(!body.contains(foreign), "{file} has {foreign}");
        }
        next += 1;
    }
    assert!(files.len() >= 9, "{files:?}");
}
