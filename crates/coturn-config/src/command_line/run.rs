//! `docker run` and `podman run`.

use super::{CommandLine, Variables, mount, of_container, words};

/// Options without a value.
const FLAGS: [&str; 11] = [
    "--detach",
    "--rm",
    "--init",
    "--interactive",
    "--tty",
    "--privileged",
    "--read-only",
    "--publish-all",
    "--no-healthcheck",
    "--replace",
    "--quiet",
];

pub(super) fn read(words: &[String], variables: &Variables) -> Result<CommandLine, String> {
    let mut rest = words.iter().skip_while(|word| *word != "run").skip(1);
    let mut mounts = Vec::new();
    let mut variables = variables.clone();
    while let Some(word) = rest.next() {
        if !word.starts_with('-') {
            // The image; its arguments are behind it.
            let arguments: Vec<String> = rest.cloned().collect();
            return of_container(&arguments, &variables, &mounts);
        }
        let (option, value) = match word.split_once('=') {
            Some((option, value)) if word.starts_with("--") => (option, value.to_owned()),
            _ if is_flag(word) => continue,
            _ => (word.as_str(), rest.next().cloned().unwrap_or_default()),
        };
        match option {
            "-v" | "--volume" => mounts.extend(mount(&value)),
            "-e" | "--env" => {
                if let Some((name, value)) = value.split_once('=') {
                    words::set(&mut variables, name, value);
                }
            }
            _ => {}
        }
    }
    Err("there is no image behind `run`".to_owned())
}

/// True for an option without a value, or letters of such ones.
fn is_flag(word: &str) -> bool {
    let letters = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
    FLAGS.contains(&word) || letters.is_some_and(|all| all.chars().all(|c| "ditPq".contains(c)))
}
