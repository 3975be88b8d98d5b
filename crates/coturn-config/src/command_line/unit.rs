//! Units of systemd, with their drop-ins behind them (`systemctl cat`).

use super::{CommandLine, Variables, of_program, run, words};

pub(super) fn read(text: &str, known: &Variables) -> Result<CommandLine, String> {
    let mut command = String::new();
    let mut variables = known.clone();
    let text = text.replace("\\\r\n", " ").replace("\\\n", " ");
    for line in text.lines().map(str::trim) {
        if let Some(value) = line.strip_prefix("ExecStart=") {
            // An empty one of a drop-in takes those before it back.
            value.trim().clone_into(&mut command);
        } else if let Some(value) = line.strip_prefix("Environment=") {
            for pair in words::split(value)? {
                if let Some((name, value)) = pair.split_once('=') {
                    variables.insert(name.to_owned(), value.to_owned());
                }
            }
        }
    }
    let command = command.trim_start_matches(['-', '@', '+', '!', ':']).replace("%%", "%");
    let words = words::split(&command)?;
    let Some(program) = words.first() else { return Err("ExecStart= is empty".to_owned()) };
    match program.rsplit('/').next() {
        Some("turnserver") => of_program(&words::separated(&words[1..], &variables), &variables),
        Some("docker" | "podman") => run::read(&words, &variables),
        _ => Err(format!("ExecStart= runs {program}, and not turnserver")),
    }
}
