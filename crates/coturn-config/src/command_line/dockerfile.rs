//! Dockerfiles of images with coturn.

use super::{CommandLine, Variables, compose, of_container, words};

/// Reads the command of an image; `None` if it is not of coturn.
pub(super) fn read(text: &str, known: &Variables) -> Option<Result<CommandLine, String>> {
    let text = text.replace("\\\r\n", " ").replace("\\\n", " ");
    let (mut variables, mut mounts) = (known.clone(), Vec::new());
    let (mut entry_point, mut command, mut is_of_coturn) = (Vec::new(), Vec::new(), false);
    for line in text.lines().map(str::trim) {
        let (instruction, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match instruction.to_ascii_uppercase().as_str() {
            "FROM" => is_of_coturn = rest.contains("coturn"),
            "ENV" | "ARG" => {
                for (name, value) in pairs(rest) {
                    words::set(&mut variables, &name, &value);
                }
            }
            "COPY" | "ADD" => {
                let words: Vec<&str> =
                    rest.split_whitespace().filter(|word| !word.starts_with("--")).collect();
                if let [source, target] = words.as_slice() {
                    mounts.push(((*source).to_owned(), (*target).to_owned()));
                }
            }
            "ENTRYPOINT" => entry_point = form(rest),
            "CMD" => command = form(rest),
            _ => {}
        }
    }
    let all = [entry_point, command].concat();
    let is_program = |word: &String| word.rsplit('/').next() == Some("turnserver");
    let words = match all.iter().position(is_program) {
        Some(at) => &all[at..],
        None if is_of_coturn => &all[..],
        None => return None,
    };
    Some(of_container(words, &variables, &mounts))
}

/// The words of an instruction: a list, or a command of the shell.
fn form(rest: &str) -> Vec<String> {
    if rest.starts_with('[') {
        return compose::flow(rest);
    }
    words::split(rest).unwrap_or_default()
}

/// `NAME=VALUE NAME=VALUE`, or `NAME VALUE`.
fn pairs(rest: &str) -> Vec<(String, String)> {
    let words = words::split(rest).unwrap_or_default();
    let pair = |(name, value): (&str, &str)| (name.to_owned(), value.trim().to_owned());
    if words.first().is_some_and(|word| word.contains('=')) {
        return words.iter().filter_map(|word| word.split_once('=').map(pair)).collect();
    }
    rest.split_once(' ').map(pair).into_iter().collect()
}
