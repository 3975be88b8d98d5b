//! Any other server, by a line of shell.

use std::path::PathBuf;

use super::{Certificate, Prepared, Terms};

/// What can be filled in.
const PLACES: [&str; 13] = [
    "listen",
    "tls_listen",
    "certificate",
    "key",
    "relay",
    "peer",
    "user",
    "password",
    "secret",
    "realm",
    "min_port",
    "max_port",
    "workers",
];

/// Whether a line can be filled in, and clients can log in then.
pub(super) fn check(line: &str) -> Result<(), String> {
    let mut rest = line;
    while let Some((_, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').unwrap_or((after, ""));
        if !PLACES.contains(&name) {
            let known = PLACES.map(|place| format!("{{{place}}}")).join(" ");
            return Err(format!("{{{name}}} is none of {known}"));
        }
        rest = after;
    }
    if !line.contains("{secret}") && !line.contains("{password}") {
        return Err("without {secret}, or {user} and {password}, clients cannot log in".to_owned());
    }
    Ok(())
}

/// The shell only fills its place: `exec` makes the server the process that is watched.
pub(super) fn prepare(line: &str, terms: &Terms) -> Prepared {
    let line = PLACES.iter().fold(line.to_owned(), |line, place| {
        line.replace(&format!("{{{place}}}"), &filling(place, terms))
    });
    Prepared {
        command: vec!["sh".to_owned(), "-c".to_owned(), format!("exec {line}")],
        configuration: None,
        version: String::new(),
        knows_secret: line.contains(&terms.secret),
    }
}

fn filling(place: &str, terms: &Terms) -> String {
    // Nothing, where no TLS is measured.
    let file = |part: fn(&Certificate) -> &PathBuf| {
        terms.certificate.as_ref().map(|one| part(one).display().to_string()).unwrap_or_default()
    };
    match place {
        "listen" => terms.listen.to_string(),
        "tls_listen" => terms.tls_listen.to_string(),
        "certificate" => file(|certificate| &certificate.chain),
        "key" => file(|certificate| &certificate.key),
        "relay" => terms.relay.ip().to_string(),
        "peer" => terms.peer.to_string(),
        "user" => terms.user.clone(),
        "password" => terms.password.clone(),
        "secret" => terms.secret.clone(),
        "realm" => terms.realm.clone(),
        "min_port" => terms.ports.0.to_string(),
        "max_port" => terms.ports.1.to_string(),
        "workers" => terms.workers.to_string(),
        other => unreachable!("{other} is not one of the places"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::servers::{terms, tls_terms};

    #[test]
    fn every_place_is_filled() {
        let line = PLACES.map(|place| format!("{{{place}}}")).join(" ");
        check(&line).unwrap();
        let prepared = prepare(&line, &tls_terms());
        assert_eq!(
            prepared.command[2],
            "exec 10.78.1.1:3478 10.78.1.1:5349 /run/c.pem /run/c.key 10.78.2.1 10.78.2.2:7000 bench password \
             0123456789abcdef0123456789abcdef bench 10000 65535 2"
        );
        assert!(prepared.knows_secret);
        assert!(!prepare("x {user} {password}", &terms()).knows_secret);
    }

    #[test]
    fn a_place_that_is_not_there_is_named() {
        assert!(check("x {secret} {sekret}").unwrap_err().contains("{sekret}"));
        assert!(check("x {secret").unwrap_err().contains("{secret"));
        assert!(check("x {listen}").is_err());
    }
}
