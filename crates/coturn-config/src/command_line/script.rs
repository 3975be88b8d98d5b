//! A command of coturn in a script, a task of Ansible, or any other text with such a line.

use super::{CommandLine, Variables, of_program, run, words};

/// Words that may precede a command.
const PREFIXES: [&str; 17] = [
    "exec",
    "sudo",
    "nohup",
    "env",
    "then",
    "do",
    "else",
    "time",
    "-",
    "export",
    "command:",
    "shell:",
    "cmd:",
    "ansible.builtin.command:",
    "ansible.builtin.shell:",
    "RUN",
    "CMD",
];

/// Separators of commands.
const SEPARATORS: [&str; 5] = ["&&", "||", ";", "|", "("];

/// Reads the first command of coturn. `None` if the text has none.
pub(super) fn read(text: &str, known: &Variables) -> Option<Result<CommandLine, String>> {
    let mut variables = known.clone();
    let text = text.replace("\\\r\n", " ").replace("\\\n", " ");
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if let Some((name, value)) = assignment(line) {
            assign(&mut variables, line, name, value);
        }
        for command in commands(line) {
            if let Some(words) = own(command) {
                return Some(words.and_then(|words| {
                    let words = words::separated(&words[1..], &variables);
                    of_program(&words, &variables)
                }));
            }
            if let Some(words) = of_container(command) {
                return Some(words.and_then(|words| run::read(&words, &variables)));
            }
        }
    }
    None
}

/// The commands of a line: separators in quotes separate nothing.
fn commands(line: &str) -> Vec<&str> {
    let (mut all, mut begin, mut quote) = (Vec::new(), 0, None);
    for (at, sign) in line.char_indices() {
        match quote {
            Some(open) if sign == open => quote = None,
            Some(_) => {}
            None if sign == '\'' || sign == '"' => quote = Some(sign),
            // `$(…)` is a part of a word.
            None if line[..at].ends_with('$') => {}
            None => {
                if let Some(one) = SEPARATORS.iter().find(|one| line[at..].starts_with(**one))
                    && at >= begin
                {
                    all.push(&line[begin..at]);
                    begin = at + one.len();
                }
            }
        }
    }
    all.push(&line[begin..]);
    all
}

/// The words of a command that runs coturn, its program first.
fn own(command: &str) -> Option<Result<Vec<String>, String>> {
    behind_prefixes(command, |program| program == "turnserver")
}

/// The words of a command that runs a container of coturn.
fn of_container(command: &str) -> Option<Result<Vec<String>, String>> {
    let is_of_coturn = command.contains(" run ") && command.contains("coturn");
    is_of_coturn
        .then(|| behind_prefixes(command, |program| matches!(program, "docker" | "podman")))
        .flatten()
}

/// The words of a command behind its prefixes, if its program is the wanted one.
fn behind_prefixes(
    command: &str,
    is_wanted: impl Fn(&str) -> bool,
) -> Option<Result<Vec<String>, String>> {
    let mut rest = command.trim();
    loop {
        let first = rest.split_whitespace().next()?;
        let program = first.trim_matches(['"', '\'']);
        if is_wanted(program.rsplit('/').next().unwrap_or_default()) {
            return Some(words::split(rest).map(|words| before_redirection(&words)));
        }
        let is_prefix = PREFIXES.contains(&first) || assignment(first).is_some();
        if !is_prefix {
            return None;
        }
        rest = rest[first.len()..].trim_start();
    }
}

/// The words before the redirection of output, and before the mark of the background.
fn before_redirection(words: &[String]) -> Vec<String> {
    let is_end = |word: &String| {
        word == "&" || word.trim_start_matches(['1', '2', '&']).starts_with(['>', '<'])
    };
    words.iter().take_while(|word| !is_end(word)).cloned().collect()
}

/// Sets a variable of a line. Removes a variable with the output of a command.
fn assign(variables: &mut Variables, line: &str, name: &str, value: String) {
    let written = line.split_once('=').map_or("", |(_, written)| written);
    if written.starts_with('\'') {
        variables.insert(name.to_owned(), value);
    } else if written.contains('`') {
        variables.remove(name);
    } else {
        words::set(variables, name, &value);
    }
}

/// A variable that is set: `NAME=VALUE`, or `export NAME=VALUE`.
fn assignment(text: &str) -> Option<(&str, String)> {
    let text = text.strip_prefix("export ").unwrap_or(text);
    let (name, value) = text.split_once('=')?;
    let is_name = !name.is_empty()
        && !name.starts_with(|sign: char| sign.is_ascii_digit())
        && name.chars().all(|sign| sign.is_ascii_alphanumeric() || sign == '_');
    let value = words::split(value).ok()?.into_iter().next().unwrap_or_default();
    is_name.then_some((name, value))
}
