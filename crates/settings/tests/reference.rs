//! The committed documentation is the one that the code makes.

use std::path::Path;

use settings::{Environment, json_schema, parse, reference_markdown};

fn committed(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_reference_page_is_up_to_date() {
    assert!(
        committed("configuration.md") == reference_markdown(),
        "run `cargo xtask docs` and commit what it writes"
    );
}

#[test]
fn the_schema_is_up_to_date() {
    assert!(
        committed("configuration.schema.json") == json_schema(),
        "run `cargo xtask docs` and commit what it writes"
    );
}

/// Every example and every default of the page, each in a file of its own.
#[test]
fn what_the_page_shows_can_be_written() {
    let page = reference_markdown();
    let (mut key, mut count) = (String::new(), 0);
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("### `") {
            key = heading.trim_end_matches('`').to_owned();
        }
        let name = key.rsplit('.').next().unwrap_or_default();
        let example = line
            .strip_prefix("- Example: `")
            .map(|example| example.trim_end_matches('`').to_owned());
        let default = line
            .strip_prefix("- Default: `")
            .map(|value| format!("{name} = {}", value.trim_end_matches('`')));
        let Some(written) = example.or(default) else { continue };
        let text = match key.rsplit_once('.') {
            Some((table, _)) => format!("[{table}]\n{written}"),
            None => written,
        };
        count += 1;
        if let Err(errors) = parse(Path::new("turnpike.toml"), &text, &Environment::empty()) {
            // A key without pseudonyms is refused beside its missing file.
            let is_alone = |error: &&settings::SettingsError| {
                error.what.starts_with("there are no pseudonyms to make")
            };
            let others = || errors.0.iter().filter(|error| !is_alone(error));
            let about_files = others().all(|error| error.what.contains("could not be read"));
            let alone = errors.0.iter().all(|error| {
                error.what.starts_with("there is a name, and no address")
                    || error.what.starts_with("there are external addresses")
                    || error.what.starts_with("the authority verifies the names at port 443")
                    || error.what.starts_with("no listener of api.listen speaks TLS")
                    || error.what.starts_with("tokens for other services of the issuer")
                    || error.what.starts_with("there is no key to verify its tokens")
            });
            assert!(about_files || alone, "{text}\n{errors}");
        }
    }
    assert!(count > 45, "the page shows {count} values");
}

#[test]
fn the_page_names_every_variable() {
    let page = reference_markdown();
    for variable in
        ["TURNPIKE_REALM", "TURNPIKE_AUTH__SECRET_FILE", "TURNPIKE_LIFETIMES__ALLOCATION_MAX"]
    {
        assert!(page.contains(&format!("`{variable}`")), "{variable}");
    }
}
